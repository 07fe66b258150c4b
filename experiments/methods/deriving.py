"""Methods derived from trained runs without further training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cgp.networks.methods.temperature_scaling import fit_temperature
from experiments.data import OWN_IMAGES, Batches, DataSplits, InputSet, generator_for, input_sets, load
from experiments.evaluation import mean_probabilities
from experiments.methods.last_layer import last_layer_laplace
from experiments.methods.mc_dropout import mc_dropout_logits
from experiments.saved_predictions import Predictions, predict_missing, same_source, save_predictions

if TYPE_CHECKING:
    from torch import nn

    from experiments.configuration import DataConfig, EvaluationConfig, RunConfig

__all__ = ["DERIVED", "OF_PREDICTIONS", "Request", "Result", "TrainedRun", "joined"]

Logits = NDArray[np.float32]  # shape: (S, N, C)


OF_PREDICTIONS: Mapping[str, Callable[[Sequence[Logits], Mapping[str, float]], Logits]] = MappingProxyType(
    {
        "ensemble": lambda logits, chosen: np.concatenate(logits),
        "temperature": lambda logits, chosen: logits[0] / chosen["temperature"],
    }
)
"""Methods of predictions only: from the logits of each run, and what the method chose, to its own logits."""


class TrainedRun(Protocol):
    """Interface of a trained run, implemented by `experiments.runs.Run`."""

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
    """Inputs to predict by a derived method, options of the predictions, and the folder to write."""

    data: DataConfig
    evaluation: EvaluationConfig
    folder: Path
    sources: Mapping[str, str] = MappingProxyType({})
    """Descriptions of the inputs that are predicted already, by the name of their set."""


class Result(NamedTuple):
    """Result of a derived method, besides the files of its predictions."""

    chosen: dict[str, float]
    """Selected hyperparameters."""
    sources: dict[str, str]
    """Descriptions of the predicted inputs, by the name of their set."""
    remarks: tuple[str, ...] = ()
    """Deviations to report with the results."""


def _temperature(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Divide the logits of a run by the temperature fitted to its validation predictions."""
    run = _only(runs, "temperature")
    validation = run.predictions("validation")
    if validation.labels is None:
        raise ValueError(f"runs: expected labelled validation predictions in {run.folder}, got none")
    chosen = {"temperature": fit_temperature(validation.logits, validation.labels)}
    for name in _predicted(run):
        predictions = run.predictions(name)
        logits = OF_PREDICTIONS["temperature"]([predictions.logits], chosen)
        save_predictions(_path(request.folder, name), predictions._replace(logits=logits))
    right = int((mean_probabilities(validation.logits).argmax(-1) == validation.labels).sum())
    remarks: tuple[str, ...] = ()
    if right in (0, len(validation.ids)):
        what = "right" if right else "wrong"
        remarks = (f"the temperature has no optimum: all {len(validation.ids):,} validation predictions are {what}",)
    return Result(chosen, dict(run.sources), remarks)


def _mc_dropout(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Predict all inputs with the dropout of a run's model switched on."""
    run = _only(runs, "mc_dropout")
    model, seed = run.model(), run.config.seed

    def logits(batches: Batches, name: str) -> Tensor:
        draws = request.evaluation.draws
        return mc_dropout_logits(model, batches, draws, seed=int(generator_for(name, seed).initial_seed()))

    return Result({}, _predict(request, load(request.data, seed), seed, logits))


def _last_layer(runs: Sequence[TrainedRun], request: Request) -> Result:
    """Predict all inputs with last layers drawn from their Laplace posterior."""
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
    """Join the draws of several runs of one split to one predictor: S is members times draws."""
    if len(runs) < 2:
        raise ValueError(f"runs: expected at least two members of an ensemble, got {len(runs)}")
    names = [_predicted(run) for run in runs]
    for run, predicted in zip(runs, names, strict=True):
        if predicted != names[0]:
            odd = sorted(set(predicted) ^ set(names[0]))
            raise ValueError(f"runs: expected the same predictions in {runs[0].folder} and {run.folder}, not so: {odd}")
        _check_sources(runs[0], run)
    for name in names[0]:
        save_predictions(_path(request.folder, name), joined([run.predictions(name) for run in runs]))
    return Result({"members": len(runs)}, dict(runs[0].sources))


DERIVED: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {"temperature": _temperature, "mc_dropout": _mc_dropout, "kfllla": _last_layer, "ensemble": _ensemble}
)
"""From trained runs and a request to files of predictions."""


def joined(members: Sequence[Predictions]) -> Predictions:
    r"""Join the draws of several models: their mean probability is that of the ensemble.

    .. math:: p(y \mid x) = \frac1K \sum_k \frac1S \sum_s \mathrm{softmax}(f_{ks}(x))

    ValueError if members differ in their inputs, labels or number of draws.

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
    return first._replace(logits=OF_PREDICTIONS["ensemble"]([member.logits for member in members], {}))


def _same_labels(labels: NDArray[np.int64] | None, others: NDArray[np.int64] | None) -> bool:
    if labels is None or others is None:
        return labels is others
    return np.array_equal(labels, others)


def _predict(
    request: Request, splits: DataSplits, seed: int, logits: Callable[[Batches, str], Tensor]
) -> dict[str, str]:
    """Predict the requested sets that are missing; returns descriptions of all input sets."""

    def of_set(inputs: InputSet) -> Tensor:
        batches = Batches(inputs, request.evaluation.batch_size)
        return batches.in_order(logits(batches, inputs.name))

    sets = input_sets(request.data, splits, seed, full=request.evaluation.full)
    place, draws = partial(_path, request.folder), request.evaluation.draws
    return predict_missing(sets, place, of_set, draws=draws, sources=request.sources)


def _check_sources(run: TrainedRun, other: TrainedRun) -> None:
    """Raise if sets of one name differ between two runs, such as published and generated corruptions."""
    for name in sorted({*run.sources} & {*other.sources}):
        if not same_source(run.sources[name], other.sources[name]):
            raise ValueError(
                f"runs: expected the same {name} in {run.folder} and {other.folder}, got {run.sources[name]} and "
                f"{other.sources[name]}; predict one of them again"
            )


def _only(runs: Sequence[TrainedRun], kind: str) -> TrainedRun:
    if len(runs) != 1:
        raise ValueError(f"runs: expected one run for {kind}, got {len(runs)}")
    return runs[0]


def _predicted(run: TrainedRun) -> list[str]:
    """The predicted input sets of a run, except a user's folders of images."""
    return [name for name in run.predicted if not name.startswith(OWN_IMAGES)]


def _path(folder: Path, name: str) -> Path:
    return folder / "predictions" / f"{name}.npz"
