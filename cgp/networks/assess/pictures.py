"""The picture of a report."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.networks.detect.detector import DETECTORS, FURTHER

from .claims import COVERAGE, Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase, SubFigure
    from matplotlib.lines import Line2D

    from .assessment import Assessment

__all__ = ["as_image", "drawn"]

_SPREAD = 0.7  # of a row, over which the detectors of a set are spread
_WIDTH, _ABOVE, _BELOW, _BARE = 3.3, 3.0, 2.8, 1.1  # inches: of a panel, of both rows, and of these without rows
_SET, _SCORE, _LINE = 0.26, 0.15, 0.155  # inches at least: of a row of a set, of a score, and a line of a legend
_LETTERS = 26  # of a name in a line
_DETECTION, _BESIDE = "Detection of other inputs", 10  # letters of a name that fit beside it
_OPEN: dict[str, Any] = {"ls": "", "mfc": "white", "zorder": 3}
_LAST = ("not advised", "chance")  # of a legend
_CHANCE, _MOST = 0.5, 1.025  # of an AUROC, with room for a point at 1
_OVER: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}  # where a legend covers no curve

_FIRST, _NAMES = DETECTORS[0], [*DETECTORS[1:], "widest posterior's entropy", "epistemic", *FURTHER]
_MARKERS = "osD^v"
_COLOURS = (  # one for each of these names, none of them that of a method
    *("#CC79A7", "#56B4E9", "#E69F00", "#5B2A86", "#8C510A", "#8F8F00", "#8C96E6", "#A50044", "#5F7F8C", "#7FBF3F"),
)


def drawn(report: Assessment, new: Callable[..., Figure] | None = None) -> Figure:
    """The panels of :meth:`cgp.networks.assess.assessment.Assessment.plot`, in a figure of pyplot or another one."""
    import matplotlib.pyplot as plt

    from cgp import plotting

    new = plt.figure if new is None else new
    if report.cumulative:
        with plotting.style():
            figure = new(figsize=(4.2, 3.2), layout="constrained")
            panel = plotting.interval_coverage(report.cumulative, ax=figure.add_subplot())
            panel.set_title("Values inside central intervals", loc="left")
        return figure
    methods = list(dict.fromkeys(("as trained", "temperature", report.method)))
    with plotting.style():
        return _beside_detectors(report, methods, new) if report.detection else _alone(report, methods, new)


def _beside_detectors(report: Assessment, methods: list[str], new: Callable[..., Figure]) -> Figure:
    """Reliability above; risk by coverage and the detectors below, as high as their rows and legend need it."""
    detection, advised = report.detection, [*filter(None, report.detectors.values())]
    first = next(iter(next(iter(detection.values()))))
    best = [max(scores.items(), key=lambda each: each[1].auroc)[0] for scores in detection.values()]
    (one, *more) = detection
    shown = [*dict.fromkeys((first, *advised, *(best if more else [])))]
    least, rows = (_SET, [*detection]) if more else (_SCORE, [*detection[one]])
    around = _BARE + _LINE * (len(shown) + 1 if more else 2)
    height = max(_BELOW, around + max(least, len(more) and 0.08 * len(shown)) * len(rows))
    panels = 2 + bool(report.sets)
    figure = new(figsize=(_WIDTH * max(len(methods), panels), _ABOVE + height), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(_ABOVE, height), squeeze=False)[:, 0]
    cells = above.subplots(1, len(methods))
    _draw_reliability(above, cells, {name: (report.confidences[name], report.correct[name]) for name in methods})
    left, right, *rest = below.subfigures(1, panels)  # names in one leave the other its width
    _draw_risk(left, report, methods)
    for part in rest:
        _draw_sets(part, report)
    ax = right.subplots()
    _draw_detectors(ax, detection, shown, report.detectors)
    ax.set(yticks=range(len(rows)), yticklabels=map(_in_lines, rows), ylim=(len(rows) - 0.5, -0.5), xlim=(None, _MOST))
    return figure


def _alone(report: Assessment, methods: list[str], new: Callable[..., Figure]) -> Figure:
    """Reliability, risk by coverage and sets in a row, or of more than three panels in two."""
    panels = len(methods) + 1 + bool(report.sets)
    rows = 1 + (panels > 3)
    columns = -(-panels // rows)
    figure = new(figsize=(_WIDTH * columns, _ABOVE * rows + 2 * _LINE), layout="constrained")
    cells = figure.subfigures(rows, columns, squeeze=False).ravel()
    pairs = {name: (report.confidences[name], report.correct[name]) for name in methods}
    _draw_reliability(figure, [cell.subplots() for cell in cells[: len(methods)]], pairs)
    _draw_risk(cells[len(methods)], report, methods)
    if report.sets:
        _draw_sets(cells[len(methods) + 1], report)
    return figure


def _draw_reliability(part: FigureBase, cells: Iterable[Any], pairs: Mapping[str, tuple[Any, Any]]) -> None:
    """A panel of each method, in the colour that its line has in the other panel, and one legend."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    from cgp.plotting import reliability_diagram
    from cgp.plotting.style import GREY, line_look

    named: dict[str, Any] = {}
    for place, (ax, method) in enumerate(zip(cells, pairs, strict=True)):
        ax.set_prop_cycle(color=[line_look(place)["color"]])
        reliability_diagram(*pairs[method], ax=ax).set_title(method, loc="left")
        named = {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)} | named
        ax.get_legend().remove()
    legend = part.legend(named.values(), named, loc="outside lower center", ncols=len(named))
    for mark in legend.findobj(lambda artist: isinstance(artist, Line2D | LineCollection)):
        mark.set(color=GREY)  # of no method: shapes mean the same in every colour


def _draw_risk(part: SubFigure, report: Assessment, methods: list[str]) -> None:
    """The error rate among the surest answers of each method, with the legend above its panel."""
    from cgp.plotting import risk_coverage

    ax = part.subplots()
    risk_coverage({method: (report.orders[method], report.correct[method]) for method in methods}, ax=ax)
    _head(ax, "Errors among the surest answers", len(ax.legend(**_OVER).get_texts()))


def _draw_sets(part: SubFigure, report: Assessment) -> None:
    """The share of sets that hold the label, with its interval and the target, and how large they are, by score."""
    from cgp.plotting.calibration import wilson
    from cgp.plotting.style import GREY, INK, percent

    ax = part.subplots()
    ax.axvline(COVERAGE, color=GREY, ls="--", lw=0.9, label="target", zorder=1)
    shares = np.array([found.coverage for found in report.sets.values()])
    low, high = wilson(shares, np.full(len(shares), report.num_labels))
    ends = np.stack([shares - low, high - shares]).clip(min=0)  # of rounding
    ax.errorbar(shares, range(len(shares)), xerr=ends, ls="", marker="o", color=INK, label="95 % interval")
    names = [f"{_in_lines(name)}\n{found.size:.2f} classes" for name, found in report.sets.items()]
    ax.set(
        yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5), xlabel="Sets that hold the label"
    )
    percent(ax.xaxis)
    ax.tick_params(axis="y", length=0)
    ax.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    _head(ax, "Prediction sets, classes on average", 1)


def _head(ax: Axes, title: str, lines: int) -> None:
    """The title of a panel above its legend of so many lines, where titles are without one."""
    ax.set_title(title, loc="left", va="bottom", pad=72.0 * _LINE * lines + 8.0, parse_math=False)


def as_image(report: Assessment) -> str:
    """The picture as an element of HTML."""
    from matplotlib.figure import Figure

    from cgp.plotting.style import as_png, embedded

    shown = "Intervals" if report.cumulative else "Reliability, risk by coverage, and the detection of other inputs"
    return f'<img alt="{shown}" style="max-width: 100%" src="{embedded(as_png(drawn(report, Figure)))}">'


def _draw_detectors(
    ax: Axes, detection: Mapping[str, Mapping[str, Detection]], shown: list[str], advised: Mapping[str, str | None]
) -> None:
    """AUROC with two errors: a row for each set, what is advised full, or of one set for each score, others grey."""
    from matplotlib.ticker import MaxNLocator

    from cgp.plotting.style import GREY, PALE, PALER

    one, *more = detection
    ax.axvline(_CHANCE, color=PALER, lw=0.9, label="chance", zorder=1)
    ax.set_xlabel("AUROC ± 2 standard errors")
    ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2.5, 5, 10]))  # with one at chance
    if not more:
        _draw_scores(ax, detection[one], shown, [*filter(None, advised.values())])
        _head(ax, f"{_DETECTION}:{' ' if len(one) <= _BESIDE else chr(10)}{_in_lines(one)}", 1)
        ax.tick_params(axis="y", length=0)
        return
    marks: dict[str, dict[float, Detection]] = {name: {} for name in shown}
    others: dict[str, dict[float, float]] = {name: {} for name in shown}  # where they are not advised
    for place, (one, scores) in enumerate(detection.items()):
        there = [name for name in shown if name in scores]
        for step, name in enumerate(there):  # about the name of the set
            row = place + _SPREAD * ((step + 0.5) / len(there) - 0.5)
            marks[name][row] = scores[name]
            if name != advised[one]:
                others[name][row] = scores[name].auroc
        ax.axhline(place + 0.5, color=PALE, lw=0.6)
    for name, found in marks.items():
        if len(others[name]) == len(found):  # open in the legend, too
            _mark(ax, found, _look(name) | {"mfc": "white"}, _in_lines(name))
            continue
        _mark(ax, found, _look(name), _in_lines(name))
        ax.plot([*others[name].values()], [*others[name]], **_look(name) | _OPEN)
    if any(others.values()):
        ax.plot([], [], label="not advised", **{"color": GREY, "marker": "o"} | _OPEN)
    marked = sorted(zip(*ax.get_legend_handles_labels(), strict=True), key=lambda pair: pair[1] in _LAST)
    legend = ax.legend(*zip(*marked, strict=True), **_OVER)
    _head(ax, _DETECTION, sum(1 + text.get_text().count("\n") for text in legend.get_texts()))


def _in_lines(name: str) -> str:
    """A name in at most two lines, without its middle where it is longer."""
    lines = wrap(name, _LETTERS) or [name]
    return "\n".join(lines if len(lines) <= 2 else [name[: _LETTERS - 1] + "…", name[1 - _LETTERS :]])


def _draw_scores(ax: Axes, scores: Mapping[str, Detection], shown: list[str], advised: list[str]) -> None:
    """A row for each score of the only set, and what colours mean."""
    from cgp.plotting.style import PALER

    pale: dict[str, Any] = {"color": PALER, "marker": "o"}
    for place, (name, found) in enumerate(scores.items()):
        _mark(ax, {place: found}, _look(name) if name in shown else pale)
    handles: list[Any] = [*ax.get_legend_handles_labels()[0]]  # of the line at chance
    handles += [_dot(_look(advised[-1]), "advised")] if advised else []
    handles += [_dot(pale, "not advised")] if len(scores) > len(shown) else []
    ax.legend(handles=handles, ncols=len(handles), columnspacing=0.8, loc="lower right", bbox_to_anchor=(1.0, 1.0))


def _two_errors(found: Detection) -> float:
    """Two errors of an AUROC, none where it is not known."""
    return 2 * found.error if np.isfinite(found.error) else 0.0


def _mark(ax: Axes, found: Mapping[float, Detection], look: dict[str, Any], label: str | None = None) -> None:
    """Points with two errors, none where it is not known, at their places."""
    reach = [(_two_errors(d), d.auroc) for d in found.values()]
    errors = np.transpose([(min(two, auroc), min(two, 1.0 - auroc)) for two, auroc in reach])  # within 0 and 1
    ax.errorbar([d.auroc for d in found.values()], [*found], xerr=errors, ls="", label=label, **look)


def _dot(look: dict[str, Any], label: str) -> Line2D:
    """A point of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], ls="", label=label, **look)


def _look(score: str) -> dict[str, Any]:
    """Colour and marker of a score by its name, the same in every report."""
    from cgp.plotting.style import INK

    if score == _FIRST:
        return {"color": INK, "marker": "o"}
    place = _NAMES.index(score) if score in _NAMES else zlib.crc32(score.encode())
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKERS[place % len(_MARKERS)]}
