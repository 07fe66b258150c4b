"""The pictures of the report, each with one sentence that says what it shows."""

import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cgp.plotting import (
    WIDE,
    example_gallery,
    reliability_diagram,
    shift_curves,
    style,
    uncertainty_histograms,
    variance_maps,
)
from experiments.data import DIGITS_CORRUPTIONS, OOD_KINDS, digits_splits
from experiments.evaluation import Uncertainty, mean_probabilities, uncertainty
from experiments.reports.results import Results, Row, statistics
from experiments.runs.demo_runs import Run
from experiments.runs.prediction import Predictions, load_predictions, ood_name

__all__ = ["Picture", "pictures"]

_GALLERY = 8
_CSS_PIXELS_AN_INCH = 110


class Picture(NamedTuple):
    """A picture of the report.

    Attributes:
        name: of its file.
        title: of its section.
        sentence: what it shows.
        png: the file.
        width: in CSS pixels, so that all pictures have letters of one size.
    """

    name: str
    title: str
    sentence: str
    png: bytes
    width: int


class _Material(NamedTuple):
    """What the pictures are drawn from: runs by method, the output folder, the numbers."""

    runs: dict[str, list[Run]]
    root: Path
    results: Results

    def label(self, method: str) -> str:
        return self.runs[method][0].method.label

    def load(self, run: Run, name: str) -> Predictions:
        return load_predictions(run.folder(self.root) / "predictions" / f"{name}.npz")

    def drawn(self) -> list[str]:
        """Methods whose predictions are drawn, hence have epistemic uncertainty."""
        return [name for name, runs in self.runs.items() if len(self.load(runs[0], "test").logits) > 1]

    def validation_nll(self, method: str) -> float:
        return float(np.mean([row["validation_nll"] for row in self.results.runs if row["method"] == method]))

    def mean(self, method: str, column: str) -> float:
        return statistics(self.results.runs, method)[column].mean


def pictures(runs: Sequence[Run], results: Results, root: Path) -> Iterator[Picture]:
    """Draw every picture from saved predictions.

    Args:
        runs: complete runs.
        results: their numbers.
        root: the application's output folder.
    """
    names = dict.fromkeys(run.name for run in runs)
    material = _Material({name: [run for run in runs if run.name == name] for name in names}, root, results)
    yield _drawn("reliability", "Calibration on the test images", _reliability, material)
    yield _drawn("shift", "Accuracy and confidence under shift", _shift, material)
    yield _drawn("total-uncertainty", "Total uncertainty, familiar and ood", _total, material)
    if material.drawn():
        yield _drawn("epistemic-uncertainty", "Epistemic uncertainty, familiar and ood", _epistemic, material)
    if _with_variance(material):
        yield _drawn("patch-variance", "Where the Gaussian processes are uncertain", _variance, material)
    yield _drawn("examples", "Most and least certain examples", _examples, material)


def _drawn(name: str, title: str, draw: Callable[[_Material], tuple[Figure, str]], material: _Material) -> Picture:
    """Draw, render, and close the figure."""
    with style():
        figure, sentence = draw(material)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", bbox_inches="tight", pad_inches=0.05)
        plt.close(figure)
    return Picture(name, title, sentence, buffer.getvalue(), round(_CSS_PIXELS_AN_INCH * figure.get_figwidth()))


def _reliability(material: _Material) -> tuple[Figure, str]:
    """Draw one reliability diagram a method, all seeds together."""
    figure, axes = _panels(len(material.runs), 2.9)
    for ax, (method, runs) in zip(axes, material.runs.items(), strict=True):
        confidence, correct = _confidence_and_correct([material.load(run, "test") for run in runs])
        reliability_diagram(confidence, correct, ax=ax)
        ax.set(title=material.label(method), ylabel="Accuracy" if _is_leftmost(ax) else "")
    _share_legend(figure, axes)
    ranked = sorted(material.runs, key=lambda method: material.mean(method, "ece"))
    parts = ", ".join(f"{material.label(method)} {100 * material.mean(method, 'ece'):.1f} %" for method in ranked)
    return (
        figure,
        f"Expected calibration error, smallest first: {parts} (mean over seeds; the diagrams pool the seeds).",
    )


def _shift(material: _Material) -> tuple[Figure, str]:
    """Draw accuracy and confidence against strength, a panel a kind and one for their mean."""
    rows = material.results.shifts
    strengths = sorted({row["strength"] for row in rows})
    figure, axes = plt.subplots(2, 3, figsize=(1.25 * WIDE, 5.2), layout="constrained", sharey=True)
    for ax, kind in zip(axes.flat, [*DIGITS_CORRUPTIONS, None], strict=True):
        accuracy = {material.label(m): _curves(rows, m, kind, strengths, "accuracy") for m in material.runs}
        confidence = {material.label(m): _curves(rows, m, kind, strengths, "confidence") for m in material.runs}
        shift_curves(strengths, accuracy, confidence=confidence, ax=ax)
        ax.set_title(kind or "mean of the five")
        ax.set(xlabel="Strength of shift" if ax in axes[-1] else "", ylabel="Accuracy" if ax in axes[:, 0] else "")
    _share_legend(figure, list(axes.flat))
    gaps = {method: _overconfidence(rows, method, strengths[-1]) for method in material.runs}
    ranked = sorted(gaps, key=lambda method: abs(gaps[method]))
    parts = ", ".join(f"{material.label(method)} {_signed(100 * gaps[method], 1)}" for method in ranked)
    return figure, f"Confidence minus accuracy at the greatest strength, in points, closest to zero first: {parts}."


def _share_legend(figure: Figure, axes: list[Axes]) -> None:
    """Put one legend beneath all panels in place of one in each."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
        ax.get_legend().remove()
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries))


def _curves(rows: list[Row], method: str, kind: str | None, strengths: list[int], column: str) -> NDArray[np.float64]:
    """Return (seeds, strengths) of one kind, or of the mean over kinds."""
    chosen = [row for row in rows if row["method"] == method and (kind is None or row["kind"] == kind)]
    seeds = sorted({row["seed"] for row in chosen})
    return np.array(
        [
            [
                np.mean([row[column] for row in chosen if row["seed"] == seed and row["strength"] == strength])
                for strength in strengths
            ]
            for seed in seeds
        ]
    )


def _overconfidence(rows: list[Row], method: str, strength: int) -> float:
    """Return mean confidence minus accuracy at one strength."""
    chosen = [row for row in rows if row["method"] == method and row["strength"] == strength]
    return float(np.mean([row["confidence"] - row["accuracy"] for row in chosen]))


def _total(material: _Material) -> tuple[Figure, str]:
    """Draw histograms of total uncertainty for every method."""
    figure = _histograms(material, list(material.runs), "total", "Total uncertainty (nats)")
    return figure, _separation_sentence(material, list(material.runs), "ood_total", "total")


def _epistemic(material: _Material) -> tuple[Figure, str]:
    """Draw histograms of epistemic uncertainty for the methods that have it."""
    figure = _histograms(material, material.drawn(), "epistemic", "Epistemic uncertainty (nats)")
    return figure, _separation_sentence(material, material.drawn(), "ood_epistemic", "epistemic")


def _histograms(material: _Material, methods: list[str], part: str, xlabel: str) -> Figure:
    """Draw one panel a method: test images, corrupted and OOD ones, all seeds together."""
    figure, axes = _panels(len(methods), 2.1, sharey=True)
    for ax, method in zip(axes, methods, strict=True):
        runs = material.runs[method]
        test = [getattr(_uncertainty(material, run, "test"), part) for run in runs]
        strange = [getattr(_uncertainty(material, run, ood_name(kind)), part) for run in runs for kind in OOD_KINDS]
        groups = {"test images": np.concatenate(test), "ood": np.concatenate(strange)}
        uncertainty_histograms(groups, xlabel=xlabel, ax=ax)
        ax.set_title(material.label(method))
        ax.set_ylabel(ax.get_ylabel() if _is_leftmost(ax) else "")
        ax.locator_params(axis="x", nbins=4)
    _share_legend(figure, axes)
    return figure


def _separation_sentence(material: _Material, methods: list[str], column: str, word: str) -> str:
    """Say how well an uncertainty tells OOD inputs apart."""
    ranked = sorted(methods, key=lambda method: -material.mean(method, column))
    parts = ", ".join(f"{material.label(method)} {100 * material.mean(method, column):.1f} %" for method in ranked)
    return f"The {word} uncertainty tells OOD inputs from test images with an AUROC of: {parts}."


def _with_variance(material: _Material) -> list[str]:
    """Return the methods with a saved variance of patches."""
    return [method for method, runs in material.runs.items() if _variance_file(material, runs[0]).exists()]


def _variance_file(material: _Material, run: Run) -> Path:
    """Return where a run keeps the variance of patches."""
    return run.folder(material.root) / "predictions" / "patch-variance.npz"


def _variance(material: _Material) -> tuple[Figure, str]:
    """Draw the variance of each patch in each layer of each method over a few images, of the first seed."""
    grids, columns, parts = [], [], []
    for method in _with_variance(material):
        run = material.runs[method][0]
        with np.load(_variance_file(material, run)) as arrays:
            variance, images = arrays["variance"], _images_of(run, arrays["ids"])
        side = round(variance.shape[-1] ** 0.5)
        largest = variance.max((1, 2), keepdims=True)
        grids.append((variance / largest).reshape(*variance.shape[:2], side, side))
        columns += _column_titles(run, largest.ravel())
        relation = np.corrcoef(variance.mean(0).ravel(), _ink(images, side).ravel())[0, 1]
        parts.append(f"{run.method.label} {variance.mean():.2f} and {_signed(relation, 2)}")
    label = "Predictive variance over the largest of its column"
    axes = variance_maps(images[:, 0], np.concatenate(grids).swapaxes(0, 1), columns=columns, label=label)
    return axes[0, 0].figure, (
        "Predictive variance of each patch, averaged over heads (the prior's is 1 where the mean is not softmax's); "
        f"its mean, and its correlation with the ink of a patch: {'; '.join(parts)}."
    )


def _column_titles(run: Run, largest: NDArray[np.float32]) -> list[str]:
    """Name method and layer, wrapped to the width of a column, with the largest variance there."""
    name = textwrap.fill(run.method.label.partition(" (")[0], 9)
    first = run.model.depth - len(largest) + 1
    return [f"{name}\nlayer {first + index}\nto {value:.2g}" for index, value in enumerate(largest)]


def _ink(images: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Return the mean brightness of each patch, (N, side * side)."""
    count, _, height, width = images.shape
    return images[:, 0].reshape(count, side, height // side, side, width // side).mean((2, 4)).reshape(count, -1)


def _examples(material: _Material) -> tuple[Figure, str]:
    """Draw the most and the least certain test images of the Gaussian-process method that validates best."""
    candidates = material.drawn() or list(material.runs)
    method = min(candidates, key=material.validation_nll)
    run = material.runs[method][0]
    test = material.load(run, "test")
    probabilities, total = mean_probabilities(test.logits), uncertainty(test.logits).total
    predicted = probabilities.argmax(-1)
    axes = example_gallery(
        _images_of(run, test.ids),
        total,
        predicted,
        labels=test.labels,
        probabilities=probabilities.max(-1),
        count=_GALLERY,
    )
    order = np.argsort(total, kind="stable")
    wrong = predicted != test.labels
    sentence = (
        f"{material.label(method)}, seed {run.seed}, by total uncertainty: {wrong[order[:_GALLERY]].sum()} of the "
        f"{_GALLERY} most certain and {wrong[order[-_GALLERY:]].sum()} of the {_GALLERY} least certain are wrong; "
        f"of all {len(wrong)}, {wrong.sum()} are."
    )
    return axes[0, 0].figure, sentence


def _images_of(run: Run, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return test images by their ids, (N, C, H, W)."""
    test = digits_splits(run.seed).test
    return test.images[np.searchsorted(test.ids.numpy(), ids)].numpy()


def _confidence_and_correct(parts: list[Predictions]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return top probability and correctness over several runs."""
    probabilities = [mean_probabilities(part.logits) for part in parts]
    confidence = np.concatenate([p.max(-1) for p in probabilities])
    correct = np.concatenate([p.argmax(-1) == part.labels for p, part in zip(probabilities, parts, strict=True)])
    return confidence, correct


def _uncertainty(material: _Material, run: Run, name: str) -> Uncertainty:
    """Return the uncertainty of a run on an input set."""
    return uncertainty(material.load(run, name).logits)


def _panels(count: int, height: float, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels, four a row."""
    columns, rows = min(count, 4), -(-count // 4)
    size = (max(1.25 * WIDE * columns / 4, 0.6 * WIDE), height * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey)
    for ax in axes.flat[count:]:
        ax.remove()
    return figure, list(axes.flat[:count])


def _is_leftmost(ax: Axes) -> bool:
    """Say whether a panel stands at the left, where the name of the axis belongs."""
    return ax.get_subplotspec().is_first_col()


def _signed(value: float, digits: int) -> str:
    """Format a number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")
