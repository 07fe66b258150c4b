"""Tasks with values: a regression with a variance, and embeddings, of which only the draws' variance is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cgp.comparisons import gaussian_scores
from cgp.networks.model.inputs import logits_of
from cgp.networks.model.labels import check_outputs, values_for

from .task import Predicted, Task

__all__ = ["Embeddings", "Regression", "check_variance"]

_CENTRAL_90 = 1.6448536269514722  # standard deviations


def embedding_of(output: Any) -> Tensor:
    """The embedding in what a model returns."""
    for name in ("pooler_output", "last_hidden_state"):
        if isinstance(embedding := getattr(output, name, None), Tensor):
            return embedding
    return logits_of(output)


class _Values(Task):
    """A task without classes."""

    what = "output"

    def present(self, labels: Tensor) -> Tensor:
        """Every row has its values."""
        return torch.ones(len(labels), dtype=torch.bool, device=labels.device)

    def flat(self, labels: Tensor) -> Tensor:
        """Values ``(N, C)``, float64."""
        return (labels[:, None] if labels.dim() == 1 else labels).double()

    def check(self, outputs: Tensor) -> None:
        """Raise unless there is an output for each input."""
        check_outputs(outputs)

    def columns(self, prediction: Predicted) -> dict[str, Tensor]:
        """Each output."""
        return {f"{self.what} {i}": values for i, values in enumerate(prediction.mean.unbind(-1))}


@dataclass(frozen=True)
class Regression(_Values):
    """Values ``(N, C)``, with a normal distribution around what the network returns.

    Args:
        output: takes outputs ``(N, C)`` from what the network returns.
        features: representation ``(N, d)`` of inputs.
        noise: variance of the values: a number or ``(C,)`` for :func:`cgp.predict`, or what takes it, ``(N, C)``, from
            what the network returns, such as ``lambda out: out[1]``. None is the one that was fitted, or 0.
    """

    noise: Callable[[Any], Tensor] | Tensor | float | None = None

    name, kind, parameter, what = "regression", "regression", "scale", "mean"
    wanted, dims, examples = "(N, C), one row of values for every input", 3, "rows of values"

    @property
    def has_distribution(self) -> bool:
        """Whether the network returns a variance."""
        return callable(self.noise)

    @property
    def options(self) -> str:
        """The options of :func:`cgp.predict` that it needs, as code; a calibrated model knows that it regresses."""
        output = "" if self.output is logits_of else ", output=..."
        return output + (", noise=..." if self.has_distribution else "")

    def rows(self, returned: Any) -> Tensor:
        """Values and their variances, 1 of a network that returns none, ``(2, N, C)``."""
        mean = self.output(returned)
        if mean.dim() != 2:
            raise ValueError(f"model: expected outputs (N, C), got shape {tuple(mean.shape)}")
        noise = check_variance(self.noise(returned), mean) if callable(self.noise) else torch.ones_like(mean)
        return torch.stack([mean, noise])

    def labels(self, labels: Tensor | None, shape: tuple[int, ...] | None = None, **options: Any) -> Tensor:
        """Values, which are floating-point numbers."""
        name = options.get("name", "labels")
        if labels is None:
            raise ValueError(f"{name}: expected batches (inputs, values) or dicts with 'labels', got some without")
        if not labels.is_floating_point():
            raise ValueError(
                f"{name}: expected values that are floating-point numbers, got {labels.dtype} (pass values.float())"
            )
        return labels

    def check_rows(self, rows: Tensor, labels: Tensor | None, *, name: str, first: int) -> None:
        """Raise unless values are as many as outputs, and both finite."""
        values_for(rows[0], [labels], name, first=first)

    def check_training(self, labels: Tensor, shape: tuple[int, ...]) -> None:
        """Raise for values that are not as many as outputs."""
        if self.flat(labels).shape[1:] != shape[-1:]:
            raise ValueError(
                f"train: expected values of as many outputs as the model has, {shape[-1]}, got {tuple(labels.shape)}"
            )

    def truth(self, prediction: Predicted, labels: Tensor, name: str) -> Tensor:
        """Values in the shape of the outputs, finite as these."""
        return values_for(prediction.mean, [labels], name)

    def score(self, prediction: Predicted, labels: Tensor) -> dict[str, float]:
        """The "rmse" and, where there is a variance, "nll" and "crps" per value, and "coverage90"."""
        mean, total = prediction.mean, prediction.total
        values = labels[:, None] if labels.shape == mean.shape[:1] and mean.shape[1:] == (1,) else labels
        if values.shape != mean.shape:
            raise ValueError(f"labels: expected shape {tuple(mean.shape)}, got {tuple(values.shape)}")
        errors = values - mean
        scores = {"rmse": float(errors.square().mean().sqrt())}
        if total is None or not bool((total > 0).all()):
            return scores
        e, sd = (values.detach().cpu().double().numpy() for values in (errors, total.sqrt()))
        nll, crps = gaussian_scores(e, sd)
        inside = abs(e) <= _CENTRAL_90 * sd
        return scores | {"nll": float(nll.mean()), "crps": float(crps.mean()), "coverage90": float(inside.mean())}

    def sureness(self, prediction: Predicted, tolerance: float | None, *, ranks: bool = False) -> Tensor:
        """The probability of an error below the tolerance; by ``ranks`` only in its order."""
        total = prediction.total
        known = prediction.mean.isfinite() if total is None else prediction.mean.isfinite() & total.isfinite()
        if prediction.mean.dim() != 2 or total is None or not bool((total[known] > 0).all()):
            raise ValueError(
                "abstain: expected outputs (N, C) with a variance above 0, got none "
                "(cgp.calibrate(model, data, task='regression') fits one)"
            )
        if ranks and bool((total == total[:1]).all()):
            raise ValueError(
                "coverage: expected variances that order the answers, got the same one everywhere (those of "
                "method='scale'; cgp.assess compares others)"
            )
        if not ranks and (tolerance is None or not tolerance > 0.0):
            raise ValueError(
                "tolerance: expected the largest error that counts as right, above 0 and in the units of the values, "
                f"got {tolerance!r}"
            )
        sure = -total if tolerance is None else torch.special.erf(tolerance / (2.0 * total).sqrt())
        return sure.masked_fill(~known, -torch.inf)

    def right(self, prediction: Predicted, labels: Tensor, tolerance: float | None) -> Tensor:
        """Which errors are at most the tolerance."""
        return (labels.double() - prediction.mean.double()).abs() <= float(tolerance or 0.0)


@dataclass(frozen=True)
class Embeddings(_Values):
    """Vectors ``(N, ..., C)`` without labels; draws have a variance.

    Args:
        output: takes them from what the network returns: by default a tensor, ``.pooler_output``,
            ``.last_hidden_state`` or ``.logits``.
        features: without a use.
    """

    output: Callable[[Any], Tensor] = embedding_of

    name, kind = None, None

    def labels(self, labels: Tensor | None, shape: tuple[int, ...] | None = None, **options: Any) -> Tensor:
        """Refuse: embeddings have no labels."""
        raise ValueError("task: expected one with labels, got embeddings")

    def truth(self, prediction: Predicted, labels: Tensor, name: str) -> Tensor:
        """Refuse: embeddings have no labels."""
        raise ValueError("task: expected one with labels, got embeddings")

    def score(self, prediction: Predicted, labels: Tensor) -> dict[str, float]:
        """Refuse: embeddings have no scores."""
        raise ValueError("score: expected a prediction of classes, got task=None")


def check_variance(noise: Tensor, mean: Tensor) -> Tensor:
    """A variance that a network returned, positive and in the shape of its outputs."""
    if noise.shape != mean.shape or not bool((noise > 0).all()):
        least = float(noise.min()) if noise.numel() else float("nan")
        raise ValueError(
            f"noise: expected positive variances of shape {tuple(mean.shape)}, "
            f"got shape {tuple(noise.shape)}, at least {least:.3g}"
        )
    return noise
