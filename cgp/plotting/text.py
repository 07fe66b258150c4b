"""Uncertainty shown on the text it is about."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import FigureBase
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array
from cgp.plotting.style import GREY, INK, PALE, PALETTE, WIDE, new_axes, new_figure, styled

__all__ = ["text_uncertainties"]

# Light enough everywhere that the letters keep a contrast of 7 to 1.
_COLOURS = LinearSegmentedColormap.from_list("paper to orange", ["#FFFFFF", "#F7D58B", PALETTE[5]])
_ADVANCE = 0.602  # width of a monospaced letter, in units of its size
_LEADING = 1.5
_LARGEST = 9.0
_RETURN, _UNPRINTABLE = "↵", "�"


@styled
def text_uncertainties(
    passages: Mapping[str, tuple[Sequence[str], Any]],  # characters and values of shape (n,), by title
    *,
    width: int = 72,
    limits: tuple[float, float] | None = None,
    label: str = "Epistemic uncertainty (nats)",
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:  # shape: (number of passages,)
    """Texts, one below the other, in which the background of each character tells how uncertain it is.

    Args:
        passages: For each title, n characters, whose line breaks are kept and marked, and their uncertainties (n,);
            NaN, left white, where there is none.
        width: Columns after which lines are wrapped, between words where possible.
        limits: Range of the colours, larger values in the last; without, from zero to the largest value of all.
        label: Name of the colour bar.
        figure: Figure or subfigure to draw in; without, a new one of two columns' width.

    Returns:
        Axes of the passages.

    Raises:
        ValueError: If there is no passage, one has not one non-negative value per character, or the width is below one.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = text_uncertainties({"a": ("so", [0, 1]), "b": ("is", [2, 3])}, figure=Figure())
        >>> [(ax.get_title(loc="left"), ax.images[0].get_clim()) for ax in axes]
        [('a', (0.0, 3.0)), ('b', (0.0, 3.0))]
    """
    if not passages:
        raise ValueError("passages must hold at least one text, got none")
    drawn = {title: _Passage(*passage, width) for title, passage in passages.items()}
    lines = [len(passage.lines) for passage in drawn.values()]
    height = sum(lines) * _line_height(width) + 0.32 * len(lines) + 0.65
    figure = new_figure(figure, width=WIDE, height=height)
    axes = figure.subplots(len(lines), 1, squeeze=False, height_ratios=lines)[:, 0]
    limits = limits or (0.0, max(passage.limits[1] for passage in drawn.values()))
    for ax, (title, passage) in zip(axes, drawn.items(), strict=True):
        shown = passage.draw(new_axes(ax), limits)
        ax.set_title(title, loc="left", pad=4, parse_math=False)
    _bar(figure, shown, list(axes), label, beyond=any(passage.limits[1] > limits[1] for passage in drawn.values()))
    return np.asarray(axes, dtype=np.object_)


class _Passage:
    """A text cut into lines, with its values."""

    def __init__(self, characters: Sequence[str], values: Any, width: int) -> None:
        self.characters, self.values = _checked(characters, values)
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        self.lines = _wrapped("".join(self.characters), width)
        self.columns = max(width + 1, *map(len, self.lines))  # a space or a line break may stand behind the last word

    @property
    def limits(self) -> tuple[float, float]:
        largest = np.nanmax(self.values, initial=0.0)
        return 0.0, float(largest) or 1.0

    def draw(self, ax: Axes, limits: tuple[float, float]) -> AxesImage:
        cells = np.full((len(self.lines), self.columns), np.nan)
        size = _font_size(ax, self.columns)
        for row, line in enumerate(self.lines):
            cells[row, : len(line)] = self.values[line.start : line.stop]
            for column, index in enumerate(line):
                self._letter(ax, self.characters[index], column, row, size)
        grid = np.ma.masked_invalid(cells)
        shown = ax.imshow(grid, cmap=_COLOURS, vmin=limits[0], vmax=limits[1], aspect=_LEADING / _ADVANCE)
        ax.set(xticks=[], yticks=[], anchor="NW")
        ax.spines[:].set_visible(False)
        return shown

    def _letter(self, ax: Axes, character: str, column: int, row: int, size: float) -> None:
        """One character in the middle of its cell; blanks need no ink."""
        if character != "\n" and character.isspace():
            return
        shown = _RETURN if character == "\n" else character if character.isprintable() else _UNPRINTABLE
        colour = GREY if character == "\n" else INK
        ax.text(column, row + 0.22, shown, color=colour, fontsize=size, family="monospace", ha="center",
                va="baseline", parse_math=False)  # fmt: skip


def _checked(characters: Sequence[str], values: Any) -> tuple[list[str], Array]:
    letters: list[Any] = list(characters)
    if not letters or any(not isinstance(letter, str) or len(letter) != 1 for letter in letters):
        raise ValueError("characters must be a non-empty text, or a sequence of single characters")
    array = as_array(values, "values", 1, finite=False)
    if array.shape != (len(letters),):
        raise ValueError(f"values must have shape {(len(letters),)}, one a character, got {array.shape}")
    if np.isinf(array).any() or np.nanmin(array, initial=0.0) < 0:
        raise ValueError("values must be finite and not negative, or NaN")
    return letters, array


def _wrapped(text: str, width: int) -> list[range]:
    """Positions of the characters of each line; blanks may hang over its end by one column."""
    lines, start, end = [], 0, 0
    for piece in re.finditer(r"\n|[^\S\n]|\S+", text):
        is_word = not piece.group().isspace()
        if is_word and piece.end() - start > width and end > start:
            lines.append(range(start, end))
            start = end
        end = piece.end()
        room = width if is_word else width + 1
        while end - start > room:  # longer than a line
            lines.append(range(start, start + width))
            start += width
        if piece.group() == "\n":
            lines.append(range(start, end))
            start = end
    return [*lines, range(start, end)] if end > start else lines


def _line_height(width: int) -> float:
    """Height of a line, in inches, where the text is as wide as a page."""
    return min(_LARGEST / 72, (WIDE - 0.2) / (width + 1) / _ADVANCE) * _LEADING


def _font_size(ax: Axes, columns: int) -> float:
    """As large as the cells allow, in points."""
    box = ax.get_window_extent()
    points = 72 / ax.figure.dpi
    return min(_LARGEST, 0.97 * box.width * points / columns / _ADVANCE)


def _bar(figure: Any, shown: AxesImage, axes: list[Axes], label: str, *, beyond: bool) -> None:
    place = {"location": "bottom", "shrink": 0.4, "aspect": 35, "pad": 0.02, "anchor": (0.0, 1.0), "panchor": False}
    extend = "max" if beyond else "neither"
    bar = figure.colorbar(shown, ax=axes, ticks=MaxNLocator(4), extend=extend, **place)
    bar.set_label(label)
    bar.outline.set(edgecolor=PALE, linewidth=0.5)
