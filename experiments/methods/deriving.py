"""Methods that are made of trained runs, without training again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from experiments.data.examples import DataSplits, Examples, InputSet, batch
from experiments.data.ood import OWN_IMAGES
from experiments.data.partition import generator_for
from experiments.evaluation import fit_temperature, mean_probabilities
from experiments.methods.ensemble import joined
from experiments.methods.last_layer import last_layer_laplace
from experiments.methods.mc_dropout import mc_dropout_logits
from experiments.runs.prediction import Predictions, is_predicted, same_source
from experiments.storage import write_atomically

if TYPE_CHECKING:
    from experiments.configuration import DataConfig, EvaluationConfig

__all__ = [
    "DERIVED",
    "OF_PREDICTIONS",
    "Batches",
    "Request",
    "Result",
    "Run",
    "ensemble",
    "last_layer",
    "mc_dropout",
    "temperature",
]


class Run(Protocol):
    """What is asked of a trained run."""

    folder: Path
    config: Any
    sources: Mapping[str, str]
    """What the inputs were that it predicted, in words, by the name of their set."""

    def model(self) -> nn.Module:
        """Return the model with its weights."""
        ...

    def predictions(self, name: str) -> Predictions:
        """Return what was predicted of an input set.

        Args:
            name: of the input set.
        """
        ...


class Request(NamedTuple):
    """What is asked of a derived method.

    Args:
        data: which input sets to predict.
        evaluation: draws, and how many examples at a time.
        folder: where to write.
        sources: what the inputs were whose predictions are there already, by the name of their set.
    """

    data: DataConfig
    evaluation: EvaluationConfig
    folder: Path
    sources: Mapping[str, str] = MappingProxyType({})


class Result(NamedTuple):
    """What a derived method made, beside the files of its predictions.

    Args:
        chosen: the numbers that it chose.
        sources: what the inputs are that it predicted, by the name of their set.
        remarks: what to know before one believes it, in words.
    """

    chosen: dict[str, float]
    sources: dict[str, str]
    remarks: tuple[str, ...] = ()


class Batches:
    """Batches of examples that can be run through twice; texts of about one length come together.

    Args:
        examples: what to cut.
        batch_size: examples a batch.

    Example:
        >>> images = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
        >>> [part.shape[0] for part in Batches(Examples(images, torch.arange(5), torch.arange(5)), 2)]
        [2, 2, 1]
    """

    def __init__(self, examples: Examples | InputSet, batch_size: int) -> None:
        self.examples, self.batch_size = examples, batch_size
        self.order = torch.arange(len(examples.ids))
        if not isinstance(examples.inputs, Tensor):
            self.order = (~examples.inputs["padding_mask"]).sum(-1).cpu().argsort(stable=True)

    def __iter__(self) -> Iterator[Any]:
        for part in self.order.split(self.batch_size):
            yield batch(self.examples, part)[0]

    def in_order(self, logits: Tensor) -> Tensor:
        """Put logits back into the order of the examples.

        Args:
            logits: `(S, N, C)`, in the order of the batches.

        Returns:
            `(S, N, C)`.
        """
        return logits[:, self.order.argsort()]


def temperature(runs: Sequence[Run], asked: Request) -> Result:
    """Divide the logits of a run by the temperature that suits its validation predictions best.

    Args:
        runs: one run.
        asked: where to write; all that the run predicted is divided.

    Returns:
        The temperature.

    Raises:
        ValueError: if there is not one run, or its validation predictions have no labels.
    """
    run = _only(runs, "temperature")
    validation = run.predictions("validation")
    if validation.labels is None:
        raise ValueError(f"runs: expected labelled validation predictions in {run.folder}, got none")
    value = fit_temperature(validation.logits, validation.labels)
    for name in _predicted(run):
        found = run.predictions(name)
        _save(asked.folder, name, found._replace(logits=(found.logits / value).astype(np.float32)))
    right = int((mean_probabilities(validation.logits).argmax(-1) == validation.labels).sum())
    remarks = ()
    if right in (0, len(validation.ids)):
        what = "right" if right else "wrong"
        remarks = (f"the temperature has no optimum: all {len(validation.ids):,} validation predictions are {what}",)
    return Result({"temperature": value}, dict(run.sources), remarks)


def mc_dropout(runs: Sequence[Run], asked: Request) -> Result:
    """Predict everything again with the dropout of a run's model on.

    Args:
        runs: one run, with dropout.
        asked: what to predict, and where to write.

    Returns:
        No number: there is nothing to choose.
    """
    from experiments.data import load

    run = _only(runs, "mc_dropout")
    model, seed = _on_device(run.model()), run.config.seed

    def logits(batches: Batches, name: str) -> Tensor:
        draws = asked.evaluation.draws
        return mc_dropout_logits(model, batches, draws, seed=int(generator_for(name, seed).initial_seed()))

    return Result({}, _predict(asked, load(asked.data, seed), seed, logits))


def last_layer(
    runs: Sequence[Run],
    asked: Request,
    *,
    prior_precision: float | Literal["marginal_likelihood", "validation"] = "validation",
) -> Result:
    """Predict everything again with last layers drawn from their Laplace posterior.

    Args:
        runs: one run.
        asked: what to predict, and where to write.
        prior_precision: a number, or how to choose it. Under the largest marginal likelihood draws of a small set's
            last layers were far too wide (digits: NLL 0.141; by validation 0.069, as without Laplace).

    Returns:
        The prior precision.
    """
    from experiments.data import load

    run = _only(runs, "kfllla")
    splits, seed = load(asked.data, run.config.seed), run.config.seed
    train, validation = (Batches(part, asked.evaluation.batch_size) for part in (splits.train, splits.validation))
    posterior = last_layer_laplace(
        _on_device(run.model()),
        train,
        splits.train.labels[train.order],
        prior_precision=prior_precision,
        validation=(validation, splits.validation.labels[validation.order])
        if prior_precision == "validation"
        else None,
    )

    def logits(batches: Batches, name: str) -> Tensor:
        # The same last layers for every input set.
        return posterior.draw_logits(batches, asked.evaluation.draws, generator_for("kfllla", seed))

    return Result({"prior_precision": posterior.prior_precision}, _predict(asked, splits, seed, logits))


def ensemble(runs: Sequence[Run], asked: Request) -> Result:
    """Take the draws of several runs as the draws of one predictor: S is members times draws.

    Args:
        runs: the members; trained on the same split, or their test examples are not the same.
        asked: where to write; all that the members predicted is joined.

    Returns:
        The number of members.

    Raises:
        ValueError: if there are fewer than two members, or they did not predict the same.
    """
    if len(runs) < 2:
        raise ValueError(f"runs: expected at least two members of an ensemble, got {len(runs)}")
    names = [_predicted(run) for run in runs]
    for run, found in zip(runs, names, strict=True):
        if found != names[0]:
            odd = sorted(set(found) ^ set(names[0]))
            raise ValueError(f"runs: expected the same predictions in {runs[0].folder} and {run.folder}, not so: {odd}")
        _check_sources(runs[0], run)
    for name in names[0]:
        _save(asked.folder, name, joined([run.predictions(name) for run in runs]))
    return Result({"members": len(runs)}, dict(runs[0].sources))


DERIVED: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {"temperature": temperature, "mc_dropout": mc_dropout, "kfllla": last_layer, "ensemble": ensemble}
)

OF_PREDICTIONS = ("ensemble", "temperature")
"""What is computed from the predictions of runs alone: there is no model to predict further sets."""


def _predict(asked: Request, splits: DataSplits, seed: int, logits: Callable[[Batches, str], Tensor]) -> dict[str, str]:
    """Predict what is not predicted yet of everything that is asked for, and say what it is."""
    from experiments.data import input_sets

    sources = {}
    for inputs in input_sets(asked.data, splits, seed, full=asked.evaluation.full):
        if inputs.source:
            sources[inputs.name] = inputs.source
        path, recorded = _path(asked.folder, inputs.name), asked.sources.get(inputs.name)
        if is_predicted(path, inputs.ids, draws=asked.evaluation.draws, source=inputs.source, recorded=recorded):
            continue
        batches = Batches(inputs, asked.evaluation.batch_size)
        drawn = batches.in_order(logits(batches, inputs.name)).numpy()
        labels = None if inputs.labels is None else inputs.labels.cpu().numpy()
        _save(asked.folder, inputs.name, Predictions(drawn, inputs.ids.cpu().numpy(), labels))
    return sources


def _check_sources(one: Run, other: Run) -> None:
    """Fail where two runs predicted sets of one name that are not the same, as corruptions published and generated."""
    for name in sorted({*one.sources} & {*other.sources}):
        if not same_source(one.sources[name], other.sources[name]):
            raise ValueError(
                f"runs: expected the same {name} in {one.folder} and {other.folder}, got {one.sources[name]} and "
                f"{other.sources[name]}; predict one of them again"
            )


def _only(runs: Sequence[Run], kind: str) -> Run:
    if len(runs) != 1:
        raise ValueError(f"runs: expected one run for {kind}, got {len(runs)}")
    return runs[0]


def _on_device(model: nn.Module) -> nn.Module:
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _predicted(run: Run) -> list[str]:
    """The input sets that a run predicted; images that somebody asked it about are none."""
    names = (path.stem for path in (run.folder / "predictions").glob("[!.]*.npz"))
    return sorted(name for name in names if not name.startswith(OWN_IMAGES))


def _path(folder: Path, name: str) -> Path:
    return folder / "predictions" / f"{name}.npz"


def _save(folder: Path, name: str, predictions: Predictions) -> None:
    arrays = {key: value for key, value in predictions._asdict().items() if value is not None}
    write_atomically(_path(folder, name), lambda aside: np.savez_compressed(aside, **arrays))
