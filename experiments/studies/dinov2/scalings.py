"""Other calibrations of logits beside the temperature: more parameters, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

from cgp.comparisons import Difference, aligned
from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks.metrics import LabelledScores
from experiments.data import Batches, Examples
from experiments.studies.dinov2.fitting import fit, fitted
from experiments.studies.dinov2.states import splits_of_states

__all__ = ["scalings"]

Array = NDArray[Any]

_BATCH = 250


def scalings(
    *, data: Path, out: Path = Path("runs/dinov2"), seed: int = 0, sizes: tuple[int, ...] = (400, 2000)
) -> None:
    """Fit each calibration to validation labels, and print its scores on the test images.

    Args:
        data: folder with cifar10/, cifar100/, tiny_imagenet/ and textures/.
        out: folder to write.
        seed: seed of the training.
        sizes: numbers of validation labels.
    """
    splits = splits_of_states(data, out)
    model = fitted(fit(data=data, out=out, seed=seed), splits)
    (known, labels), (new, truth) = (_logits(model, part) for part in (splits.validation, splits.test))
    for size in sizes:
        print(f"{size} labels\n\n{compared(known[:size], labels[:size], new, truth)}\n")


def compared(known: Tensor, labels: Tensor, new: Tensor, truth: Tensor) -> str:
    """A table of scores on new logits ``(M, C)`` of what was fitted to known ones ``(N, C)``."""
    scores = {name: LabelledScores.of(fit(known, labels)(new).numpy(), truth.numpy()) for name, fit in _METHODS.items()}
    columns, plain = ("nll", "brier", "ece", "accuracy"), scores["temperature"].losses
    rows = [["method", *columns, "NLL against the temperature"]]
    for name, scored in scores.items():
        numbers = scored.summary()
        change = "" if name == "temperature" else str(Difference.of(scored.losses - plain))
        rows.append([name, *(f"{numbers[column]:.4f}" for column in columns), change])
    return "\n".join(aligned(rows))


@torch.no_grad()
def _logits(model: nn.Module, part: Examples) -> tuple[Tensor, Tensor]:
    return torch.cat([model(inputs) for inputs in Batches(part, _BATCH)]).double(), part.known_labels


Calibrated = Callable[[Tensor], Tensor]
"""Probabilities of logits, both ``(M, C)``."""


def _temperature(logits: Tensor, labels: Tensor) -> Calibrated:
    temperature = fit_temperature(logits[None], labels)
    return lambda new: (new / temperature).softmax(-1)


def _vector(logits: Tensor, labels: Tensor, *, offset: bool) -> Calibrated:
    """A factor, and if asked an offset, for the logits of each class."""
    classes = logits.shape[-1]
    weights = torch.stack([torch.ones(classes), torch.zeros(classes)]).double().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def scaled(values: Tensor) -> Tensor:
        return values * weights[0] + (weights[1] if offset else 0.0)

    def loss() -> Any:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(scaled(logits), labels)
        value.backward()
        return value

    optimizer.step(loss)
    return lambda new: scaled(new).detach().softmax(-1)


def _isotonic(logits: Tensor, labels: Tensor) -> Calibrated:
    """A monotone function of each class's probability, between 1 / (N + 2) and its complement, renormalised."""
    least = 1.0 / (len(labels) + 2)
    columns = logits.softmax(-1).numpy()
    fits = [
        IsotonicRegression(y_min=least, y_max=1.0 - least, out_of_bounds="clip").fit(column, labels.numpy() == c)
        for c, column in enumerate(columns.T)
    ]

    def apply(new: Tensor) -> Tensor:
        values = [fit.predict(column) for fit, column in zip(fits, new.softmax(-1).numpy().T, strict=True)]
        probabilities = torch.from_numpy(np.stack(values, -1))
        return probabilities / probabilities.sum(-1, keepdim=True)

    return apply


_METHODS: dict[str, Callable[[Tensor, Tensor], Calibrated]] = {
    "as trained": lambda logits, labels: lambda new: new.softmax(-1),
    "temperature": _temperature,
    "factor per class": lambda logits, labels: _vector(logits, labels, offset=False),
    "vector scaling": lambda logits, labels: _vector(logits, labels, offset=True),
    "isotonic, one against the rest": _isotonic,
}
