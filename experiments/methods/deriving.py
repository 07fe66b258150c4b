"""Methods that are made of trained runs, without training again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cgp.prediction.temperature_scaling import fit_temperature
from experiments.data import OWN_IMAGES, Batches, DataSplits, InputSet, generator_for, input_sets, load
from experiments.evaluation import mean_probabilities
from experiments.methods.last_layer import last_layer_laplace
from experiments.methods.mc_dropout import mc_dropout_logits
from experiments.saved_predictions import Predictions, predict_missing, same_source, save_predictions

if TYPE_CHECKING:
    from torch import nn

    from experiments.configuration import DataConfig, EvaluationConfig, RunConfig

__all__ = ["DERIVED", "OF_PREDICTIONS", "Request", "Result", "TrainedRun", "joined"]


class TrainedRun(Protocol):
    """What is read of a trained run; `experiments.runs.Run` has it."""

    @property
    def folder(self) -> Path: ...
    @property
    def config(self) -> RunConfig: ...
    @property
    def sources(self) -> Mapping[str, str]: ...
    @property
    def predicted(self) -> list[str]: ...
    def predictions(self, name: str) -> Predictions: ...
    def model(self) -> nn.Module: ...


class Request(NamedTuple):
    """What a derived method is to predict, how, and the folder to write to."""

    data: DataConfig
    evaluation: EvaluationConfig
    folder: Path
    sources: Mapping[str, str] = MappingProxyType({})
    """What the inputs were whose predictions are there already, by the name of their set."""


class Result(NamedTuple):
    """What a derived method made, beside the files of its predictions."""

    chosen: dict[str, float]
    """The numbers that it chose."""
    sources: dict[str, str]
    """What the inputs are that it predicted, by the name of their set."""
    remarks: tuple[str, ...] = ()
    """What to know before one believes it."""


def _temperature(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Divide the logits of a run by the temperature that suits its validation predictions best."""
    run = _only(runs, "temperature")
    validation = run.predictions("validation")
    if validation.labels is None:
        raise ValueError(f"runs: expected labelled validation predictions in {run.folder}, got none")
    value = fit_temperature(validation.logits, validation.labels)
    for name in _predicted(run):
        found = run.predictions(name)
        save_predictions(_path(request.folder, name), found._replace(logits=found.logits / value))
    right = int((mean_probabilities(validation.logits).argmax(-1) == validation.labels).sum())
    remarks: tuple[str, ...] = ()
    if right in (0, len(validation.ids)):
        what = "right" if right else "wrong"
        remarks = (f"the temperature has no optimum: all {len(validation.ids):,} validation predictions are {what}",)
    return Result({"temperature": value}, dict(run.sources), remarks)


def _mc_dropout(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Predict everything again with the dropout of a run's model on."""
    run = _only(runs, "mc_dropout")
    model, seed = run.model(), run.config.seed

    def logits(batches: Batches, name: str) -> Tensor:
        draws = request.evaluation.draws
        return mc_dropout_logits(model, batches, draws, seed=int(generator_for(name, seed).initial_seed()))

    return Result({}, _predict(request, load(request.data, seed), seed, logits))


def _last_layer(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Predict everything again with last layers drawn from their Laplace posterior."""
    run = _only(runs, "kfllla")
    splits, seed = load(request.data, run.config.seed), run.config.seed
    train, held_out = (Batches(part, request.evaluation.batch_size) for part in (splits.train, splits.validation))
    model, validation = run.model(), (held_out, held_out.labels)
    posterior = last_layer_laplace(model, train, train.labels, validation=validation)

    def logits(batches: Batches, name: str) -> Tensor:
        # The same last layers for every input set.
        return posterior.draw_logits(batches, request.evaluation.draws, generator_for("kfllla", seed))

    return Result({"prior_precision": posterior.prior_precision}, _predict(request, splits, seed, logits))


def _ensemble(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Take the draws of several runs of one split as the draws of one predictor: S is members times draws."""
    if len(runs) < 2:
        raise ValueError(f"runs: expected at least two members of an ensemble, got {len(runs)}")
    names = [_predicted(run) for run in runs]
    for run, found in zip(runs, names, strict=True):
        if found != names[0]:
            odd = sorted(set(found) ^ set(names[0]))
            raise ValueError(f"runs: expected the same predictions in {runs[0].folder} and {run.folder}, not so: {odd}")
        _check_sources(runs[0], run)
    for name in names[0]:
        save_predictions(_path(request.folder, name), joined([run.predictions(name) for run in runs]))
    return Result({"members": len(runs)}, dict(runs[0].sources))


DERIVED: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {"temperature": _temperature, "mc_dropout": _mc_dropout, "kfllla": _last_layer, "ensemble": _ensemble}
)
"""From trained runs and a request to files of predictions."""

OF_PREDICTIONS = ("ensemble", "temperature")
"""What is computed from the predictions of runs only: there is no model to predict further sets."""


def joined(members: Sequence[Predictions]) -> Predictions:
    r"""Join the draws of several models: their mean probability is that of the ensemble.

    .. math:: p(y \mid x) = \frac1K \sum_k \frac1S \sum_s \mathrm{softmax}(f_{ks}(x))

    Members that differ in their inputs, labels or number of draws are a ValueError.

    Source:
        Lakshminarayanan et al. (2017), Simple and Scalable Predictive Uncertainty Estimation, equation (2).
    """
    first = members[0]
    for member in members[1:]:
        if member.logits.shape != first.logits.shape:
            raise ValueError(
                f"members: expected logits of one shape (S, N, C), got {first.logits.shape} and {member.logits.shape}"
            )
        if not np.array_equal(member.ids, first.ids):
            raise ValueError(
                "members: expected predictions of the same examples, got other ids: the members need one split "
                "(data.split_seed: 0, not null)"
            )
        if not _same_labels(member.labels, first.labels):
            raise ValueError("members: expected the same labels, got others")
    return first._replace(logits=np.concatenate([member.logits for member in members]))


def _same_labels(labels: NDArray[np.int64] | None, others: NDArray[np.int64] | None) -> bool:
    if labels is None or others is None:
        return labels is others
    return np.array_equal(labels, others)


def _predict(
    request: Request, splits: DataSplits, seed: int, logits: Callable[[Batches, str], Tensor]
) -> dict[str, str]:
    """Predict what is requested and not there yet; returns what the input sets are."""

    def of_set(inputs: InputSet) -> Tensor:
        batches = Batches(inputs, request.evaluation.batch_size)
        return batches.in_order(logits(batches, inputs.name))

    sets = input_sets(request.data, splits, seed, full=request.evaluation.full)
    place, draws = partial(_path, request.folder), request.evaluation.draws
    return predict_missing(sets, place, of_set, draws=draws, sources=request.sources)


def _check_sources(one: TrainedRun, other: TrainedRun) -> None:
    """Fail where two runs predicted sets of one name that are not the same, as corruptions published and generated."""
    for name in sorted({*one.sources} & {*other.sources}):
        if not same_source(one.sources[name], other.sources[name]):
            raise ValueError(
                f"runs: expected the same {name} in {one.folder} and {other.folder}, got {one.sources[name]} and "
                f"{other.sources[name]}; predict one of them again"
            )


def _only(runs: Sequence[TrainedRun], kind: str) -> TrainedRun:
    if len(runs) != 1:
        raise ValueError(f"runs: expected one run for {kind}, got {len(runs)}")
    return runs[0]


def _predicted(run: TrainedRun) -> list[str]:
    """The input sets that a run predicted, but for a user's own images."""
    return [name for name in run.predicted if not name.startswith(OWN_IMAGES)]


def _path(folder: Path, name: str) -> Path:
    return folder / "predictions" / f"{name}.npz"
