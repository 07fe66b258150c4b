"""What a task asks of a network: how what it returns and its labels become rows, and how answers are scored."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor, nn

from cgp.networks.model.diagnostics import Features, pooled_features
from cgp.networks.model.inputs import (
    Batch,
    check_labelled,
    input_batches,
    logits_of,
    logits_of_probabilities,
    model_device,
    to_device,
)
from cgp.networks.model.labels import label_tensor
from cgp.networks.model.named import Named
from cgp.spelling import meant

__all__ = ["Predicted", "Task", "as_task"]


class Predicted(Protocol):
    """What a task reads of a prediction (:class:`cgp.Prediction`, which says what they are)."""

    @property
    def mean(self) -> Tensor:
        """Outputs averaged over draws, ``(N, ..., C)``."""

    @property
    def probabilities(self) -> Tensor | None:
        """Averaged over draws, ``(N, ..., C)``, or None."""

    @property
    def total(self) -> Tensor | None:
        """Total uncertainty, or None."""


@dataclass(frozen=True)
class Task(Named, argument="task"):
    """What is asked of a network; a subclass with a name is known by it.

    Args:
        output: takes logits or outputs from what the network returns.
        features: representation ``(N, d)`` of inputs, a function of network and inputs: by default the inputs of the
            linear layer whose output the network returns, or else of the last one that it calls.

    Attributes:
        kind: of its predictions, "classification", "multilabel" or "regression"; None has no uncertainty of its own.
        parameter: what calibration fits: a "temperature" of logits, or the "scale" of a variance.
        is_per_input: whether each input has a label, so that inputs may be scored and read out.
        dims: dimensions of its rows, before they are flattened.
        examples: what folds are made of, in words.
        wanted: what the network should return, in words.
    """

    output: Callable[[Any], Tensor] = logits_of
    features: Features = pooled_features

    kind: ClassVar[str | None]
    parameter: ClassVar[str] = ""
    is_per_input: ClassVar[bool] = True
    dims: ClassVar[int] = 2
    examples: ClassVar[str] = "labels"
    wanted: ClassVar[str] = ""

    @property
    def has_classes(self) -> bool:
        """Whether it is about classes, each answer with a probability."""
        return self.kind in ("classification", "multilabel")

    @property
    def has_distribution(self) -> bool:
        """Whether what the network returns says how likely each label is."""
        return self.has_classes

    @property
    def is_binary(self) -> bool:
        """Whether several labels may be there, each with a probability of its own."""
        return self.kind == "multilabel"

    @property
    def options(self) -> str:
        """The options of :func:`cgp.predict` that it needs, as code."""
        task = "" if self.name == "classification" else f', task="{self.name}"'
        output = ', output="probabilities"' if self.output is logits_of_probabilities else ", output=..."
        return task + ("" if self.output is logits_of else output)

    def outputs(self, returned: Any) -> Tensor:
        """What predictions hold of what a network returns: logits, classes last, or values, ``(N, ..., C)``."""
        return self.output(returned)

    def rows(self, returned: Any) -> Tensor:
        """What calibration is fitted to: logits ``(N, ..., C)``, or values and their variances ``(2, N, C)``."""
        return self.outputs(returned)

    def read(self, data: Any, model: nn.Module, name: str = "data", *, every: bool = False) -> Iterator[Batch]:
        """Read labelled batches, and check their labels as far as possible without the network.

        Args:
            data: batches ``(inputs, labels)`` or dicts with "labels", or a data set of such examples, or a list of
                dicts with one label each.
            model: the network, which has device and dtype.
            name: name of the argument, for error messages.
            every: whether every example has to have a label; otherwise −100 stands where there is none.

        Yields:
            The batches.

        Raises:
            ValueError: if there is no batch, or labels are missing or of another kind.
        """
        if isinstance(data, tuple | Tensor | np.ndarray | Mapping):
            raise ValueError(
                f"{name}: expected batches (inputs, labels) or dicts with 'labels', got a {type(data).__name__} "
                "(pass [(inputs, labels)], a list of one batch, the inputs first)"
            )
        batch = None
        for batch in input_batches(model, iter(data) if _are_batches(data) else data, name=name):
            check_labelled(model, batch, name)
            labels = self.labels(batch.labels, name=name, every=every)
            yield Batch(*to_device((batch.inputs, labels), model_device(model)))
        if batch is None:
            raise ValueError(f"{name}: expected at least one batch, got none")

    @abstractmethod
    def labels(self, labels: Tensor | None, shape: tuple[int, ...] | None = None, **options: Any) -> Tensor:
        """The labels as the task has them, checked against the ``shape`` of its outputs if that is known."""

    @abstractmethod
    def check(self, outputs: Tensor) -> None:
        """Raise for outputs of a batch that are not of the task."""

    def check_rows(self, rows: Tensor, labels: Tensor | None, *, name: str, first: int) -> None:
        """Raise for rows of a batch that calibration cannot take, or labels, called ``name``, that do not fit them."""

    def check_training(self, labels: Tensor, shape: tuple[int, ...]) -> None:
        """Raise for labels of training data that do not fit rows of a ``shape``."""

    @abstractmethod
    def present(self, labels: Tensor) -> Tensor:
        """Which labels of a batch are there, ``(N, ...)`` bool."""

    @abstractmethod
    def flat(self, labels: Tensor) -> Tensor:
        """The labels of a batch that are there, one row for each."""

    @abstractmethod
    def truth(self, prediction: Predicted, labels: Tensor, name: str) -> Tensor:
        """The labels of all inputs of a prediction, none of them missing."""

    @abstractmethod
    def score(self, prediction: Predicted, labels: Tensor) -> dict[str, float]:
        """Score a prediction on labels, by name."""

    @abstractmethod
    def columns(self, prediction: Predicted) -> dict[str, Tensor]:
        """The columns of a table of a prediction but for its uncertainties, ``(N, ...)`` each."""

    def sureness(self, prediction: Predicted, tolerance: float | None, *, ranks: bool = False) -> Tensor:
        """The probability that an answer is right, as :meth:`cgp.Prediction.abstain` has it."""
        raise ValueError(f"confidence: expected a prediction of classes, got task={self.kind!r}")

    def right(self, prediction: Predicted, labels: Tensor, tolerance: float | None) -> Tensor:
        """Which answers are right."""
        raise ValueError(f"confidence: expected a prediction of classes, got task={self.kind!r}")


def as_task(task: str | Task | None, *, labelled: bool = False, **options: Any) -> Task:
    """A task by its name, or the task itself.

    Args:
        task: either; None is embeddings.
        labelled: whether the task has to have labels.
        **options: arguments of a task that is given by its name; None is its default.

    Returns:
        The task.

    Raises:
        ValueError: if there is no such task, or a task has options beside it.
    """
    given = {name: value for name, value in options.items() if value is not None}
    kind = type(task) if isinstance(task, Task) else Task.known.get(task)
    if kind is None or (labelled and not kind.parameter):
        names = tuple(name for name, each in Task.known.items() if each.parameter or not labelled)
        raise ValueError(f"task: expected one of {names}, got {task!r}{meant([task], filter(None, names))}")
    if not isinstance(task, Task):
        return kind(**given | ({} if "output" not in given else {"output": _output(kind, given["output"])}))
    if given:
        raise ValueError(f"{next(iter(given))}: expected None beside a task, which has its own, got another")
    return task


def _output(kind: type[Task], output: Any) -> Callable[[Any], Tensor]:
    """What takes logits or outputs: a function, or that of probabilities by their name."""
    if callable(output):
        return output
    if output != "probabilities" or kind.kind != "classification":
        wanted = "a function, or 'probabilities'" if kind.kind == "classification" else f"a function with {kind.name!r}"
        raise ValueError(f"output: expected {wanted}, got {output!r}")
    return logits_of_probabilities


def _are_batches(data: Any) -> bool:
    """Whether a list holds batches, rather than examples that are dicts with one label."""
    if not isinstance(data, list):
        return False
    first = data[0] if data and isinstance(data[0], Mapping) else {}
    return not any(label_tensor(first[name]).dim() == 0 for name in ("labels", "label") if name in first)
