import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from cgp.plotting import text_uncertainties
from cgp.plotting.style import INK, WIDE
from cgp.plotting.tokens import _COLOURS, _wrapped
from tests.cgp.plotting.conftest import luminance

TEXT = "The data set contains images of hand-written digits:\n10 classes where each class refers to a digit."


def text_uncertainty(characters, values, **options):
    return text_uncertainties({"": (characters, values)}, **options)[0]


def rows(text, width):
    return [text[line.start : line.stop] for line in _wrapped(text, width)]


def test_lines_break_between_words():
    assert rows("so it is", 5) == ["so it", " is"]
    assert rows("a\n\nb", 9) == ["a\n", "\n", "b"]
    assert rows("abcdefg hi", 3) == ["abc", "def", "g ", "hi"]
    assert rows("ab abcdefg", 4) == ["ab a", "bcde", "fg"]


@pytest.mark.parametrize("width", [1, 2, 7, 30, 200])
def test_every_character_has_one_place_within_the_width(width):
    lines = _wrapped(TEXT, width)
    assert [index for line in lines for index in line] == list(range(len(TEXT)))
    assert all(len(TEXT[line.start : line.stop].rstrip()) <= width for line in lines)


def test_each_letter_stands_on_its_value():
    values = np.arange(len(TEXT)) / len(TEXT)
    ax = text_uncertainty(TEXT, values)
    cells = np.ma.asarray(ax.images[0].get_array())
    drawn = {(int(t.get_position()[0]), int(t.get_position()[1])): t.get_text() for t in ax.texts}
    for row, line in enumerate(_wrapped(TEXT, 72)):
        for column, index in enumerate(line):
            assert cells[row, column] == values[index]
            expected = {"\n": "↵", " ": None}.get(TEXT[index], TEXT[index])
            assert drawn.get((column, row)) == expected
    assert cells.count() == len(TEXT)
    assert all(t.get_family() == ["monospace"] for t in ax.texts)


def test_missing_values_are_left_white_and_the_scale_starts_at_zero():
    ax = text_uncertainty("abc", torch.tensor([float("nan"), 0.2, 0.5]), label="bits")
    assert ax.images[0].get_array().mask[0, :3].tolist() == [True, False, False]
    assert ax.images[0].get_clim() == (0, 0.5)
    assert ax.figure.axes[1].get_xlabel() == "bits"
    assert text_uncertainty("ab", [np.nan, np.nan]).images[0].get_clim() == (0, 1)


def test_letters_are_legible_on_every_colour():
    paper = np.array([luminance(_COLOURS(level)) for level in np.linspace(0, 1, 50)])
    assert (np.diff(paper) < 0).all()  # legible in grey print and to the colour-blind
    assert (paper.min() + 0.05) / (luminance(INK) + 0.05) > 7


def test_letters_fit_their_cells():
    ax = text_uncertainty(TEXT.replace(" ", "m"), np.ones(len(TEXT)))
    figure = ax.figure
    assert figure.get_figwidth() == WIDE
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    cell = ax.transData.transform([(0, 0), (1, 0)])
    widest = max(text.get_window_extent(renderer).width for text in ax.texts if text.get_text() == "m")
    assert widest <= (cell[1] - cell[0])[0] * 1.05
    lines = ax.get_window_extent(renderer).height / ax.images[0].get_array().shape[0]
    assert lines > max(text.get_window_extent(renderer).height for text in ax.texts)


def test_several_texts_share_one_scale():
    axes = text_uncertainties({"one": ("so it is", np.full(8, 0.1)), "two $x$": ("is it", np.full(5, 0.4))})
    assert [ax.get_title(loc="left") for ax in axes] == ["one", "two $x$"]
    assert [ax.images[0].get_clim() for ax in axes] == [(0, 0.4)] * 2
    assert len(axes[0].figure.axes) == 3
    left, right = plt.figure(layout="constrained").subfigures(1, 2)
    assert text_uncertainties({"one": ("so", [0, 1])}, figure=right)[0] in right.axes
    assert not left.axes


def test_characters_without_a_glyph_are_marked():
    ax = text_uncertainty(["a", "\x00", "\t"], [0, 0, 0], figure=Figure())
    assert [text.get_text() for text in ax.texts] == ["a", "�"]
