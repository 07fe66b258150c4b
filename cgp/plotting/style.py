"""Common style of all pictures: dark on white, colour-blind safe, legible at the width of a printed column."""

import functools
import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

__all__ = ["COLUMN", "PALETTE", "WIDE", "style"]

COLUMN = 3.4
"""Width of a column in inches."""
WIDE = 7.0
"""Width of a page of two columns in inches."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
"""Okabe and Ito's colours that are legible on white, ordered so that neighbours differ in lightness too."""

INK, GREY, PALER, PALE = "#222222", "#767676", "#BDBDBD", "#E4E4E4"
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
_FEW_POWERS = 300.0  # from the low to the high end of an axis
_MARKERS, _DASHES = "osD^vP*", ("-", "--", ":")

_TICKS = ("xtick", "ytick")
RC: Mapping[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "white"),
    **dict.fromkeys(("text.color", "axes.labelcolor", *(f"{axis}.labelcolor" for axis in _TICKS)), INK),
    **dict.fromkeys(("axes.edgecolor", *(f"{axis}.color" for axis in _TICKS)), GREY),
    **dict.fromkeys(("axes.linewidth", *(f"{axis}.major.width" for axis in _TICKS)), 0.7),
    **{f"{axis}.{which}.size": size for axis in _TICKS for which, size in (("major", 2.5), ("minor", 0))},
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.grid", "legend.frameon"), False),
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.handlelength": 1.8,
    "figure.dpi": 150,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # text stays text: searchable, and accepted by publishers
    "svg.fonttype": "none",
}
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def style() -> Iterator[None]:
    """Use the style for the figures drawn inside a ``with`` block.

    All functions of this package use it; enter it to create axes that you pass to them.

    Yields:
        Nothing.

    Example:
        >>> with style():
        ...     size = mpl.rcParams["font.size"]
        >>> size
        8.0
    """
    with mpl.rc_context(dict(RC)):
        yield


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Make a function draw in the style."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with style():
            return draw(*args, **kwargs)

    return wrapper


def new_axes(
    ax: Axes | None,
    *,
    width: float = COLUMN,
    height: float = 2.5,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> Axes:
    """The given axes, or those of a new figure, without a frame above and to the right."""
    if ax is None:
        ax = plt.subplots(figsize=(width, height), layout=layout)[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def new_figure(figure: FigureBase | None, *, width: float, height: float) -> FigureBase:
    """The given figure, or a new one."""
    return plt.figure(figsize=(width, height), layout="constrained") if figure is None else figure


def as_png(figure: Figure, dots: int = 180) -> bytes:
    """A figure as a picture, of so many dots for an inch."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dots)
    return buffer.getvalue()


def embedded(png: bytes) -> str:
    """A picture as an address within a page."""
    return f"data:image/png;base64,{b64encode(png).decode('ascii')}"


def percent(*axes: Axis) -> None:
    """Label fractions as percent."""
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis with plain numbers: powers of ten or, where few, 1, 2, 5 times them, or round ones."""
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < _FEW_POWERS * low else (1.0,))
    shown = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
    axis.set_major_locator(locator if len(shown) > 2 else MaxNLocator(4, steps=[1, 2, 5, 10], min_n_ticks=3))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def line_look(index: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line of that number: distinct in colour, in shape, and after 7 in dashes."""
    size = len(PALETTE)
    return {
        "color": PALETTE[index % size],
        "marker": _MARKERS[index % size],
        "ls": _DASHES[index // size % len(_DASHES)],
    }


def place_legend(ax: Axes, *, outside: bool, loc: Any = "best") -> None:
    """Legend beneath the axes of a new figure, otherwise where it covers least."""
    handles, labels = ax.get_legend_handles_labels()
    figure = ax.figure
    if not labels:
        return
    if not (outside and isinstance(figure, Figure)):
        ax.legend(loc=loc)
        return
    entry = 0.45 + 0.058 * max(len(label) for label in labels)  # inches, at 7 points
    columns = max(1, min(len(labels), int(figure.get_figwidth() / entry)))
    # The legend gets additional space: the axes keep their requested size.
    figure.set_figheight(figure.get_figheight() + 0.155 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
