"""Lines over a common axis, posteriors over their input, and histograms of groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cgp.plotting._arrays import Array, as_array, as_matching, named
from cgp.plotting.style import (
    GREY,
    INK,
    PALE,
    PALETTE,
    WIDE,
    line_look,
    log_ticks,
    new_axes,
    new_figure,
    percent,
    place_legend,
    styled,
)

__all__ = ["curves", "posterior_bands", "score_limits", "uncertainty_histograms"]

_APART = 0.15  # share of a logarithmic axis between a named left end and the next tick


@styled
def curves(
    x: Any,
    values: Mapping[str, Any],
    *,
    xlabel: str = "",
    ylabel: str = "",
    yscale: str = "linear",
    ax: Axes | None = None,
) -> Axes:
    """Named lines: a metric against severity, parts of a loss over epochs, a similarity by layer.

    Args:
        x: Severities, epochs or layers (K,).
        values: For each name, values (K,), or (R, K) over R runs: their mean in a band of one standard deviation. NaN,
            for example of an aborted run, leaves a gap.
        xlabel: Name of the horizontal axis.
        ylabel: Name and unit of the values.
        yscale: A scale of matplotlib, ``"linear"``, ``"log"`` or ``"symlog"``.
        ax: Axes to draw in; by default a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = curves([0, 1, 2], {"softmax": [0.9, 0.8, 0.5]}, ylabel="Accuracy", ax=Figure().add_subplot())
        >>> ax.lines[0].get_ydata().tolist()
        [0.9, 0.8, 0.5]
    """
    x = as_array(x, "x", 1)
    lines = {key: _runs(line, f"values[{key!r}]", len(x)) for key, line in named(values, "values").items()}
    outside = ax is None
    ax = new_axes(ax, height=2.4)
    ax.grid(axis="y", color=PALE, lw=0.6)
    for index, (key, runs) in enumerate(lines.items()):
        look = line_look(index) | ({} if len(x) <= 12 else {"marker": ""})
        mean = np.ma.masked_invalid(runs).mean(axis=0).filled(np.nan)
        ax.plot(x, mean, label=key, **look)
        if len(runs) > 1:
            sd = np.ma.masked_invalid(runs).std(axis=0, ddof=1).filled(np.nan)
            ax.fill_between(x, mean - sd, mean + sd, color=look["color"], alpha=0.18, lw=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, yscale=yscale)
    if (x == x.round()).all():
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    place_legend(ax, outside=outside)
    return ax


def _runs(values: Any, name: str, points: int) -> Array:
    array = np.atleast_2d(as_array(values, name, (1, 2), finite=False))
    if array.shape[-1] != points:
        raise ValueError(f"{name} must have {points} values along its last axis, got shape {array.shape}")
    return array


@styled
def uncertainty_histograms(
    groups: Mapping[str, Any],
    *,
    bins: int = 30,
    xlabel: str = "Uncertainty (nats)",
    xscale: str | None = None,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Histograms of a score over groups of inputs, e.g. in distribution and out of it, each summing to one.

    Scores below the axis share the first bin, whose tick says "≤": a logarithmic one spans four decades at most.

    Args:
        groups: For each group, one number per input (N,); the groups may differ in size.
        bins: Number of bins, the same for all groups.
        xlabel: Name and unit of the score.
        xscale: ``"linear"`` or ``"log"``; by default logarithmic if most scores of a group would fall into the first
            bins of a linear axis.
        limits: Range of the axis, such as (0, 1) for a confidence; by default that of the scores.
        ax: Axes to draw in; by default a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If the scale is unknown, or a score lies above the limits, or below those of a linear axis.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = uncertainty_histograms({"test": [0.0, 0.1], "noise": [0.5, 0.9, 1.0]}, ax=Figure().add_subplot())
        >>> ax.get_ylabel()
        'Share of inputs'
    """
    values = {key: as_array(group, f"groups[{key!r}]", 1) for key, group in named(groups, "groups").items()}
    pooled = np.concatenate(list(values.values()))
    if xscale is None:
        xscale = "log" if limits is None and _is_crowded(values, pooled, bins) else "linear"
    if xscale not in ("linear", "log"):
        raise ValueError(f"xscale must be 'linear' or 'log', got {xscale!r}")
    low, high = limits or score_limits(pooled, xscale)
    if pooled.max() > high or (xscale == "linear" and pooled.min() < low):
        raise ValueError(f"groups must lie in {[low, high]}, got [{pooled.min():.3g}, {pooled.max():.3g}]")
    edges = np.geomspace(low, high, bins + 1) if xscale == "log" else np.linspace(low, high, bins + 1)
    outside = ax is None
    ax = new_axes(ax, height=2.2)
    for index, (key, group) in enumerate(values.items()):
        colour, dashes = PALETTE[index % len(PALETTE)], ("-", (0, (4, 1.5)), (0, (1, 1)))[index % 3]
        share = np.histogram(group.clip(edges[0], edges[-1]), edges)[0] / len(group)
        ax.stairs(share, edges, fill=True, color=colour, alpha=0.2)
        ax.stairs(share, edges, color=colour, ls=dashes, lw=1.2, label=key)
    ax.set(xlabel=xlabel, ylabel="Share of inputs", xscale=xscale)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    percent(ax.yaxis)
    if xscale == "log":
        log_ticks(ax.xaxis, edges[0], edges[-1])
        if pooled.min() < edges[0] * (1 - 1e-9):
            _mark_first(ax, float(edges[0]))
    place_legend(ax, outside=outside)
    return ax


def _mark_first(ax: Axes, low: float) -> None:
    """A tick at the left end that says that what lies below is drawn there."""
    high = ax.get_xlim()[1]
    ticks = [tick for tick in ax.get_xticks() if low * (high / low) ** _APART < tick <= high]
    ax.set_xticks([low, *ticks], [f"≤ {low:.1g}", *(f"{tick:g}" for tick in ticks)])


def _is_crowded(values: Mapping[str, Array], pooled: Array, bins: int) -> bool:
    """Whether the median of a group falls into the first two bins of a linear axis, where it is unreadable."""
    low, high = float(pooled.min()), float(pooled.max())
    return 0 <= low < high and min(float(np.median(group)) for group in values.values()) < low + 2 * (high - low) / bins


def score_limits(pooled: Array, xscale: str) -> tuple[float, float]:
    """Ends of an axis for scores (N,), which a hundredth of them may be below on a logarithmic one."""
    low, high = float(pooled.min()), float(pooled.max())
    if xscale == "log" and high > 0:
        # Rounding of the last edge must not exclude the largest score.
        return max(min(float(np.quantile(pooled, 0.01)), 0.1 * high), 1e-4 * high), high * (1 + 1e-9)
    if 0 <= low < 0.1 * high:
        low = 0.0  # a scale that starts near zero starts at zero
    return low, high if high > low else low + 1


@styled
def posterior_bands(
    x: Any,
    mean: Any,
    sd: Any,
    *,
    observed_x: Any | None = None,
    observed_y: Any | None = None,
    names: list[str] | None = None,
    xlabel: str = "x",
    figure: FigureBase | None = None,
) -> list[Axes]:
    """Mean and central 95 % of each process over one input, with its own observations, one row per process.

    Args:
        x: Inputs (T,) or (T, 1), in any order.
        mean: Posterior means (T, P) or (T,).
        sd: Standard deviations, likewise.
        observed_x: Inputs of the observations (N,) or (N, 1).
        observed_y: Observations (N, P) or (N,), NaN where missing.
        names: A name for each process.
        xlabel: Name and unit of the input.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one per process, on a common input axis.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = posterior_bands([0, 1, 2], [[0, 1]] * 3, [[1, 1]] * 3, figure=Figure())
        >>> len(axes)
        2
    """
    x = _column(x, "x")
    mean = _columns(mean, "mean", len(x))
    sd = as_matching(_columns(sd, "sd", len(x)), "sd", mean.shape)
    processes = mean.shape[1]
    names = [f"process {p}" for p in range(processes)] if names is None else names
    if len(names) != processes:
        raise ValueError(f"names must have {processes} entries, got {len(names)}")
    points = _observations(observed_x, observed_y, processes)
    figure = new_figure(figure, width=WIDE, height=0.5 + 1.25 * processes)
    axes = list(np.atleast_1d(figure.subplots(processes, 1, sharex=True)))
    order = np.argsort(x)
    for p, ax in enumerate(axes):
        _band(new_axes(ax), x[order], mean[order, p], sd[order, p], points[p], PALETTE[p % len(PALETTE)])
        ax.set_ylabel(names[p])
    axes[-1].set_xlabel(xlabel)
    handles = [
        Line2D([], [], color=INK, label="mean"),
        Line2D([], [], color=GREY, alpha=0.35, lw=6, label="95 %"),
        *([Line2D([], [], color=INK, marker="o", ls="", ms=2.5, label="observed")] if observed_x is not None else []),
    ]
    axes[0].legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0)
    return axes


def _column(values: Any, name: str) -> Array:
    """One input ``(N,)``, also from a column."""
    column = as_array(values, name, (1, 2))
    if column.size != len(column):
        raise ValueError(f"{name} must be one input, got shape {column.shape}")
    return column.reshape(-1)


def _columns(values: Any, name: str, rows: int, *, finite: bool = True) -> Array:
    """One column per process, ``(rows, P)``."""
    array = as_array(values, name, (1, 2), finite=finite)
    if len(array) != rows:
        raise ValueError(f"{name} must have {rows} rows, one per input, got {len(array)}")
    return array.reshape(rows, -1)


def _observations(x: Any | None, y: Any | None, processes: int) -> list[tuple[Array, Array]]:
    """Inputs and observations of each process."""
    if (x is None) != (y is None):
        raise ValueError("observed_x, observed_y must be given together")
    if x is None:
        return [(np.empty(0), np.empty(0))] * processes
    x = _column(x, "observed_x")
    y = _columns(y, "observed_y", len(x), finite=False)
    if y.shape[1] != processes:
        raise ValueError(f"observed_y must have {processes} columns, got {y.shape[1]}")
    return [(x[~np.isnan(values)], values[~np.isnan(values)]) for values in y.T]


def _band(ax: Axes, x: Array, mean: Array, sd: Array, points: tuple[Array, Array], colour: str) -> None:
    ax.fill_between(x, mean - 1.96 * sd, mean + 1.96 * sd, color=colour, alpha=0.22, lw=0)
    ax.plot(x, mean, color=colour, lw=1.2)
    ax.plot(*points, ls="", marker="o", ms=2.2, color=INK, mew=0, alpha=0.7)
    ax.margins(x=0.01)
