"""The pictures of a report: sections of small panels, one per method."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from cgp.plotting import curves, reliability_diagram, risk_coverage, style, uncertainty_histograms, variance_maps
from cgp.plotting.curves import score_limits
from cgp.plotting.style import as_png, percent, place_legend
from experiments.atomic_files import read_arrays
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.reports.scores import Result

__all__ = ["Panel", "Section", "sections"]

Methods = Mapping[str, Sequence[Result]]

_WIDTH = 2.8
_CROWDED = 0.07  # two of thirty bins


class Panel(NamedTuple):
    """One picture: the name of its file, its caption, and the PNG."""

    name: str
    caption: str
    png: bytes


class Section(NamedTuple):
    """A section of pictures of one kind."""

    name: str
    title: str
    sentence: str
    panels: list[Panel]


def sections(methods: Methods, *, without: Collection[str] = ()) -> Iterator[Section]:
    """Draw the pictures for which the runs have predictions; runs of one method are drawn together."""
    for name, title, sentence, draw in (
        (
            "reliability",
            "Is confidence right?",
            "Accuracy in bins of confidence on the test inputs; seeds are pooled, which lowers ECE a little.",
            _reliability,
        ),
        (
            "corrupted",
            "Does confidence fall with accuracy?",
            "Mean over the kinds of corruption; 0 is clean.",
            _corrupted,
        ),
        ("uncertainty", "Do OOD inputs stand out?", "Total uncertainty of test and of OOD inputs.", _uncertainty),
        ("risk-coverage", "Which answers to withhold?", "Error among the most confident answers.", _withhold),
        (
            "variance",
            "Where is attention uncertain?",
            "Columns are layers, rows test images by their true class; bright: more variance than the layer's median.",
            _variance,
        ),
        ("training", "Training", "NLL by epoch, without the divergences that are in the training loss.", _training),
    ):
        panels = []
        for key, results in methods.items() if name not in without else ():
            figure = draw(key, methods)
            if figure is not None:
                _entitle(figure, results[0].label)
                panels.append(Panel(f"{name}-{key.replace('/', '-')}", results[0].label, as_png(figure)))
        if panels:
            yield Section(name, title, sentence, panels)


def _entitle(figure: Figure, label: str) -> None:
    """The name of a method, flush with the left axis if there is room for it."""
    title = figure.suptitle(label, fontsize=8, x=0.01, ha="left")
    with style():
        figure.draw_without_rendering()
    room = 0.99 - title.get_window_extent().width / figure.bbox.width
    title.set_x(max(0.01, min(figure.axes[0].get_position().x0, room)))


def _drawn(draw: Callable[[Axes], object], height: float) -> Figure:
    with style():
        figure = Figure(figsize=(_WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.08))  # lines end within it
        draw(figure.add_subplot())
    return figure


def _confidence(results: Sequence[Result]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Confidence and correctness on the test inputs, all seeds together."""
    tests = [result.run.predictions("test") for result in results]
    probabilities = [mean_probabilities(test.logits) for test in tests]
    confidence = np.concatenate([p.max(-1) for p in probabilities]).clip(0, 1)
    correct = np.concatenate([p.argmax(-1) == test.labels for p, test in zip(probabilities, tests, strict=True)])
    return confidence, correct


def _reliability(key: str, methods: Methods) -> Figure:
    confidence, correct = _confidence(methods[key])
    return _drawn(lambda ax: reliability_diagram(confidence, correct, ax=ax), 3.4)


def _withhold(key: str, methods: Methods) -> Figure:
    pairs = {name: _confidence(results) for name, results in methods.items()}

    def draw(ax: Axes) -> None:
        risk_coverage(pairs, highlight=key, ax=ax).legend().remove()
        place_legend(ax, outside=True)

    return _drawn(draw, 2.2)


def _corrupted(key: str, methods: Methods) -> Figure | None:
    rows = [_by_severity(result) for result in methods[key]]
    severities = sorted(set.intersection(*(set(row) for row in rows)))
    if len(severities) < 2:
        return None
    lines = {
        name: np.array([[row[severity][place] for severity in severities] for row in rows])
        for place, name in enumerate(("accuracy", "confidence"))
    }

    def draw(ax: Axes) -> None:
        curves(severities, lines, xlabel="Severity", ylabel="Accuracy, confidence", ax=ax)
        ax.set(ylim=(0, 1), xticks=severities)
        percent(ax.yaxis)

    return _drawn(draw, 2.2)


def _by_severity(result: Result) -> dict[int, tuple[float, float]]:
    """Accuracy and confidence, means over the kinds of corruption; severity 0 is the test set."""
    points: dict[int, list[tuple[float, float]]] = {}
    for row in result.sets:
        kind, _, severity = row["set"].rpartition("-")
        if "accuracy" in row and (kind.startswith("corrupted-") or row["set"] == "test"):
            place = int(severity) if kind else 0
            points.setdefault(place, []).append((row["accuracy"], row["confidence"]))
    return {
        place: (float(np.mean([a for a, _ in all_])), float(np.mean([c for _, c in all_])))
        for place, all_ in points.items()
    }


def _uncertainty(key: str, methods: Methods) -> Figure | None:
    groups = {name: _totals(results) for name, results in methods.items()}
    if "OOD" not in groups[key]:
        return None
    # One axis for all panels, logarithmic if one of them needs it.
    values = {name: totals for name, totals in groups.items() if "OOD" in totals}
    pooled = np.concatenate([group for totals in values.values() for group in totals.values()])
    low = min(float(np.median(totals["test"])) for totals in values.values())
    scale = "log" if low < _CROWDED * float(pooled.max()) else "linear"
    limits = score_limits(pooled, scale)
    options: dict[str, Any] = {"xlabel": "Total uncertainty (nats)", "xscale": scale, "limits": limits}
    return _drawn(lambda ax: uncertainty_histograms(values[key], ax=ax, **options), 2.2)


def _totals(results: Sequence[Result]) -> dict[str, NDArray[np.float64]]:
    """Total uncertainty of test and of OOD inputs, all seeds and OOD sets together."""
    groups: dict[str, list[NDArray[np.float64]]] = {}
    for result in results:
        for name in result.run.predicted:
            group = "test" if name == "test" else "OOD" if name.startswith("ood-") else None
            if group is not None:
                groups.setdefault(group, []).append(uncertainty(result.run.predictions(name).logits).total)
    return {name: np.concatenate(parts) for name, parts in groups.items()}


def _variance(key: str, methods: Methods) -> Figure | None:
    run = next((result.run for result in methods[key] if result.run.diagnostics.exists()), None)
    names = "attention_similarity", "token_variance", "variance_images", "variance_labels"
    arrays = {} if run is None else read_arrays(run.diagnostics, *names)
    if run is None or "token_variance" not in arrays:
        return None
    variance, images = arrays["token_variance"], arrays["variance_images"]
    side = round(variance.shape[-1] ** 0.5)
    if side**2 != variance.shape[-1]:
        return None
    maps = variance.reshape(*variance.shape[:2], side, side).swapaxes(0, 1)
    maps = np.maximum(maps, 1e-3 * np.median(maps, axis=(0, 2, 3), keepdims=True))  # what is rounding has no colours
    depth = len(arrays["attention_similarity"])  # Gaussian processes are in all layers, or in the last
    columns = [f"layer {layer + 1}" for layer in range(depth - len(variance), depth)]
    classes = run.record.get("data", {}).get("class_names")
    rows = [f"true: {classes[label] if classes else label}" for label in arrays.get("variance_labels", ())] or None
    with style():
        cell = (_WIDTH - 0.85) / (maps.shape[1] + 1)  # beside the names of rows and the bar
        figure = Figure(figsize=(_WIDTH, (cell + 0.08) * len(maps) + 0.35), layout="compressed")
        label = "Variance of a patch / median of its layer"
        variance_maps(images, maps, rows=rows, columns=columns, label=label, figure=figure)
    return figure


def _training(key: str, methods: Methods) -> Figure | None:
    history = methods[key][0].run.record.get("history") or []
    names = {"train_nll": "training", "validation_nll": "validation"}
    lines = {title: [row[name] for row in history] for name, title in names.items() if history and name in history[0]}
    if len(history) < 2 or not lines:
        return None
    epochs = [row["epoch"] + 1 for row in history]
    return _drawn(lambda ax: curves(epochs, lines, xlabel="Epoch", ylabel="NLL (nats)", ax=ax), 2.2)
