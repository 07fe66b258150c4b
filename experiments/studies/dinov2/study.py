"""Which uncertainties of the fine-tuned network help, other calibrations beside the temperature, and maps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_images
from sklearn.isotonic import IsotonicRegression
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

import cgp
from cgp.comparisons import Difference, aligned
from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.model.diagnostics import pooled_features
from cgp.networks.tasks.metrics import LabelledScores, auroc
from cgp.plotting import variance_maps
from experiments.atomic_files import write_atomically
from experiments.data import Batches, Examples
from experiments.evaluation.metrics import Array
from experiments.evaluation.paired import auroc_difference
from experiments.grids import markdown_table
from experiments.studies.dinov2.network import Upper, fit, fitted, host, pixels, sets_of_states, splits_of_states

__all__ = ["ClassToken", "assess", "compared", "maps", "scalings"]


_BATCH = 250
_NEIGHBOUR = 50
_SIDE = 448  # pixels: 32 x 32 patches
_LAYERS = (0, 5, 8, 11)


def assess(*, data: Path, out: Path = Path("runs/dinov2"), seed: int = 0, images: int = 1000) -> None:
    """Fine-tune, unless that was done, and print the assessment on test images, corrupted and other ones.

    Args:
        data: folder with cifar10/, cifar100/, tiny_imagenet/ and textures/.
        out: folder to write.
        seed: seed of the training.
        images: number of test images.
    """
    splits, others = splits_of_states(data, out), sets_of_states(data, out)
    model = fitted(fit(data=data, out=out, seed=seed), splits)
    test = splits.test.chosen(torch.arange(images))
    report = cgp.assess(
        model,
        _labelled(test),
        train=_labelled(splits.train),
        ood={name: list(Batches(part, _BATCH)) for name, part in others.items()},
    )
    print(report)
    known, confidence = _neighbours(model, splits.train, test)
    rows = []
    for name, part in others.items():
        far, doubt = _neighbours(model, splits.train, part)
        gain = auroc_difference({0: (known, far)}, {0: (confidence, doubt)})
        rows.append([name, f"{auroc(known, far):.3f}", gain])
    header = ["set", f"AUROC of the {_NEIGHBOUR}th neighbour", "− that of 1 - confidence"]
    print(f"\n{markdown_table(header, rows)}", end="")


def _labelled(part: Examples) -> list[tuple[Any, Tensor]]:
    return list(zip(Batches(part, _BATCH), part.known_labels.split(_BATCH), strict=True))


@torch.no_grad()
def _neighbours(model: Upper, train: Examples, part: Examples) -> tuple[Array, Array]:
    """Distance to the neighbour among the training images, in directions of features; and one minus the confidence."""
    features = [_features(model, examples) for examples in (train, part)]
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(features[0])
    doubt = 1 - torch.cat([model(inputs).softmax(-1).amax(-1) for inputs in Batches(part, _BATCH)])
    return neighbours.kneighbors(features[1])[0][:, -1], doubt.numpy()


def _features(model: Upper, part: Examples) -> Array:
    features = torch.cat([pooled_features(model, inputs) for inputs in Batches(part, _BATCH)]).numpy()
    return features / np.linalg.norm(features, axis=1, keepdims=True)


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


class ClassToken(nn.Module):
    """The host, whose output is the class token's."""

    def __init__(self, host: Any) -> None:
        super().__init__()
        self.host = host

    def forward(self, images: Tensor) -> Tensor:
        return self.host(images).pooler_output


def maps(*, out: Path = Path("docs/images/dinov2-maps.png")) -> None:
    """Draw the variance of four layers over two photographs, whole, half covered and with a patch of noise.

    Args:
        out: the picture.
    """
    shown, names = _photographs()
    model = cgp.convert(ClassToken(host()), layers="all")
    prediction = cgp.predict(model, pixels(shown, _SIDE), 1, batch_size=1)
    maps = torch.stack([_relative(prediction.patch_variance(layer).mean(1)) for layer in _LAYERS], 1)
    figure = Figure(figsize=(7.0, 8.4), layout="constrained")
    look: Any = {"columns": [f"layer {layer + 1}" for layer in _LAYERS], "relative": False}
    parts = figure.subfigures(2, 1, squeeze=False)[:, 0]
    for part, rows in zip(parts, (slice(3), slice(3, 6)), strict=True):  # of a photograph each
        label = "Variance / its median on the whole photograph"
        axes = variance_maps(shown[rows], maps[rows], rows=names[rows], label=label, figure=part, **look)
        axes[0, 1].images[0].set_clim(maps.min(), maps.max())
    write_atomically(out, lambda aside: figure.savefig(aside, format="png", dpi=150))


def _relative(variance: Tensor) -> Tensor:
    """Each photograph and its changed versions over the median of the unchanged one, which comes first of three."""
    return variance / variance[::3].flatten(1).median(1).values.repeat_interleave(3)[:, None, None]


def _photographs() -> tuple[Tensor, list[str]]:
    generator = torch.Generator().manual_seed(0)
    shown = []
    for image in load_sample_images().images:
        whole = torch.from_numpy(image.copy()).permute(2, 0, 1).float()[:, :427, 100:527] / 255
        covered, noisy = whole.clone(), whole.clone()
        covered[:, :, 214:] = 0.5
        noisy[:, 150:300, 150:300] = torch.rand(3, 150, 150, generator=generator)
        shown += [whole, covered, noisy]
    return torch.stack(shown), ["photograph", "half covered", "a square of noise"] * 2
