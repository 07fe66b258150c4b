"""Tables of places: maps of what was observed, what was filled, and of errors."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import FigureBase
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from cgp.plotting._arrays import Array, as_array, as_matching, check_names
from cgp.plotting.style import DIVERGING, GREY, INK, PALETTE, SEQUENTIAL, WIDE, new_axes, new_figure, styled

__all__ = ["filled_maps", "residual_maps"]

_FILLED = PALETTE[1]
_MOST_ACROSS, _FEW_ACROSS = 5, 3
_ALONE = 4.8  # inches of a single map, below a legend
_SIDE = 50.0  # points of a map in an inch of its width
_COVERED = 0.15  # of a map, by dots
_FILL = 2.2  # areas of a dot, which one of what was filled has
_KEY = (0.5, 1.0, 2.0)  # standard deviations in medians, of dots in the legend
_DOT: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4, "mew": 1.0}
_LARGEST = 2.0  # standard deviation in medians from which on dots of fills are not larger, and its inverse
_NORMAL = 1.96  # standard deviations of an error that is inside
_COLOURED = 3.0  # of the last with a colour of its own


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
    is_every: bool = False,
    figure: FigureBase | None = None,
) -> list[Axes]:
    """A map of each column that has gaps: every place in the colour of its value, what was filled with a ring.

    What was filled has larger dots where its standard deviation is larger; between them what was observed is pale.

    Args:
        places: Where the rows are (N, 2), to the east and to the north.
        values: The filled table (N, P).
        sd: Standard deviations of what was filled (N, P).
        missing: Whether a value was filled (N, P).
        names: A name for each column.
        labels: Names of the two directions.
        degrees: Whether places are longitude and latitude: a degree to the east is shorter than one to the north.
        is_every: Whether columns without gaps have a map beside others that have some.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one of each column with gaps, or of every one if there are none.

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
    sd, missing = (as_matching(each, name, values.shape) for name, each in (("sd", sd), ("missing", missing)))
    check_names(names, values.shape[1])
    shown = np.flatnonzero(missing.any(axis=0)) if missing.any() and not is_every else np.arange(values.shape[1])
    values, sd, missing = values[:, shown], sd[:, shown], missing[:, shown].astype(bool)
    axes, size, is_small = _axes(places, values, [names[p] for p in shown], labels, degrees, figure)
    for p, ax in enumerate(axes):
        _map(ax, np.asarray(places), values[:, p], sd[:, p], missing[:, p], size, small=is_small)
    filled: dict[str, Any] = {"mfc": "white", "mec": _FILLED}
    key = tuple(Line2D([], [], **_DOT | filled | {"ms": math.sqrt(_FILL * size * times)}) for times in _KEY)
    less_sure = "filled, ± half, once, twice the median standard deviation"
    _legend(axes, {"observed": (GREY, GREY)}, {less_sure: key} if missing.any() else {})
    return axes


@styled
def residual_maps(
    places: Any,
    residuals: Any,
    *,
    names: list[str],
    labels: tuple[str, str] = ("", ""),
    degrees: bool = False,
    figure: FigureBase | None = None,
) -> list[Axes]:
    """A map of each column: every observation in the colour of its standardised error, those beyond 1.96 with a ring.

    Where the fit is good 95 % are within ± 1.96, and colours have no pattern.

    Args:
        places: Where the rows are (N, 2), to the east and to the north.
        residuals: Errors divided by their standard deviations (N, P), NaN where nothing was observed.
        names: A name for each column.
        labels: Names of the two directions.
        degrees: Whether places are longitude and latitude.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one of each column.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = residual_maps([[0, 0], [1, 1]], [[0.1], [-2.5]], names=["a"], figure=Figure())
        >>> axes[0].texts[0].get_text()
        '50 % within'
    """
    residuals = as_array(residuals, "residuals", 2, finite=False)
    axes, size, _ = _axes(places, residuals, names, labels, degrees, figure)
    for ax, column in zip(axes, residuals.T, strict=True):
        far = np.abs(column) > _NORMAL
        for chosen, edge in ((~np.isnan(column) & ~far, "none"), (far, INK)):
            x, y = np.asarray(places)[chosen].T
            options: dict[str, Any] = {"cmap": DIVERGING, "vmin": -_COLOURED, "vmax": _COLOURED}
            shown = ax.scatter(x, y, 1.5 * size, column[chosen], edgecolors=edge, linewidths=0.7, **options)
        _bar(ax, shown)
        seen = int((~np.isnan(column)).sum())
        _note(ax, f"{100 * (1 - far.sum() / seen):.0f} % within" if seen else "nothing observed")
    _legend(axes, {"error / its standard deviation": (GREY, GREY), "beyond ± 1.96": ("white", INK)}, {})
    return axes


def _axes(
    places: Any, values: Array, names: list[str], labels: tuple[str, str], degrees: bool, figure: FigureBase | None
) -> tuple[list[Axes], float, bool]:
    """A map for each column of values, the size of a dot, and whether maps are small."""
    count, columns = values.shape
    places = as_matching(places, "places", (count, 2))
    check_names(names, columns)
    ratio = 1.0 / math.cos(math.radians(float(places[:, 1].mean()))) if degrees else 1.0
    across = min(columns, max(2, math.ceil(math.sqrt(columns))), _MOST_ACROSS)
    down = -(-columns // across)
    east, north = np.maximum(np.ptp(places, axis=0), 1e-12)
    width = WIDE / across if across > 1 else _ALONE
    height = float(np.clip(ratio * north / east, 0.4, 1.6)) * 0.7 * width + 0.45
    figure = new_figure(figure, width=across * width, height=0.4 + down * height)
    grid = figure.add_gridspec(down, across)
    axes: list[Axes] = []
    for p in range(columns):
        first = axes[0] if axes else None
        axes.append(new_axes(figure.add_subplot(grid[p // across, p % across], sharex=first, sharey=first)))
        axes[-1].set_aspect(ratio)
        axes[-1].set_title(names[p], loc="left", pad=2)
        is_lowest, is_first = p + across >= columns, p % across == 0
        axes[-1].tick_params(labelbottom=is_lowest, labelleft=is_first)
        axes[-1].set(xlabel=labels[0] if is_lowest else "", ylabel=labels[1] if is_first else "")
        for axis in (axes[-1].xaxis, axes[-1].yaxis):
            axis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    return axes, float(np.clip(_COVERED * (_SIDE * width) ** 2 / count, 2, 16)), across > _FEW_ACROSS


def _legend(axes: list[Axes], dots: dict[str, tuple[str, str]], keys: dict[str, tuple[Line2D, ...]]) -> None:
    """Colours of the faces and edges of dots, by what they are, and several dots beside each other."""
    handles: dict[str, Any] = {
        label: Line2D([], [], mfc=face, mec=edge, **_DOT) for label, (face, edge) in dots.items()
    }
    handles |= keys
    of_tuples = {tuple: HandlerTuple(ndivide=None, pad=0.4)}
    options: dict[str, Any] = {
        "loc": "outside upper right",
        "ncols": 2,
        "handler_map": of_tuples,
        "handlelength": 4.0 if keys else None,
    }
    axes[0].figure.legend([*handles.values()], [*handles], **options)


def _bar(ax: Axes, shown: PathCollection) -> None:
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8, pad=0.02, aspect=18)
    bar.outline.set_visible(False)
    bar.locator = bar.ax.yaxis.get_major_locator()
    bar.ax.locator_params(nbins=4)
    bar.ax.tick_params(labelsize=6)


def _note(ax: Axes, text: str) -> None:
    ax.text(1.0, 1.02, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=6, color=INK)


def _map(ax: Axes, places: Array, values: Array, sd: Array, missing: Array, size: float, *, small: bool) -> None:
    """Colours from the 2nd to the 98th percentile, which a few high values do not stretch."""
    low, high = np.percentile(values, [2, 98])
    options: dict[str, Any] = {"cmap": SEQUENTIAL, "vmin": low, "vmax": max(high, low + 1e-12)}
    x, y = places[~missing].T
    shown = ax.scatter(x, y, size, values[~missing], edgecolors="none", alpha=0.35 if missing.any() else 1.0, **options)
    if missing.any():
        (x, y), width = places[missing].T, 0.6 if small else 0.9
        spread = sd[missing] / max(float(np.median(sd[missing])), 1e-300)
        dots = _FILL * size * spread.clip(1.0 / _LARGEST, _LARGEST)
        shown = ax.scatter(x, y, dots, values[missing], edgecolors=_FILLED, linewidths=width, **options)
        shown.set_path_effects([withStroke(linewidth=3.0 * width, foreground="white")])
    _bar(ax, shown)
    number = "" if small else f"{int(missing.sum())} filled, "
    text = f"{number}± {np.median(sd[missing]):.2g}" if missing.any() else "none filled"
    _note(ax, text)
