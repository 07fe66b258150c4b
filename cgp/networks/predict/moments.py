"""Sums over the draws of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cgp.networks.tasks.entropies import decomposed, entropy
from cgp.networks.tasks.regression import check_variance
from cgp.networks.tasks.task import Task

from .draws import DrawVariance
from .readout import ReadoutPrediction

__all__ = ["Moments", "checked_labels"]


@dataclass
class Moments:
    """Sums over the draws of one batch, so that draws of large outputs need not be kept."""

    task: Task
    temperature: float
    keep_draws: bool
    keep_variance: bool
    labels: Tensor | None
    scale: Tensor = field(default_factory=lambda: torch.zeros(()))  # of a regression's noise variance
    noise_of: Callable[[Any], Tensor] | None = None  # takes that variance from what the model returns
    noise: Tensor = field(default_factory=lambda: torch.zeros(()))
    function_variance: Tensor | None = None  # of a read-out
    variances: dict[str, Tensor] = field(default_factory=dict)
    ood: dict[str, Tensor] = field(default_factory=dict)
    is_stochastic: bool = False
    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    variance: DrawVariance = field(default_factory=DrawVariance)  # of the outputs
    probabilities: Tensor = field(default_factory=lambda: torch.zeros(()))
    entropy: Tensor = field(default_factory=lambda: torch.zeros(()))
    kept: list[Tensor] = field(default_factory=list)

    def add(self, returned: Any) -> None:
        """Add the output of the model in one draw."""
        outputs = self.task.outputs(returned)
        if self.count == 0:
            self.task.check(outputs)
            checked_labels(self.task, self.labels, tuple(outputs.shape))
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        outputs = outputs if self.temperature == 1.0 else outputs / self.temperature
        self.count += 1
        self.mean = self.mean + (outputs - self.mean) / self.count
        if self.task.has_classes:
            p = outputs.sigmoid() if self.task.is_binary else outputs.softmax(-1)
            self.probabilities = self.probabilities + p
            self.entropy = self.entropy + entropy(p, binary=self.task.is_binary)
        else:
            p = outputs
            self.variance.add(outputs)
            self._add_noise(returned, outputs)
        if self.keep_draws:
            self.kept.append(p)

    def set_read(self, read: ReadoutPrediction, scale: Tensor) -> None:
        """Set the moments to a read-out's prediction of a regression, without draws."""
        noise = (read.noise * scale).expand_as(read.mean)
        self.mean, self.function_variance, self.noise = (part.float() for part in (read.mean, read.variance, noise))
        self.count = 1

    def results(self) -> dict[str, Tensor | None]:
        """Attributes of :class:`Prediction` for this batch, by name."""
        several, parts = self.count > 1, dict[str, Tensor | None](mean=self.mean)
        parts["draws"] = torch.stack(self.kept) if self.kept else None
        if self.task.has_classes:
            p, binary = self.probabilities / self.count, self.task.is_binary
            total, aleatoric, epistemic = decomposed(p, self.entropy / self.count, binary=binary)
            parts |= {"probabilities": p, "total": total}
            return parts | {"aleatoric": aleatoric if several else None, "epistemic": epistemic if several else None}
        spread = self.variance.value() if several else self.function_variance
        if self.task.kind is None:
            return parts | {"epistemic": spread}
        aleatoric = self.noise / self.count if several and self.noise_of is not None else self.noise
        total = aleatoric if spread is None else aleatoric + spread
        return parts | {"aleatoric": aleatoric, "total": total, "epistemic": spread}

    def _add_noise(self, returned: Any, outputs: Tensor) -> None:
        """The noise variance: given or, of a network that returns one, averaged over the draws."""
        if self.noise_of is None:
            self.noise = self.scale.to(outputs).expand_as(outputs)
            return
        noise = check_variance(self.noise_of(returned), outputs)
        self.noise = self.noise + self.scale.to(outputs) * noise


def checked_labels(task: Task, labels: Tensor | None, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """Class indices given with the inputs, or None; other labels as they are."""
    if labels is None or task.kind != "classification":
        return labels
    try:
        return task.labels(labels, shape)
    except ValueError as error:
        raise ValueError(f"{error}; or leave out the labels: pass the inputs by themselves") from error
