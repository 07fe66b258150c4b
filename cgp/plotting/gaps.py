"""Tables with gaps: where they are, what fills them, how well, and what the columns have to do with each other."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.dates import AutoDateLocator, date2num, num2date
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, Formatter, FuncFormatter, MaxNLocator, NullFormatter

from cgp.plotting._arrays import Array, as_array, as_matching, check_names
from cgp.plotting.style import DIVERGING, GREY, INK, PALE, PALETTE, WIDE, new_axes, new_figure, styled

__all__ = ["filled_table", "pair_correlations", "residual_panels"]

_FILLED = PALETTE[1]
_ONE_BELOW_THE_OTHER = 6  # columns; more stand side by side
_MOST_CELLS = 1500  # of a row of the map, more than a page has dots
_MOST_NUMBERS = 12  # columns up to which a matrix has numbers in it
_FITS = 6  # letters below a cell
_FEWEST_LABELS, _LABELS, _DECADES = 3, 5, 3.0  # of a logarithmic axis, and decades with ticks between them
_MOST_DOTS = 200  # rows up to which every value has one
_DOT = 0.006  # of the width, which a dot has: it hides the line of a shorter gap
_MOST_MARKED = 50  # such gaps of a column, or observations between gaps, up to which each has a dot of full size
_NORMAL = 1.96
_FEWEST_SHOWN, _MOST_SHOWN = 3.0, 4.0  # deviations of an error: at the ends of their axis
_PAD = 2  # points below a title
_MARGIN = 1.1  # of a logarithmic axis
_OBSERVED: dict[str, Any] = {"lw": 0.7, "marker": "o", "ms": 1.6, "mew": 0}
_FILLS: dict[str, Any] = {"lw": 0.9, "marker": "o", "ms": 2.2, "mew": 0}
_DATES = {  # formats of ticks' two lines, by the finest unit in which one is not at its start
    "microsecond": ("%S.%f", "%d %b %Y %H:%M"),
    "second": ("%H:%M:%S", "%d %b %Y"),
    "minute": ("%H:%M", "%d %b %Y"),
    "hour": ("%H:%M", "%d %b %Y"),
    "day": ("%d", "%b %Y"),
    "month": ("%b", "%Y"),
    "year": ("%Y", ""),
}
_BAND: dict[str, Any] = {"color": _FILLED, "alpha": 0.25, "lw": 0.0}
_BAR: dict[str, Any] = {"color": _FILLED, "alpha": 0.4, "lw": 1.0, "zorder": 1}  # an interval of a short gap
_THIN_BAND = _BAND | {"lw": 1.0}  # of a long table, where a row is no wider than the outline


@styled
def filled_table(
    x: Any,
    values: Any,
    sd: Any,
    missing: Any,
    *,
    names: list[str],
    titles: list[str] | None = None,
    ends: tuple[Any, Any] | None = None,
    logarithmic: Sequence[float | None] | None = None,
    is_every: bool = False,
    level: float = 0.95,
    xlabel: str = "",
    figure: FigureBase | None = None,
) -> list[Axes]:
    """The gaps of a table at a glance, a row for each column, and each column that has some with what filled them.

    Args:
        x: Where the rows are (N,), numbers or NumPy's dates, in any order.
        values: The filled table (N, P).
        sd: Standard deviations of what was filled (N, P).
        missing: Whether a value was filled (N, P).
        names: A name for each column.
        titles: Of the panels, such as names with units; None are the names.
        ends: Lower and upper ends of intervals (N, P), where they are not mean ± 1.96 standard deviations.
        logarithmic: Of columns with a logarithmic axis the shift of log(y + shift) where a value is 0; None for others.
        is_every: Whether columns without gaps have a panel beside others that have some.
        level: Of the intervals.
        xlabel: Name and unit of x.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes: the map of gaps, then one of each column with gaps, or of every one if there are none.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = filled_table([0, 1], [[1.0], [2.0]], [[0.0], [0.1]], [[0], [1]], names=["a"], figure=Figure())
        >>> len(axes)
        2
    """
    dated = np.asarray(x).dtype.kind == "M"
    x = as_array(date2num(np.asarray(x)) if dated else x, "x", 1)
    values = as_array(values, "values", 2)
    columns = values.shape[1]
    shape = len(x), columns
    values, sd, missing = (
        as_matching(each, name, shape) for name, each in (("values", values), ("sd", sd), ("missing", missing))
    )
    low, high = ends or (values - _NORMAL * sd, values + _NORMAL * sd)
    order = np.argsort(x, kind="stable")
    low, high = (as_matching(each, "ends", shape)[order] for each in (low, high))
    x, values, missing = x[order], values[order], missing[order].astype(bool)
    check_names(names, columns)
    titles, logarithmic = titles or names, logarithmic or [None] * columns
    shown = np.flatnonzero(missing.any(axis=0)) if missing.any() and not is_every else np.arange(columns)
    overview, *axes = _panels(figure, [titles[p] for p in shown], overview=0.35 + 0.13 * columns)
    _gap_map(overview, x, missing, names, level)
    for p, ax in zip(shown, axes, strict=True):
        _filled_column(ax, x, values[:, p], low[:, p], high[:, p], missing[:, p])
        if (shift := logarithmic[p]) is not None:
            _take_logarithms(ax, values[:, p], low[:, p], high[:, p], shift)
    _label([overview, *axes], dated, xlabel)
    return [overview, *axes]


@styled
def residual_panels(
    x: Any, residuals: Any, *, names: list[str], xlabel: str = "", figure: FigureBase | None = None
) -> list[Axes]:
    """Standardised errors of every observation, a panel for each column.

    Where the fit is good 95 % are within ± 1.96, and they have no pattern. Those beyond ± 4 are triangles at the edge.

    Args:
        x: Where the rows are (N,), numbers or NumPy's dates, in any order.
        residuals: Errors divided by their standard deviations (N, P), NaN where nothing was observed.
        names: A name for each column.
        xlabel: Name and unit of x.
        figure: Figure or subfigure to draw in.

    Returns:
        The axes, one of each column.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> residual_panels([0, 1, 2], [[0.1], [-2.5], [np.nan]], names=["a"], figure=Figure())[0].texts[0].get_text()
        '50 % within'
    """
    dated = np.asarray(x).dtype.kind == "M"
    x = as_array(date2num(np.asarray(x)) if dated else x, "x", 1)
    residuals = as_array(residuals, "residuals", 2, finite=False)
    if len(residuals) != len(x):
        raise ValueError(f"residuals must have {len(x)} rows, got {len(residuals)}")
    check_names(names, residuals.shape[1])
    axes = _panels(figure, names)
    for ax, column in zip(axes, residuals.T, strict=True):
        _residual_column(ax, x, column)
    _label(axes, dated, xlabel)
    axes[0].figure.supylabel("error / its standard deviation", fontsize="medium")
    return axes


@styled
def pair_correlations(correlation: Any, *, names: list[str], lags: Any = None, ax: Axes | None = None) -> Axes:
    """Correlation of every pair of columns, once, and how far one is behind the other.

    Args:
        correlation: (P, P).
        names: A name for each column.
        lags: How far each column is behind the first (P,), as text such as "+2 h"; empty where it is not.
        ax: Axes to draw in.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = pair_correlations([[1, 0.5], [0.5, 1]], names=["a", "b"], ax=Figure().subplots())
        >>> [text.get_text() for text in ax.texts]
        ['0.50']
    """
    size = len(names)
    correlation = as_matching(correlation, "correlation", (size, size))
    pairs = np.tri(size, k=-1, dtype=bool)
    below, beside = (slice(1, None), slice(-1)) if size > 1 else (slice(1), slice(1))
    width = 1.6 + 0.36 * min(size, _MOST_NUMBERS) + 0.2 * max(size - _MOST_NUMBERS, 0)
    ax = new_axes(ax, width=width, height=0.8 * width, layout="compressed")  # squares leave names no room otherwise
    ax.spines[:].set_visible(False)
    image = ax.imshow(np.where(pairs, correlation, math.nan)[below, beside], cmap=DIVERGING, vmin=-1.0, vmax=1.0)
    behind = [f"{name} ({lag})" if lag else name for name, lag in zip(names, lags or [""] * size, strict=True)]
    ax.set_yticks(range(len(behind[below])), behind[below])
    is_narrow = size > 4 or max(map(len, names)) > _FITS
    ax.set_xticks(range(len(names[beside])), names[beside], rotation=90 if is_narrow else 0)
    ax.tick_params(length=0)
    if size <= _MOST_NUMBERS:
        for row, column in np.argwhere(pairs):
            value = round(correlation[row, column], 2) + 0.0  # no -0.00
            colour = "white" if abs(value) > 0.6 else INK
            ax.text(column, row - 1, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=colour)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, ticks=[-1, -0.5, 0, 0.5, 1], label="correlation")
    bar.outline.set_visible(False)
    return ax


def _panels(figure: FigureBase | None, names: list[str], overview: float = 0.0) -> list[Axes]:
    """Axes of an overview of that height, if it has one, and of each column: many stand two beside each other."""
    columns = len(names)
    across = 1 if columns <= _ONE_BELOW_THE_OTHER else 2
    top = 1 if overview else 0
    heights = [overview] * top + [1.6 if columns == 1 else 0.95 if across == 1 else 0.8] * -(-columns // across)
    figure = new_figure(figure, width=WIDE, height=0.6 + sum(heights))
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    axes = [new_axes(figure.add_subplot(grid[0, :])) for _ in range(top)]
    for p in range(columns):
        place = grid[top + p // across, p % across]
        axes.append(new_axes(figure.add_subplot(place, sharex=axes[0] if axes else None)))
        axes[-1].set_title(names[p], loc="left", pad=_PAD)
        axes[-1].tick_params(labelbottom=p + across >= columns)
        axes[-1].xaxis.set_in_layout(p + across < columns or p // across == (columns - 1) // across)  # below it is room
        axes[-1].locator_params(axis="y", nbins=4)
    return axes


def _label(axes: list[Axes], dated: bool, xlabel: str) -> None:
    """The name of x below the lowest axes, and dates where they are such."""
    if dated:
        axes[0].xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=9))
        axes[0].xaxis.set_major_formatter(_Dates())
    for ax in axes:
        if ax.xaxis.get_tick_params()["labelbottom"] and (ax is not axes[0] or len(axes) == 1):
            ax.set_xlabel(xlabel)


class _Dates(Formatter):
    """Dates in two lines: what tells ticks apart, and below it, at the first and wherever it changes, of when."""

    def __call__(self, value: float, position: int | None = None) -> str:
        """The date below the cursor."""
        return num2date(value).strftime("%Y-%m-%d %H:%M:%S")

    def format_ticks(self, values: Any) -> list[str]:
        """A label for each tick."""
        low, high = (-math.inf, math.inf) if self.axis is None else sorted(self.axis.get_view_interval())
        dates = num2date(values)
        upper, lower = next((lines for unit, lines in _DATES.items() if _differ(dates, unit)), ("", ""))
        labels: list[str] = []
        before: datetime | None = None
        for value, date in zip(values, dates, strict=True):
            labels.append(date.strftime(upper))
            if low <= value <= high:
                if before is None or date.strftime(lower) != before.strftime(lower):
                    is_same_year = before is not None and date.year == before.year
                    labels[-1] += "\n" + date.strftime(lower.removesuffix(" %Y") if is_same_year else lower)
                before = date
        return [label.rstrip() for label in labels]


def _differ(dates: list[datetime], unit: str) -> bool:
    return any(getattr(date, unit) != getattr(datetime.min, unit) for date in dates)


def _residual_column(ax: Axes, x: Array, residuals: Array) -> None:
    seen = ~np.isnan(residuals)
    far = seen & (np.abs(residuals) > _NORMAL)
    ax.axhspan(-_NORMAL, _NORMAL, color=PALE, lw=0)
    ax.axhline(0.0, color=GREY, lw=0.6)
    for chosen, colour in ((seen & ~far, INK), (far, _FILLED)):
        ax.plot(x[chosen], residuals[chosen], ls="", marker="o", ms=1.8, mew=0, color=colour)
    reach = min(max(_FEWEST_SHOWN, _MARGIN * float(np.abs(residuals[seen]).max(initial=0.0))), _MOST_SHOWN)
    for beyond, marker in ((residuals > reach, "^"), (residuals < -reach, "v")):  # a few of them squeeze all others
        edge = np.full(int(beyond.sum()), 0.94 * reach if marker == "^" else -0.94 * reach)
        ax.plot(x[beyond], edge, ls="", marker=marker, ms=4.0, mew=0, color=_FILLED)
    ax.set_ylim(-reach, reach)
    ax.set_yticks([-2.0, 0.0, 2.0])
    ax.margins(x=0.01)
    inside = f"{100 * (1 - far.sum() / seen.sum()):.0f} % within" if seen.any() else "nothing observed"
    if count := int((np.abs(residuals[seen]) > reach).sum()):
        inside += f", {count} beyond ± {reach:g}"
    ax.text(1.0, 1.02, inside, transform=ax.transAxes, ha="right", va="bottom", fontsize=6.5, color=GREY)


def _gap_map(ax: Axes, x: Array, missing: Array, names: list[str], level: float) -> None:
    """A row for each column: dark where something is missing, with its share at the end."""
    step = -(-len(x) // _MOST_CELLS)
    starts = np.arange(0, len(x), step)
    share = np.add.reduceat(missing.astype(float), starts, axis=0)
    share /= np.diff(np.append(starts, len(x)))[:, None]
    colours = mpl.colors.LinearSegmentedColormap.from_list("gaps", [PALE, _FILLED])
    columns = len(names)
    # A gap that is a small part of a cell is still seen.
    shown = np.where(share > 0.0, np.maximum(share, 0.35), 0.0)
    ax.pcolormesh(_edges(x, starts), np.arange(columns + 1) - 0.5, shown.T, cmap=colours, vmin=0.0, vmax=1.0)
    for line in range(1, columns):
        ax.axhline(line - 0.5, color="white", lw=1.0)
    ax.set_ylim(columns - 0.5, -0.5)
    ax.set_yticks(range(columns), names, fontsize=7 if columns <= 12 else 6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for row, part in enumerate(missing.mean(axis=0)):
        text = "< 1 %" if 0.0 < part < 0.01 else "> 99 %" if 0.99 < part < 1.0 else f"{100 * part:.0f} %"
        ax.text(1.005, row, text, transform=ax.get_yaxis_transform(), va="center", fontsize=6.5, color=GREY)
    observed, band = _looks(len(x))
    handles: list[Any] = [
        Patch(color=_FILLED, label="missing"),
        Line2D([], [], color=INK, **observed, label="observed"),
        Line2D([], [], color=_FILLED, **_FILLS | {"marker": observed["marker"]}, label="filled"),
        Patch(**band, label=f"{100 * level:g} % interval"),
    ]
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0)


def _edges(x: Array, starts: Array) -> Array:
    """Halfway between rows; equal rows have cells without width."""
    begins = x[starts[1:]]
    before = x[starts[1:] - 1]
    width = (x[-1] - x[0]) / max(len(x) - 1, 1) or 1.0
    return np.concatenate([[x[0] - 0.5 * width], 0.5 * (before + begins), [x[-1] + 0.5 * width]])


def _filled_column(ax: Axes, x: Array, values: Array, low: Array, high: Array, missing: Array) -> None:
    """What was observed as a line with dots, and across gaps the mean, as such a line, with its band.

    A gap that is hardly wider than a dot has one, with its interval: a line to the observations beside it would be
    taken for a spike. In a long table dots would cover the lines: only such gaps have one, in their middle, and of a
    column with many of them only single rows, a small one.
    """
    seen = np.where(missing, math.nan, values)
    starts, stops = np.flatnonzero(np.diff(np.pad(missing, 1))).reshape(-1, 2).T
    is_short = stops - starts <= max(_DOT * len(x), 1.0)
    short = np.zeros_like(missing)
    short[missing] = np.repeat(is_short, stops - starts)
    long = missing & ~short
    bridge = long.copy()  # with the observations beside it, where the band ends
    bridge[1:] |= long[:-1]
    bridge[:-1] |= long[1:]
    is_long = len(x) > _MOST_DOTS
    observed, band = _looks(len(x))
    ax.plot(x, seen, color=INK, **observed)
    if missing.any():
        if bridge.any():
            ax.fill_between(x, low, high, where=bridge, **band)
        if short.any():
            ax.add_collection(_bars(x[short], low[short], high[short]))
        ax.plot(x, np.where(bridge | short, values, math.nan), color=_FILLED, lw=_FILLS["lw"])
        dotted, size = np.flatnonzero(missing), 1.0
        if is_long:
            is_many = is_short.sum() > _MOST_MARKED
            is_dotted = is_short & (stops - starts == 1) if is_many else is_short
            dotted, size = ((starts + stops - 1) // 2)[is_dotted], 0.5 if is_many else 1.0
        ax.plot(x[dotted], values[dotted], color=_FILLED, **_FILLS | {"ls": "", "ms": size * _FILLS["ms"]})
        alone = ~missing & np.pad(missing, 1, constant_values=True)[:-2] & np.pad(missing, 1, constant_values=True)[2:]
        if is_long:  # observations between gaps have no line, and are below that of what was filled
            size = _OBSERVED["ms"] * (1.0 if alone.sum() <= _MOST_MARKED else 0.5)
            ax.plot(x[alone], values[alone], color=INK, **_OBSERVED | {"ls": "", "ms": size})
    ax.margins(x=0.01)


def _bars(x: Array, low: Array, high: Array) -> LineCollection:
    """Upright lines as one path: where they overlap their colours do not add up."""
    gaps = np.full((2, len(x)), math.nan)
    return LineCollection([np.stack([x, low, x, high, *gaps], axis=1).reshape(-1, 2)], **_BAR)


def _looks(rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of what was observed, a line, with dots where there are few; and of bands, with outlines where there are many."""
    return (_OBSERVED | {"marker": None}, _THIN_BAND) if rows > _MOST_DOTS else (_OBSERVED, _BAND)


def _take_logarithms(ax: Axes, values: Array, low: Array, high: Array, shift: float) -> None:
    """An axis in log(y), or log(y + shift) where a value is 0; a band may reach farther down."""
    lowest, highest = float(values.min()), float(high.max())
    if lowest < 0.0 or max(lowest, shift) == 0.0:
        return
    if has_zero := lowest == 0.0:
        ax.set_yscale("function", functions=(lambda y: np.log(np.maximum(y, 0.0) + shift), lambda z: np.exp(z) - shift))
        bottom, first = 0.0, shift
    else:
        ax.set_yscale("log")
        bottom = first = max(float(low.min()), lowest / 3.0)
    ax.set_title(ax.get_title(loc="left") + ", log axis", loc="left", pad=_PAD)
    ax.set_ylim(bottom / _MARGIN, highest * _MARGIN)
    labelled, between = _round_numbers(first, highest)
    ax.yaxis.set_major_locator(FixedLocator([0.0] * has_zero + labelled))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(FixedLocator(between))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _round_numbers(low: float, high: float) -> tuple[list[float], list[float]]:
    """At most five round numbers between two ends, evenly on a logarithmic axis, and over a few decades all others."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)

    def between(*parts: float) -> list[float]:
        found = (float(f"{part}e{power}") for power in powers for part in parts)
        return [number for number in found if low <= number <= high]

    choices = between(1, 1.5, 2, 3, 5, 7), between(1, 2, 3, 5), between(1, 2, 5), between(1, 3), between(1)
    found = next((each for each in choices if len(each) <= _LABELS), choices[-1])
    if len(found) < _FEWEST_LABELS:  # less than half a decade
        found = [
            float(tick)
            for tick in MaxNLocator(_LABELS - 1, steps=[1, 2, 5, 10]).tick_values(low, high)
            if low <= tick <= high
        ]
    others = between(*range(1, 10)) if math.log10(high / low) < _DECADES else []
    return found[:: -(-len(found) // _LABELS) or 1], [number for number in others if number not in found]
