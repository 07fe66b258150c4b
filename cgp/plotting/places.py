"""Tables of places: maps of what was observed and what was filled."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D

from cgp.plotting._arrays import Array, as_array, as_matching
from cgp.plotting.style import GREY, INK, PALETTE, SEQUENTIAL, WIDE, new_axes, new_figure, styled

__all__ = ["filled_maps"]

_FILLED = PALETTE[1]
_MOST_ACROSS, _FEW_ACROSS = 5, 3
_SIDE = 50.0  # points of a map in an inch of its width
_COVERED = 0.15  # of a map, by dots


@styled
def filled_maps(
    places: Any,
    values: Any,
    sd: Any,
    missing: Any,
    *,
    names: list[str],
    labels: tuple[str, str] = ("", ""),
    degrees: bool = False,
    figure: FigureBase | None = None,
) -> list[Axes]:
    """A map of each column: every place in the colour of its value, what was filled with a ring.

    Args:
        places: Where the rows are (N, 2), to the east and to the north.
        values: The filled table (N, P).
        sd: Standard deviations of what was filled (N, P).
        missing: Whether a value was filled (N, P).
        names: A name for each column.
        labels: Names of the two directions.
        degrees: Whether places are longitude and latitude: a degree to the east is shorter than one to the north.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one of each column.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> sites = [[0, 0], [1, 1]]
        >>> axes = filled_maps(sites, [[1.0], [2.0]], [[0.0], [0.1]], [[0], [1]], names=["a"], figure=Figure())
        >>> axes[0].texts[0].get_text()
        '1 filled, ± 0.1'
    """
    values = as_array(values, "values", 2)
    count, columns = values.shape
    places = as_matching(places, "places", (count, 2))
    sd, missing = (as_matching(each, name, values.shape) for name, each in (("sd", sd), ("missing", missing)))
    if len(names) != columns:
        raise ValueError(f"names must have {columns} entries, got {len(names)}")
    ratio = 1.0 / math.cos(math.radians(float(places[:, 1].mean()))) if degrees else 1.0
    across = min(columns, max(2, math.ceil(math.sqrt(columns))), _MOST_ACROSS)
    down = -(-columns // across)
    east, north = np.maximum(np.ptp(places, axis=0), 1e-12)
    width = WIDE / across
    height = float(np.clip(ratio * north / east, 0.4, 1.6)) * 0.7 * width + 0.45
    figure = new_figure(figure, width=WIDE, height=0.4 + down * height)
    grid = figure.add_gridspec(down, across)
    axes: list[Axes] = []
    for p in range(columns):
        first = axes[0] if axes else None
        axes.append(new_axes(figure.add_subplot(grid[p // across, p % across], sharex=first, sharey=first)))
        size = float(np.clip(_COVERED * (_SIDE * width) ** 2 / count, 2, 16))
        _map(axes[-1], places, values[:, p], sd[:, p], missing[:, p].astype(bool), size, small=across > _FEW_ACROSS)
        axes[-1].set_aspect(ratio)
        axes[-1].set_title(names[p], loc="left", pad=2)
        is_lowest, is_first = p + across >= columns, p % across == 0
        axes[-1].tick_params(labelbottom=is_lowest, labelleft=is_first)
        axes[-1].set(xlabel=labels[0] if is_lowest else "", ylabel=labels[1] if is_first else "")
        axes[-1].locator_params(nbins=3)
    handles = [_dot("observed", GREY, GREY), _dot("filled, ± their median standard deviation", "white", _FILLED)]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    return axes


def _dot(label: str, face: str, edge: str) -> Line2D:
    return Line2D([], [], ls="", marker="o", ms=4, mfc=face, mec=edge, mew=1.0, label=label)


def _map(ax: Axes, places: Array, values: Array, sd: Array, missing: Array, size: float, *, small: bool) -> None:
    """Colours from the 2nd to the 98th percentile, which a few high values do not stretch."""
    low, high = np.percentile(values, [2, 98])
    for chosen, edge, width in ((~missing, "none", 0.0), (missing, _FILLED, 0.6 if small else 0.9)):
        (x, y), dots = places[chosen].T, size * (1.0 if edge == "none" else 2.2)
        options: dict[str, Any] = {"cmap": SEQUENTIAL, "vmin": low, "vmax": max(high, low + 1e-12)}
        shown = ax.scatter(x, y, dots, values[chosen], edgecolors=edge, linewidths=width, **options)
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8, pad=0.02, aspect=18)
    bar.outline.set_visible(False)
    bar.locator = bar.ax.yaxis.get_major_locator()
    bar.ax.locator_params(nbins=4)
    bar.ax.tick_params(labelsize=6)
    number = "" if small else f"{int(missing.sum())} filled, "
    text = f"{number}± {np.median(sd[missing]):.2g}" if missing.any() else "none filled"
    ax.text(1.0, 1.02, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=6, color=INK)
