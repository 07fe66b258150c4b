"""Posterior bands of several processes over one input."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D

from cgp.plotting._arrays import Array, as_array, as_matching
from cgp.plotting.style import GREY, INK, PALETTE, WIDE, new_axes, new_figure, styled

__all__ = ["posterior_bands"]


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
