import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from cgp.plotting import (
    COLUMN,
    PALETTE,
    curves,
    reliability_diagram,
    risk_coverage,
    style,
)
from cgp.plotting.style import RC, line_look


def luminance(colour):
    """Relative luminance (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def test_settings_are_put_back():
    before = dict(mpl.rcParams)
    with style():
        assert mpl.rcParams["font.size"] == RC["font.size"]
    risk_coverage({"a": ([0.5], [1])})
    assert dict(mpl.rcParams) == before


def test_lines_are_legible_on_white_and_told_apart_without_colour():
    contrast = [1.05 / (luminance(colour) + 0.05) for colour in PALETTE]
    assert min(contrast) > 2.1  # the lightest, orange, is the sixth
    assert min(contrast[:3]) > 3
    looks = [line_look(index) for index in range(2 * len(PALETTE))]
    assert len({(look["marker"], str(look["ls"])) for look in looks}) == len(looks)


@pytest.mark.parametrize("draw", [lambda: reliability_diagram([0.5], [1]), lambda: curves([0, 1], {"a": [1, 2]})])
def test_new_figure_has_the_width_of_a_column(draw):
    figure = draw().figure
    assert figure.get_figwidth() == COLUMN
    assert figure.get_facecolor() == (1, 1, 1, 1)


def test_given_axes_are_used_and_their_figure_is_not_resized():
    figure, axes = plt.subplots(1, 2)
    size = tuple(figure.get_size_inches())
    ax = curves([0, 1], {f"method {i}": [1, 2] for i in range(9)}, ax=axes[1])
    assert ax is axes[1]
    assert tuple(figure.get_size_inches()) == size
    assert len(ax.get_legend().get_texts()) == 9
    assert not axes[0].lines


def test_legend_of_a_new_figure_covers_no_data_and_is_not_clipped():
    ax = curves(
        [0, 1], {f"a method of a rather long name {i}": [1, 2] for i in range(9)}, ylabel="Negative log-likelihood"
    )
    figure = ax.figure
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not legend.overlaps(ax.get_window_extent())
    for part in (legend, ax.yaxis.label.get_window_extent(), ax.xaxis.label.get_window_extent()):
        assert figure.bbox.padded(1).containsx(part.x0)
        assert figure.bbox.padded(1).containsx(part.x1)
        assert figure.bbox.padded(1).containsy(part.y0)
        assert figure.bbox.padded(1).containsy(part.y1)
