"""Pictures of the calibration of probabilities, intervals and confidences."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_fractions, as_mask, named
from cgp.plotting.style import (
    GREY,
    PALE,
    PALER,
    PALETTE,
    WIDE,
    line_look,
    new_axes,
    new_figure,
    percent,
    place_legend,
    styled,
)

__all__ = ["interval_coverage", "method_scores", "reliability_diagram", "risk_coverage"]

_FEW = 5  # samples of a bin
_FIRST = 20  # answers from which on an error rate is drawn
_MOST_ABOVE = 1.5  # times the largest error rate: as high as a band may make its panel before half coverage
_ALIKE = 0.02  # of the largest error rate, by which lines that are on each other differ on average
_Z = 1.959964  # of 95 %
_MOST_TICKS = 10  # of panels beside each other
_GAP, _STRIP, _AXIS = 0.1, 0.42, 0.42  # inches: to the counts, their height, and that of their axis


@styled
def reliability_diagram(confidence: Any, correct: Any, *, bins: int = 15, ax: Axes | None = None) -> Axes:
    r"""Accuracy against mean confidence of bins, with 95 % intervals, counts beneath, the calibration error above.

    .. math::
        \mathrm{ECE} = \sum_m \frac{n_m}{N} |c_m - a_m|

    with mean confidence c and accuracy a of bin m. Points below the diagonal are overconfident, those above it
    underconfident, where their interval (Wilson's, of a binomial share) does not reach it. Bins are (lo, hi] of equal
    width; those of fewer than five samples are hollow, without an interval. The counts are on a logarithmic axis.

    Args:
        confidence: Probability of the predicted class (N,), in [0, 1].
        correct: Whether the prediction was right (N,).
        bins: Number of bins.
        ax: Axes to draw in; by default a new figure of one column. The counts are an inset, ``ax.child_axes[0]``.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree or a confidence lies outside [0, 1].

    Source:
        Guo et al. (2017), On Calibration of Modern Neural Networks, figure 1.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = reliability_diagram([0.9, 0.8, 0.6, 0.7], [1, 1, 0, 1], bins=2, ax=Figure().add_subplot())
        >>> ax.get_title("right")
        'ECE 0.0 %'
    """
    confidence = as_fractions(confidence, "confidence")
    correct = as_mask(correct, "correct", len(confidence))
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    ax = new_axes(ax, height=4.0)
    centres, counts, mean, accuracy = _binned(confidence, correct, bins)
    ece = float(np.average(np.abs(mean - accuracy), weights=counts))
    ax.plot([0, 1], [0, 1], color=GREY, ls=(0, (4, 2)), lw=0.9, label="calibrated")
    _points(ax, mean, accuracy, counts)
    ax.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1))
    percent(ax.yaxis)
    _counts_beneath(ax, centres, counts, 1 / bins)
    ax.set_title(f"ECE {100 * ece:.1f} %", loc="right", weight="bold")
    beneath: dict[str, Any] = {"bbox_to_anchor": (0.5, -_GAP - _STRIP - _AXIS), "bbox_transform": _beneath(ax)}
    ax.legend(loc="upper center", ncols=2, columnspacing=0.8, **beneath)  # off bars and axis
    return ax


def _binned(confidence: Array, correct: NDArray[np.bool_], bins: int) -> tuple[Array, Array, Array, Array]:
    """Centres, counts, mean confidence and accuracy of the bins that are not empty."""
    index = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence) - 1, 0, bins - 1)
    counts = np.bincount(index, minlength=bins)
    filled = counts > 0
    sums = [np.bincount(index, weights=values, minlength=bins)[filled] for values in (confidence, correct)]
    centres = (np.arange(bins)[filled] + 0.5) / bins
    return centres, counts[filled], sums[0] / counts[filled], sums[1] / counts[filled]


def _points(ax: Axes, mean: Array, accuracy: Array, counts: Array) -> None:
    """Points with intervals, and hollow ones of bins that hold next to nothing; on the frame they are whole."""
    few, (low, high) = counts < _FEW, wilson(accuracy, counts)
    colour = ax.plot([], [])[0].get_color()  # the next of the axes
    ax.lines[-1].remove()
    look: dict[str, Any] = {"fmt": "o", "color": colour, "lw": 1.1, "zorder": 3, "clip_on": False}
    if not few.all():
        ends = np.stack([accuracy - low, high - accuracy]).clip(min=0)[:, ~few]  # of rounding
        ax.errorbar(mean[~few], accuracy[~few], ends, label="accuracy, 95 % interval", **look)
    if few.any():
        ax.errorbar(mean[few], accuracy[few], mfc="white", label=f"< {_FEW} inputs", **look)


def wilson(rate: Array, count: Array) -> tuple[Array, Array]:
    """Wilson's 95 % interval of shares among so many."""
    width = _Z**2 / count
    half = _Z * np.sqrt(rate * (1 - rate) / count + width / (4 * count))
    return (rate + width / 2 - half) / (1 + width), (rate + width / 2 + half) / (1 + width)


def _beneath(ax: Axes) -> Transform:
    """Fractions of the axes to the right, inches above their lower end: a layout then knows what is needed beneath."""
    axes: Any = ax.transAxes
    inches = ax.figure.dpi_scale_trans + ScaledTranslation(0, 0, axes)
    return blended_transform_factory(ax.transAxes, inches)


def _counts_beneath(ax: Axes, centres: Array, counts: Array, width: float) -> None:
    ax.tick_params(labelbottom=False)
    strip = ax.inset_axes((0, -_GAP - _STRIP, 1, _STRIP), transform=_beneath(ax), sharex=ax)
    strip.spines[["top", "right"]].set_visible(False)
    strip.bar(centres, counts, width, color=GREY, edgecolor="white", lw=0.6)
    strip.set(xlabel="Confidence", ylabel="Count\n(log)", yscale="log", ylim=(0.5, 2 * counts.max()))
    strip.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    percent(strip.xaxis)


@styled
def risk_coverage(
    predictions: Mapping[str, tuple[Any, Any]], *, highlight: str | None = None, ax: Axes | None = None
) -> Axes:
    r"""Error rate among the most confident fraction of inputs, with its mean over all coverages (AURC) in the legend.

    It is drawn from twenty answers on, if there are more: of fewer, a single wrong one hides the rest of the curve. A
    line on another one is dashed, so that both are seen. The band, in the colour of its line, has the 95 % interval of
    the first method, or the emphasised one, from half coverage on, and before where it is at most 1.5 times the largest
    rate: Wilson's,

    .. math:: \frac{r + z^2/2k \pm z \sqrt{r (1 - r) / k + z^2 / 4k^2}}{1 + z^2/k}, \qquad z = 1.96

    of the error rate r among k answers.

    Args:
        predictions: For each method, confidence (N,) and whether the prediction was right (N,).
        highlight: The method to emphasise and name in the caption; the others are pale.
        ax: Axes to draw in; by default a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If a method is no pair of arrays of one length.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = risk_coverage({"softmax": ([0.9, 0.6], [True, False])}, ax=Figure().add_subplot())
        >>> ax.lines[0].get_ydata().tolist()
        [0.0, 0.5]
    """
    outside = ax is None
    groups = named(predictions, "predictions")
    ax = new_axes(ax, height=2.2)
    ax.grid(axis="y", color=PALE, lw=0.6)
    risks, has_others = list[Array](), False
    for index, (key, pair) in enumerate(sorted(groups.items(), key=lambda group: group[0] != highlight)):
        risk = _risk(pair, f"predictions[{key!r}]")
        kept = np.arange(1, len(risk) + 1)
        area = f"AURC {100 * risk.mean():.2f} %"
        label = area if highlight else f"{key} ({area})"
        look = line_look(0 if highlight else index) | {"marker": "", "label": label}
        if highlight not in (None, key):
            look |= {"color": PALER, "lw": 0.9, "label": None if has_others else "other methods", "zorder": 1}
            has_others = True
        drawn = slice(_FIRST - 1 if len(risk) > _FIRST else 0, None)
        shares, kept, risk = (kept / len(risk))[drawn], kept[drawn], risk[drawn]
        if not highlight and any(
            len(risk) == len(other) and abs(risk - other).mean() <= _ALIKE * other.max() for other in risks
        ):
            look |= {"ls": (0, (3, 3))}  # both are seen
        ax.plot(shares, risk, **look)
        risks.append(risk)
        if key == (highlight or next(iter(groups))):
            of = "95 % interval" if highlight or len(groups) == 1 else f"95 % interval, of {key} only"
            band: dict[str, Any] = {"x": shares, "color": look["color"], "label": of}
            low, high = wilson(risk, kept)
    most = max(float(risk.max()) for risk in risks)
    top = _height(most, high, band["x"])
    ax.fill_between(y1=low, y2=high, where=high <= top, alpha=0.15, lw=0, zorder=0.4, **band)  # last in the legend
    ax.set(xlabel="Coverage", ylabel="Error rate", xlim=(0, 1), ylim=(0, top))
    percent(ax.xaxis, ax.yaxis)
    place_legend(ax, outside=outside, loc="upper left")
    return ax


def _height(most: float, high: Array, shares: Array) -> float:
    """Of the panel: room for the largest error rate, and for the upper end of the band as far as it is drawn."""
    late = high[shares >= 0.5]
    return max(1.2 * most or 0.05, 1.02 * float(late.max()), min(1.02 * float(high.max()), _MOST_ABOVE * most))


def _risk(pair: Any, name: str) -> Array:
    """The error rate among the surest answers, by their number, of confidences and whether answers are right."""
    if len(pair) != 2:
        raise ValueError(f"{name} must be a pair of arrays, got {len(pair)} items")
    confidence = as_array(pair[0], f"{name}[0]", 1)
    wrong = ~as_mask(pair[1], f"{name}[1]", len(confidence))
    risk: Array = np.cumsum(wrong[np.argsort(-confidence, kind="stable")]) / np.arange(1, len(wrong) + 1)
    return risk


@styled
def interval_coverage(cumulative: Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    r"""Share of observations inside central intervals against the nominal share.

    .. math:: c(q) = \frac1N \sum_i [\,|2F_i(y_i) - 1| \le q\,]

    Above the diagonal intervals are too wide, below it too narrow.

    Args:
        cumulative: For each method, the predictive distribution function at the observation, F(y), (N,).
        ax: Axes to draw in; by default a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no method, or a value lies outside [0, 1].

    Source:
        Kuleshov, Fenner & Ermon (2018), Accurate uncertainties for deep learning using calibrated regression.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = interval_coverage({"gp": [0.1, 0.4, 0.6, 0.9]}, ax=Figure().add_subplot())
        >>> ax.lines[1].get_ydata()[-1].item()
        1.0
    """
    given = named(cumulative, "cumulative")
    values = {name: as_fractions(fractions, f"cumulative[{name!r}]") for name, fractions in given.items()}
    outside = ax is None
    ax = new_axes(ax, height=2.8)
    promised = np.linspace(0, 1, 101)
    ax.plot([0, 1], [0, 1], color=GREY, ls=(0, (4, 2)), lw=0.9, label="calibrated")
    for index, (name, fractions) in enumerate(values.items()):
        inside = np.sort(np.abs(2 * fractions - 1))
        covered = np.searchsorted(inside, promised + 1e-12, side="right") / len(inside)
        ax.plot(promised, covered, label=name, **(line_look(index) | {"marker": ""}))
    ax.set(xlabel="Promised share", ylabel="Share inside the interval", xlim=(0, 1), ylim=(0, 1.005))
    percent(ax.xaxis, ax.yaxis)
    place_legend(ax, outside=outside)
    return ax


_ROW, _FRAME = 0.22, 0.75  # inches
_BEST: dict[str, Any] = {"lw": 0.7, "ls": (0, (4, 2))}
_LIMIT = 4.0  # of the axis beyond the best score, in distances from the best to the median


@styled
def method_scores(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    xlabel: str = "score",
    chosen: str | None = None,
    ahead: str | None = None,
    inside: Mapping[str, tuple[float, float]] | None = None,
    least: float = -math.inf,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:
    """Scores of methods in several settings, smaller is better: a panel for each setting, a row for each method.

    A score that is far worse than the others is an arrow at the edge of its panel, with its number.

    Args:
        panels: For each setting, for each method, its score and the standard error; two of them to either side are
            drawn.
        xlabel: Name and unit of the scores.
        chosen: Name of the method that is drawn in the second colour, as the recommended one; without, the dashed line
            is the smallest score of each panel.
        ahead: Name of one that was ahead of it, perhaps by chance: an open circle.
        inside: For each method the share of values inside its 95 % intervals, and its standard error: a further panel,
            with a line at 95 %.
        least: What no score can be below, 0 for distances: bars end there.
        figure: Figure or subfigure to draw in; without, a new one of two columns' width.

    Returns:
        The axes, one for each setting, then that of the shares.

    Raises:
        ValueError: If there is nothing to draw.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = method_scores({"gaps of 1": {"lines": (0.1, 0.02), "ridge": (0.3, 0.1)}}, figure=Figure())
        >>> [label.get_text() for label in axes[0].get_yticklabels()]
        ['lines', 'ridge']
    """
    methods = list(named(next(iter(named(panels, "panels").values())), "panels"))
    figure = new_figure(figure, width=WIDE, height=_FRAME + _ROW * len(methods))
    count = len(panels) + (inside is not None)
    axes, has_far = np.atleast_1d(figure.subplots(1, count, sharey=True)), False
    for ax, (title, scores) in zip(axes, panels.items(), strict=False):
        has_far |= _panel(ax, scores, chosen, ahead, least)
        ax.set_title(title)
    if inside is not None:
        _shares(axes[-1], inside, chosen)
        axes[-1].set_title("in 95 % intervals")
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(max(2, min(4, _MOST_TICKS // count))))
    axes[0].set_yticks(range(len(methods)), methods)
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(xlabel, fontsize=8)
    if chosen in methods:
        looks = {"recommended": {"color": GREY, **_BEST, "marker": "o", "mfc": PALETTE[1], "mec": PALETTE[1]}}
    else:
        looks = {"smallest": {"color": GREY, **_BEST}}
    if ahead in methods:
        looks["ahead, but not surely"] = {"color": PALETTE[0], "marker": "o", "mfc": "white"}
    if has_far:
        looks["farther than is drawn"] = {"color": PALETTE[0], "ls": "", "marker": r"$\rightarrow$", "ms": 9}
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    return np.asarray(axes, dtype=np.object_)


def _shares(ax: Any, inside: Mapping[str, tuple[float, float]], chosen: str | None) -> None:
    """Shares beside the line at 95 %."""
    ax.axvline(0.95, color=GREY, lw=0.8, zorder=0)
    for row, (name, (share, error)) in enumerate(inside.items()):
        reach = 2 * error if np.isfinite(error) else 0.0
        ends = [[min(reach, share)], [min(reach, 1.0 - share)]]
        ax.errorbar(share, row, xerr=ends, fmt="o", color=PALETTE[1] if name == chosen else PALETTE[0])
    percent(ax.xaxis)
    ax.grid(axis="y", color=PALE, lw=0.6)
    ax.tick_params(axis="y", length=0)


def _panel(
    ax: Any, scores: Mapping[str, tuple[float, float]], chosen: str | None, ahead: str | None, least: float
) -> bool:
    """Scores with their errors; whether one is farther than is drawn."""
    values = np.array([score for score, _ in scores.values()])
    best = float(values.min())
    limit = best + _LIMIT * max(float(np.median(values)) - best, 1e-9)
    low = high = best  # of what is drawn anyway, which with the margin of its axis has room for others
    for score, error in sorted(scores.values()):
        if score <= limit:
            width = 2 * error if np.isfinite(error) else 0.0
            low, high = min(low, max(score - width, least)), max(high, score + width)
            limit = max(limit, high + ax.margins()[0] * (high - low))
    has_far = False
    for row, (name, (score, error)) in enumerate(scores.items()):
        colour = PALETTE[1] if name == chosen else PALETTE[0]
        if score > limit and len(values) > 2:
            ax.annotate(f"{score:.3g} →", (1, row), xycoords=("axes fraction", "data"), ha="right", va="center",
                        fontsize=7, color=colour)  # fmt: skip
            has_far = True
            continue
        width = 2 * error if np.isfinite(error) else 0.0
        ends = [[max(min(width, score - least), 0.0)], [width]]
        ax.errorbar(score, row, xerr=ends, fmt="o", color=colour, mfc="white" if name == ahead else colour)
    line, _ = scores.get(chosen or "", (best, 0.0))
    if line <= limit:
        ax.axvline(line, color=GREY, zorder=0, **_BEST)
    ax.grid(axis="y", color=PALE, lw=0.6)
    ax.tick_params(axis="y", length=0)
    return has_far
