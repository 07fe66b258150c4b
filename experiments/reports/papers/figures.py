"""The papers' figures from our runs."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cgp.plotting import (
    WIDE,
    confidence_histograms,
    reliability_diagram,
    risk_coverage,
    shift_curves,
    similarity_by_layer,
    spectrum,
)
from experiments.reports.papers.arrays import (
    Array,
    Confidence,
    Material,
    confidences,
    cost_curves,
    diagnostics,
    severity_curves,
)
from experiments.reports.papers.names import CATEGORIES, METRICS, STANDARD_KINDS, method_label, plain

__all__ = ["FIGURES", "FigureSpec"]

_SIZES = (8, 16, 32)
_SMALLEST = 1e-5  # a singular value relative to the largest; what is below is rounding
_OURS = ("cgpt", "scgpt", "cgp_direct", "scgp_direct", "cgp_softmax")


class FigureSpec(NamedTuple):
    """A figure of a paper.

    Attributes:
        number: as printed, or what it shows where no paper prints it.
        title: what it shows.
        folders: data folders of runs, the paper's own setting first.
        methods: those of the paper, then ours.
        needs: what must be there, in words.
        draw: from the runs and the metric asked for; nothing if the runs do not have it.
    """

    number: str
    title: str
    folders: tuple[str, ...]
    methods: tuple[str, ...]
    needs: str
    draw: Callable[[Material, str], Figure | None]


def _cost(material: Material, metric: str) -> Figure | None:
    """Memory and time against the number of inducing inputs."""
    found = {name: _costs(material, name) for name in ("peak_memory", "seconds_per_epoch")}
    if not all(found.values()):
        return None
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 2.6), layout="constrained")
    for ax, (name, curves) in zip(axes, found.items(), strict=True):
        unit = f" ({METRICS[name].unit})" if METRICS[name].unit else ""
        shift_curves(_SIZES, curves, ylabel=f"{METRICS[name].label}{unit}", ax=ax)
        ax.set(xlabel="Inducing inputs")
        ax.set_ylim(bottom=0)
    axes[1].get_legend().remove()
    return figure


def _costs(material: Material, metric: str) -> dict[str, Array]:
    runs = [run for chosen in material.runs.values() for run in chosen]
    found = {method: cost_curves(runs, method, _SIZES, metric, material.meter) for method in ("sgpa", "scgpt")}
    return {method_label(method): curve for method, curve in found.items() if curve is not None}


def _similarity(name: str, of: str) -> Callable[[Material, str], Figure | None]:
    def draw(material: Material, metric: str) -> Figure | None:
        curves = material.by_label(lambda run: diagnostics(run, name))
        return _figure(similarity_by_layer(curves, ylabel=f"Cosine similarity of {of}")) if curves else None

    return draw


def _by_corruption(material: Material, metric: str) -> Figure | None:
    """A panel a kind that some run was tested on: a metric against severity."""
    kinds = _kinds(material)
    values = {kind: _severities(material, kind, metric) for kind in kinds}
    if not kinds:
        return None
    strengths = sorted({s for curves in values.values() for runs in curves.values() for one in runs for s in one})
    columns = min(5, len(kinds))
    rows = -(-len(kinds) // columns)
    size = (max(0.6, 0.25 * columns) * WIDE, 0.6 + 1.6 * rows)
    grid = {"layout": "constrained", "sharex": True, "sharey": True, "squeeze": False}
    figure, axes = plt.subplots(rows, columns, figsize=size, **grid)
    for ax in axes.flat[len(kinds) :]:
        ax.remove()
    for place, (ax, kind) in enumerate(zip(axes.flat, kinds, strict=False)):
        shift_curves(strengths, {name: _grid(runs, strengths) for name, runs in values[kind].items()}, ax=ax)
        is_lowest = place + columns >= len(kinds)
        ax.tick_params(labelbottom=is_lowest)
        ax.set(title=kind.replace("_", " "), xlabel="Severity (0: clean)" if is_lowest else "")
        ax.set_ylabel("" if place % columns else METRICS[metric].label)
    _share_legend(figure, list(axes.flat[: len(kinds)]))
    return figure


def _kinds(material: Material) -> list[str]:
    """The kinds of corruption that are there: of the official ones the fifteen; all, where a set has its own."""
    found = {kind for runs in material.runs.values() for run in runs for kind in run.corrupted()}
    official = {kind for kinds in CATEGORIES.values() for kind in kinds}
    return [kind for kind in STANDARD_KINDS if kind in found] if found <= official else sorted(found)


def _severities(material: Material, kind: str, metric: str) -> dict[str, list[dict[int, float]]]:
    return {
        method_label(method): [severity_curves(run, kind, metric, material.meter) for run in runs]
        for method, runs in material.runs.items()
    }


def _grid(runs: list[dict[int, float]], strengths: list[int]) -> Array:
    return np.array([[one.get(strength, np.nan) for strength in strengths] for one in runs])


def _histograms(material: Material, metric: str) -> Figure | None:
    """A panel a method: confidence of right and wrong predictions and of OOD images."""
    ood = _ood(material)

    def draw(found: Confidence, ax: Axes) -> None:
        elsewhere = found.ood if found.ood.size else None
        confidence_histograms(found.test[found.correct], found.test[~found.correct], elsewhere, ax=ax)

    return _panels(material, ood, draw, height=2.2)


def _ood(material: Material) -> str:
    """SVHN as in the paper if any run has it, else the first OOD set."""
    paths = [path for runs in material.runs.values() for run in runs for path in run.files.values()]
    names = sorted({path.stem.partition("-")[2] for path in paths if path.stem.startswith("ood-")})
    return next((name for name in names if plain(name) == "svhn"), next(iter(names), ""))


def _reliability(material: Material, metric: str) -> Figure | None:
    """A reliability diagram a method."""

    def draw(found: Confidence, ax: Axes) -> None:
        reliability_diagram(found.test, found.correct, ax=ax)
        # The legend stands beneath all panels: its place in the corner is free.
        ax.texts[0].set(y=0.95, va="top", bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2})

    return _panels(material, "", draw, height=3.2)


def _risk(material: Material, metric: str) -> Figure | None:
    found = {m: confidences(runs, "", material.meter.protocol) for m, runs in material.runs.items()}
    pairs = {method_label(m): (one.test, one.correct) for m, one in found.items() if one is not None}
    return _figure(risk_coverage(pairs)) if pairs else None


def _panels(material: Material, ood: str, draw: Callable[[Confidence, Axes], None], *, height: float) -> Figure | None:
    found = {method: confidences(runs, ood, material.meter.protocol) for method, runs in material.runs.items()}
    kept = {method: one for method, one in found.items() if one and 0 < one.correct.sum() < len(one.correct)}
    if not kept:
        return None
    columns = min(3, len(kept))
    rows = -(-len(kept) // columns)
    size = (max(0.45, columns / 3) * 1.1 * WIDE, height * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat[len(kept) :]:
        ax.remove()
    used = list(axes.flat[: len(kept)])
    for ax, (method, one) in zip(used, kept.items(), strict=True):
        draw(one, ax)
        ax.set(title=method_label(method), ylabel=ax.get_ylabel() if ax in axes[:, 0] else "")
    top = max(ax.get_ylim()[1] for ax in used)
    for ax in used:
        ax.set_ylim(top=top)
    _share_legend(figure, used, {"ood": f"ood ({ood.replace('_', ' ')})"})
    return figure


def _spectra(material: Material, metric: str) -> Figure | None:
    """A row a layer: singular values of attention, and the share that the first explain."""
    arrays = material.by_label(lambda run: diagnostics(run, "attention_spectrum"))
    if not arrays:
        return None
    depth = max(array.shape[1] for array in arrays.values())
    figure = plt.figure(figsize=(WIDE, 2.6 * depth), layout="constrained")
    for layer, part in enumerate(np.atleast_1d(figure.subfigures(depth, 1))):
        values = {name: array.mean(0)[layer] for name, array in arrays.items() if layer < array.shape[1]}
        left, right = spectrum(values, figure=part)
        left.set_ylim(bottom=max(_SMALLEST, left.get_ylim()[0]))
        right.get_legend().set_visible(layer == 0)
        part.suptitle(f"Layer {layer + 1}", fontsize=8, fontweight="bold")
    return figure


def _share_legend(figure: Figure, axes: list[Axes], renamed: Mapping[str, str] = MappingProxyType({})) -> None:
    """One legend beneath all panels in place of one in each."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    labels = [renamed.get(label, label) for label in entries]
    figure.legend(entries.values(), labels, loc="outside lower center", ncols=min(5, len(labels)))


def _figure(ax: Axes) -> Figure:
    return ax.figure  # type: ignore[return-value]


_CIFAR10, _KEP10 = ("cifar10",), ("cifar10-kep", "cifar10")
_INSIDE = "runs with diagnostics.npz (`python -m experiments predict RUN` adds it)"

FIGURES: Mapping[str, FigureSpec] = MappingProxyType(
    {
        "cgpt-figure-II": FigureSpec(
            "Figure II",
            "Memory and time against inducing inputs, CIFAR-10",
            _CIFAR10,
            tuple(f"{method}-inducing-{size}" for method in ("sgpa", "scgpt") for size in _SIZES),
            "runs sgpa-inducing-8, -16, -32 and scgpt-inducing-8, -16, -32 with their cost",
            _cost,
        ),
        "cgpt-figure-III": FigureSpec(
            "Figure III",
            "Similarity of tokens by layer, CIFAR-10",
            _CIFAR10,
            ("sgpa", *_OURS),
            _INSIDE,
            _similarity("token_similarity", "tokens"),
        ),
        "cgpt-figure-IV": FigureSpec(
            "Figure IV",
            "Similarity of tokens after attention by layer, CIFAR-100",
            ("cifar100",),
            ("sgpa", *_OURS, "cgpt-alpha-0.7"),
            _INSIDE,
            _similarity("attention_similarity", "attention outputs"),
        ),
        "kep-figure-2": FigureSpec(
            "Figure 2",
            "A metric by corruption and severity, CIFAR-10-C",
            _KEP10,
            ("softmax", "kep_svgp", *_OURS),
            "predictions on corrupted images",
            _by_corruption,
        ),
        "kep-figure-3": FigureSpec(
            "Figure 3",
            "Confidence of right and wrong predictions and of OOD images, CIFAR-10",
            _KEP10,
            ("softmax", "mc_dropout", "kep_svgp", *_OURS),
            "predictions on test images",
            _histograms,
        ),
        "kep-figure-4": FigureSpec(
            "Figure 4",
            "Spectrum of attention by layer, CoLA",
            ("cola-official", "cola"),
            ("softmax", "kep_svgp_add", "kep_svgp_add-all-layers", *_OURS),
            _INSIDE,
            _spectra,
        ),
        "reliability": FigureSpec(
            "Reliability diagrams",
            "Accuracy against confidence, CIFAR-10",
            _CIFAR10,
            ("softmax", "temperature", "sgpa", "kep_svgp", *_OURS),
            "predictions on test images",
            _reliability,
        ),
        "risk-coverage": FigureSpec(
            "Risk against coverage",
            "Error of the most confident predictions, CIFAR-10",
            _CIFAR10,
            ("softmax", "temperature", "sgpa", "kep_svgp", *_OURS),
            "predictions on test images",
            _risk,
        ),
    }
)
