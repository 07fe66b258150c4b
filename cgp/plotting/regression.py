"""Pictures of regression: bands, covariances, inducing inputs."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D

from cgp.plotting._arrays import Array, as_array, as_matching
from cgp.plotting.style import (
    DIVERGING,
    GREY,
    INK,
    PALETTE,
    WIDE,
    new_axes,
    new_figure,
    place_legend,
    styled,
)

__all__ = [
    "covariance_map",
    "inducing_inputs",
    "posterior_bands",
]


@styled
def posterior_bands(
    x: Any,  # shape: (T,)
    mean: Any,  # shape: (T, P) or (T,)
    sd: Any,  # shape: (T, P) or (T,)
    *,
    observed_x: Any | None = None,  # shape: (N,)
    observed_y: Any | None = None,  # shape: (N, P) or (N,), NaN where not observed
    names: list[str] | None = None,
    units: list[str] | None = None,
    xlabel: str = "x",
    figure: FigureBase | None = None,
) -> list[Axes]:
    """Mean and central 95 % of each process over one input, with its own observations, a row a process.

    Args:
        x: Inputs (T,), in any order.
        mean: Posterior means (T, P).
        sd: Standard deviations (T, P).
        observed_x: Inputs of the observations (N,).
        observed_y: Observations (N, P); NaN was not observed.
        names: A name a process.
        units: A unit a process.
        xlabel: Name and unit of the input.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one a process, on a common input axis.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = posterior_bands([0, 1, 2], [[0, 1]] * 3, [[1, 1]] * 3, figure=Figure())
        >>> len(axes)
        2
    """
    x = as_array(x, "x", 1)
    mean = as_array(mean, "mean", (1, 2)).reshape(len(x), -1)
    sd = as_matching(np.reshape(as_array(sd, "sd", (1, 2)), (len(x), -1)), "sd", mean.shape)
    processes = mean.shape[1]
    names = [f"process {p}" for p in range(processes)] if names is None else names
    units = [""] * processes if units is None else units
    if len(names) != processes or len(units) != processes:
        raise ValueError(f"names, units must have {processes} entries, got {len(names)} and {len(units)}")
    points = _observations(observed_x, observed_y, processes)
    figure = new_figure(figure, width=WIDE, height=0.5 + 1.25 * processes)
    axes = list(np.atleast_1d(figure.subplots(processes, 1, sharex=True)))
    order = np.argsort(x)
    for p, ax in enumerate(axes):
        _band(new_axes(ax), x[order], mean[order, p], sd[order, p], points[p], PALETTE[p % len(PALETTE)])
        ax.set_ylabel(f"{names[p]} ({units[p]})" if units[p] else names[p])
    axes[-1].set_xlabel(xlabel)
    handles = [
        Line2D([], [], color=INK, label="mean"),
        Line2D([], [], color=GREY, alpha=0.35, lw=6, label="95 %"),
        *([Line2D([], [], color=INK, marker="o", ls="", ms=2.5, label="observed")] if observed_x is not None else []),
    ]
    axes[0].legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0)
    return axes


@styled
def covariance_map(
    covariance: Any,  # shape: (N, M)
    *,
    rows: str = "first process",
    columns: str = "second process",
    label: str = "covariance",
    extent: tuple[float, float, float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Covariance of one process with another over their inputs, zero in white.

    A ridge beside the diagonal is a shift: one process follows the other.

    Args:
        covariance: Cross-covariance (N, M).
        rows: Name of the process in the rows, with its input.
        columns: Name of the process in the columns, with its input.
        label: Of the colour bar.
        extent: First and last input of the columns, then of the rows.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = covariance_map([[1.0, 0.2], [0.2, 1.0]], ax=Figure().add_subplot())
        >>> ax.images[0].get_array().shape
        (2, 2)
    """
    covariance = as_array(covariance, "covariance", 2)
    ax = new_axes(ax, height=2.9)
    largest = float(np.abs(covariance).max()) or 1.0
    box = None if extent is None else (extent[0], extent[1], extent[2], extent[3])
    image = ax.imshow(
        covariance,
        cmap=DIVERGING,
        norm=TwoSlopeNorm(0.0, -largest, largest),
        origin="lower",
        extent=box,
        aspect="auto",
        interpolation="nearest",
    )
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.85)
    ax.set(xlabel=columns, ylabel=rows)
    return ax


@styled
def inducing_inputs(
    points: Any,  # shape: (N, 2) or (N,)
    inducing: Any,  # shape: (M, 2) or (M,)
    *,
    process: Any | None = None,  # shape: (N,)
    names: list[str] | None = None,
    labels: tuple[str, str] = ("first canonical dimension", "second canonical dimension"),
    ax: Axes | None = None,
) -> Axes:
    """Inducing inputs over the mapped data in two dimensions of the canonical space, or along one.

    Args:
        points: Mapped inputs (N, 2), or (N,).
        inducing: Inducing inputs (M, 2), or (M,).
        process: The process of each point, whole numbers (N,).
        names: A name a process.
        labels: Of the two dimensions.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = inducing_inputs([[0, 0], [1, 1]], [[0.5, 0.5]], ax=Figure().add_subplot())
        >>> len(ax.collections)
        2
    """
    places, centres = _in_plane(points, "points"), _in_plane(inducing, "inducing")
    if places.shape[1] != centres.shape[1]:
        raise ValueError(f"inducing must have {places.shape[1]} dimensions as points, got {centres.shape[1]}")
    number = np.zeros(len(places)) if process is None else as_matching(process, "process", (len(places),))
    found = np.unique(number)
    names = [f"process {int(p)}" for p in found] if names is None else names
    if len(names) != len(found):
        raise ValueError(f"names must have {len(found)} entries, got {len(names)}")
    outside = ax is None
    ax = new_axes(ax, height=2.9)
    lanes = places.shape[1] == 1
    for index, p in enumerate(found):
        here = places[number == p]
        height = np.full(len(here), float(index)) if lanes else here[:, 1]
        label = names[index] if process is not None else "data"
        ax.scatter(here[:, 0], height, s=7, color=PALETTE[index % 6], alpha=0.55, lw=0, label=label)
    height = np.full(len(centres), -1.0) if lanes else centres[:, 1]
    ax.scatter(centres[:, 0], height, s=26, marker="X", color=INK, edgecolor="white", lw=0.6, label="inducing inputs")
    ax.set(xlabel=labels[0], ylabel="" if lanes else labels[1])
    if lanes:
        ax.set_yticks([])
    place_legend(ax, outside=outside)
    return ax


def _observations(x: Any | None, y: Any | None, processes: int) -> list[tuple[Array, Array]]:
    """Inputs and observations of each process."""
    if (x is None) != (y is None):
        raise ValueError("observed_x, observed_y must be given together")
    if x is None:
        return [(np.empty(0), np.empty(0))] * processes
    x = as_array(x, "observed_x", 1)
    y = as_array(y, "observed_y", (1, 2), finite=False).reshape(len(x), -1)
    if y.shape[1] != processes:
        raise ValueError(f"observed_y must have {processes} columns, got {y.shape[1]}")
    return [(x[~np.isnan(one)], one[~np.isnan(one)]) for one in y.T]


def _band(ax: Axes, x: Array, mean: Array, sd: Array, points: tuple[Array, Array], colour: str) -> None:
    ax.fill_between(x, mean - 1.96 * sd, mean + 1.96 * sd, color=colour, alpha=0.22, lw=0)
    ax.plot(x, mean, color=colour, lw=1.2)
    ax.plot(*points, ls="", marker="o", ms=2.2, color=INK, mew=0, alpha=0.7)
    ax.margins(x=0.01)


def _in_plane(values: Any, name: str) -> Array:
    array = as_array(values, name, (1, 2))
    array = array.reshape(len(array), -1)
    if array.shape[1] > 2:
        raise ValueError(f"{name} must have 1 or 2 dimensions, got {array.shape[1]}: choose two of them")
    return array
