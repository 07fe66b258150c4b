"""What methods and scores learn of a network's training data."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import nn

from cgp.networks.tasks import Task

from .readout import GPReadout
from .settings import as_assessed

__all__ = ["Training"]


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
