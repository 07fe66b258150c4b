"""Tokens: their attention matrix, its asymmetry and its uncertainty, and uncertainty shown on text."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import FigureBase
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_matching
from cgp.plotting.style import DIVERGING, GREY, INK, PALE, PALETTE, SEQUENTIAL, WIDE, new_axes, new_figure, styled

__all__ = ["attention_matrix", "text_uncertainties"]

# Light enough everywhere that the letters keep a contrast of 7 to 1.
_COLOURS = LinearSegmentedColormap.from_list("paper to orange", ["#FFFFFF", "#F7D58B", PALETTE[5]])
_ADVANCE = 0.602  # width of a monospaced letter, in units of its size
_LEADING = 1.5
_LARGEST = 9.0
_WIDTH = 72
_LINE_HEIGHT = min(_LARGEST / 72, (WIDE - 0.2) / (_WIDTH + 1) / _ADVANCE) * _LEADING  # in inches, on a page
_RETURN, _UNPRINTABLE = "↵", "�"


@styled
def text_uncertainties(
    passages: Mapping[str, tuple[Sequence[str], Any]],
    *,
    label: str = "Epistemic uncertainty (nats)",
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:
    """Texts, one below the other, with the uncertainty of each character as its background colour.

    Lines are wrapped after 72 columns, between words where possible; colours run from zero to the largest value of all.

    Args:
        passages: For each title, n characters, whose line breaks are kept and marked, and their uncertainties (n,);
            NaN, shown white, for characters without a value.
        label: Name of the colour bar.
        figure: Figure or subfigure to draw in; by default a new one of two columns' width.

    Returns:
        Axes of the passages.

    Raises:
        ValueError: If there is no passage, or one has not one non-negative value per character.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = text_uncertainties({"a": ("so", [0, 1]), "b": ("is", [2, 3])}, figure=Figure())
        >>> [(ax.get_title(loc="left"), ax.images[0].get_clim()) for ax in axes]
        [('a', (0.0, 3.0)), ('b', (0.0, 3.0))]
    """
    if not passages:
        raise ValueError("passages must hold at least one text, got none")
    drawn = {title: _Passage(*passage) for title, passage in passages.items()}
    lines = [len(passage.lines) for passage in drawn.values()]
    height = sum(lines) * _LINE_HEIGHT + 0.32 * len(lines) + 0.65
    figure = new_figure(figure, width=WIDE, height=height)
    axes = figure.subplots(len(lines), 1, squeeze=False, height_ratios=lines)[:, 0]
    largest = max(np.nanmax(passage.values, initial=0.0) for passage in drawn.values()) or 1.0
    for ax, (title, passage) in zip(axes, drawn.items(), strict=True):
        shown = passage.draw(new_axes(ax), float(largest))
        ax.set_title(title, loc="left", pad=4, parse_math=False)
    place: dict[str, Any] = {
        "location": "bottom",
        "shrink": 0.4,
        "aspect": 35,
        "pad": 0.02,
        "anchor": (0.0, 1.0),
        "panchor": False,
    }
    bar = figure.colorbar(shown, ax=list(axes), ticks=MaxNLocator(4), **place)
    bar.set_label(label)
    bar.outline.set(edgecolor=PALE, linewidth=0.5)
    return np.asarray(axes, dtype=np.object_)


class _Passage:
    """A text cut into lines, with its values."""

    def __init__(self, characters: Sequence[str], values: Any) -> None:
        self.characters, self.values = _checked(characters, values)
        self.lines = _wrapped("".join(self.characters), _WIDTH)
        self.columns = _WIDTH + 1  # a line break may stand behind the last word

    def draw(self, ax: Axes, largest: float) -> AxesImage:
        cells = np.full((len(self.lines), self.columns), np.nan)
        size = _font_size(ax, self.columns)
        for row, line in enumerate(self.lines):
            cells[row, : len(line)] = self.values[line.start : line.stop]
            for column, index in enumerate(line):
                self._letter(ax, self.characters[index], column, row, size)
        grid = np.ma.masked_invalid(cells)
        shown = ax.imshow(grid, cmap=_COLOURS, vmin=0.0, vmax=largest, aspect=_LEADING / _ADVANCE)
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
    """Positions of the characters of each line; every character is in one."""
    lines, start = [], 0
    for paragraph in re.findall(r"[^\n]*\n|[^\n]+", text):
        body = paragraph.removesuffix("\n")
        kept = textwrap.wrap(body, width, drop_whitespace=False, replace_whitespace=False, expand_tabs=False)
        pieces = kept or [""]
        pieces[-1] += paragraph[len(body) :]
        for piece in pieces:
            lines.append(range(start, start + len(piece)))
            start += len(piece)
    return lines


def _font_size(ax: Axes, columns: int) -> float:
    """As large as the cells allow, in points."""
    box = ax.get_window_extent()
    points = 72 / ax.figure.dpi
    return min(_LARGEST, 0.97 * box.width * points / columns / _ADVANCE)


@styled
def attention_matrix(matrix: Any, sd: Any = None, *, figure: FigureBase | None = None) -> NDArray[np.object_]:
    r"""An attention matrix, its antisymmetric part :math:`(A - A^\top) / 2`, and the predictive sd in each query's row.

    Args:
        matrix: Weights of the keys (columns) for each query (rows), (n, n); cross-covariances may be negative.
        sd: Predictive standard deviation of each query's output (n,), or None.
        figure: Figure or subfigure to draw in; by default a new one of two columns' width.

    Returns:
        Axes of the matrix, of the antisymmetric part, and of the deviations, an inset beside the matrix, where given.

    Raises:
        ValueError: If the matrix is not square or the deviations are not n non-negative numbers.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = attention_matrix([[0.5, 0.5], [0.1, 0.9]], figure=Figure())
        >>> axes[1].images[0].get_array().tolist()
        [[0.0, 0.2], [-0.2, 0.0]]
    """
    matrix = as_array(matrix, "matrix", 2)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got shape {matrix.shape}")
    deviations = None if sd is None else as_matching(sd, "sd", (len(matrix),))
    if deviations is not None and deviations.min() < 0:
        raise ValueError(f"sd must not be negative, got a smallest value of {deviations.min():.3g}")
    figure = new_figure(figure, width=WIDE, height=3.4)
    axes = list(figure.subplots(1, 2))
    _heat(axes[0], matrix, "attention", diverging=bool(matrix.min() < 0))
    _heat(axes[1], (matrix - matrix.T) / 2, "antisymmetric part", diverging=True)
    axes[0].set_ylabel("Query")
    if deviations is not None:
        axes.append(_deviations_beside(axes[0], deviations))
    return np.asarray(axes, dtype=np.object_)


def _heat(ax: Axes, values: Array, title: str, *, diverging: bool) -> None:
    bound = float(np.abs(values).max()) or 1.0
    low, colours = (-bound, DIVERGING) if diverging else (0.0, SEQUENTIAL)
    shown = ax.imshow(values, interpolation="nearest", cmap=colours, vmin=low, vmax=bound)
    ax.set(title=title, xlabel="Key")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    bar = ax.figure.colorbar(shown, ax=ax, location="bottom", shrink=0.8, pad=0.03, aspect=30, ticks=MaxNLocator(5))
    bar.outline.set_visible(False)


def _deviations_beside(matrix: Axes, sd: Array) -> Axes:
    """Bars beside the rows of the matrix, aligned with them for any layout."""
    ax = matrix.inset_axes((1.04, 0, 0.28, 1), sharey=matrix)
    ax.barh(np.arange(len(sd)), sd, height=0.9, color=PALETTE[0])
    ax.set(title="predictive sd", xlim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelleft=False)
    ax.xaxis.set_major_locator(MaxNLocator(2))
    return ax
