"""Sums over the draws of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cgp.networks.model.inputs import logits_of
from cgp.networks.tasks.entropies import decomposed, entropy
from cgp.networks.tasks.labels import check_logits, check_not_sigmoid, class_indices

from .draws import DrawVariance
from .readout import ReadoutPrediction

__all__ = ["Moments", "checked_labels"]


@dataclass
class Moments:
    """Sums over the draws of one batch, so that draws of large outputs need not be kept."""

    task: str | None
    temperature: float
    take: Callable[[Any], Tensor]
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
        outputs = self.take(returned)
        if self.count == 0:
            self._check(outputs)
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        outputs = outputs if self.temperature == 1.0 else outputs / self.temperature
        self.count += 1
        self.mean = self.mean + (outputs - self.mean) / self.count
        if self.task in ("classification", "multilabel"):
            p = outputs.softmax(-1) if self.task == "classification" else outputs.sigmoid()
            self.probabilities = self.probabilities + p
            self.entropy = self.entropy + entropy(p, binary=self.task == "multilabel")
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
        if self.task in ("classification", "multilabel"):
            p = self.probabilities / self.count
            total, aleatoric, epistemic = decomposed(p, self.entropy / self.count, binary=self.task == "multilabel")
            parts |= {"probabilities": p, "total": total}
            return parts | {"aleatoric": aleatoric if several else None, "epistemic": epistemic if several else None}
        spread = self.variance.value() if several else self.function_variance
        if self.task is None:
            return parts | {"epistemic": spread}
        aleatoric = self.noise / self.count if several and self.noise_of is not None else self.noise
        total = aleatoric if spread is None else aleatoric + spread
        return parts | {"aleatoric": aleatoric, "total": total, "epistemic": spread}

    def _add_noise(self, returned: Any, outputs: Tensor) -> None:
        """The noise variance: given or, of a network that returns one, averaged over the draws."""
        if self.noise_of is None:
            self.noise = self.scale.to(outputs).expand_as(outputs)
            return
        noise = self.noise_of(returned)
        if noise.shape != outputs.shape or not bool((noise > 0).all()):
            least = float(noise.min()) if noise.numel() else float("nan")
            raise ValueError(
                f"noise: expected positive variances of shape {tuple(outputs.shape)}, "
                f"got shape {tuple(noise.shape)}, at least {least:.3g}"
            )
        self.noise = self.noise + self.scale.to(outputs) * noise

    def _check(self, outputs: Tensor) -> None:
        if self.task == "classification":
            check_logits(outputs, classes_last=self.take is not logits_of)
            checked_labels(self.labels, tuple(outputs.shape))
        elif outputs.dim() < 2 or not outputs.shape[-1]:
            what = "logits" if self.task == "multilabel" else "outputs"
            advice = " (pass output=lambda out: out[:, None])" if outputs.dim() == 1 else ""
            raise ValueError(f"model: expected {what} (N, ..., C >= 1), got shape {tuple(outputs.shape)}{advice}")
        elif self.task == "multilabel" and self.take is logits_of:
            check_not_sigmoid(outputs)


def checked_labels(labels: Tensor | None, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """Class indices given with the inputs, or None."""
    try:
        return None if labels is None else class_indices(labels, shape)
    except ValueError as error:
        raise ValueError(f"{error}; or leave out the labels: pass the inputs by themselves") from error
