"""A way of predicting with a network: what calibration prepares, a report compares, and a folder keeps by its name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import nn

from cgp.networks.model.named import Named
from cgp.networks.tasks import Task

from .readout import GPReadout, ReadoutPrediction
from .settings import as_assessed

__all__ = ["Method", "Training"]


class Training:
    """What a network was trained on: its representation and the labels.

    Args:
        model: the network.
        task: takes the representation.
        data: labelled batches.

    Attributes:
        task: the task.
        features: ``(N, d)``, float64.
        labels: ``(N,)`` int, or values ``(N, C)`` in float64.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, task: Task, data: Any) -> None:
        plain, self.task = as_assessed(model), task
        seen = list(task.read(data, model, "train", every=True))
        self.features = torch.cat([task.features(plain, batch.inputs).double().cpu() for batch in seen])
        labels = torch.cat([batch.labels.cpu() for batch in seen if batch.labels is not None])
        self.labels = labels.double() if labels.is_floating_point() else labels

    @cached_property
    def process(self) -> GPReadout:
        """The Gaussian process from the representation to the labels."""
        return GPReadout(self.features, self.labels, task="classification" if self.task.has_classes else "regression")


@dataclass
class Method(Named, argument="method"):
    """A way of predicting with a network that is given; a subclass with a name is known by it.

    A method of your own says how a copy of the network is changed (:meth:`apply`) and changed back (:meth:`undo`).
    :func:`cgp.calibrate` then fits its temperature or scale, :func:`cgp.assess` compares it, and
    :func:`cgp.save_pretrained` keeps what :meth:`state` returns.

    Args:
        scaled: whether the temperature or scale is fitted; otherwise it stays what it was.

    Attributes:
        label: name in tables.
        words: what it is, in a sentence.
        draws: whether predictions by it are averages of draws.
        needs_train: whether :meth:`fit` needs labelled training data.
    """

    scaled: bool = True

    label: ClassVar[str] = ""
    words: ClassVar[str] = ""
    draws: ClassVar[bool] = False
    needs_train: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            cls.label, cls.words = cls.label or cls.name, cls.words or cls.name

    @property
    def call(self) -> str:
        """The argument ``method`` of :func:`cgp.calibrate` that applies it, as code."""
        return repr(self.name)

    def title(self, task: Task) -> str:
        """Its name in the tables of a report."""
        return f"{self.label} + {task.parameter}" if self.scaled else self.label

    def advice(self, task: Task) -> str:
        """What a report says of it."""
        what = f"{self.words} with a {task.parameter}" if self.scaled else self.words
        return f"{what} (calibrate with method={self.call})"

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """Why the method cannot be used, as an error message, or None."""
        return None

    def fit(self, training: Training) -> Self:
        """The method fitted to what the network was trained on, if it needs that."""
        return self

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of a network, or one that shares its tensors, changed so that it predicts by the method.

        Args:
            model: a copy whose modules may be changed, but none of whose tensors.

        Returns:
            The changed copy.
        """
        return model

    def undo(self, model: nn.Module) -> None:
        """Change a copy that :meth:`apply` changed back, in place."""

    def read(self, model: nn.Module, inputs: Any) -> ReadoutPrediction | None:
        """The mean and variance of values in place of what the network returns, of a regression; None is the latter."""
        return None
