from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cgp import plotting
from cgp.plotting import PALETTE, attention_matrix, curves, posterior_bands, style, uncertainty_histograms
from cgp.plotting.style import RC, line_look
from tests.cgp.plotting.conftest import legend, luminance

RUNS = np.array([[0.9, 0.8, 0.4], [0.8, 0.6, 0.6]])


def test_mean_and_one_standard_deviation():
    ax = curves([0, 1, 3], {"a": RUNS, "b": [0.5, 0.4, 0.3]}, xlabel="Severity", ylabel="NLL")
    a, b = ax.lines
    np.testing.assert_allclose(a.get_ydata(), [0.85, 0.7, 0.5])
    np.testing.assert_allclose(a.get_xdata(), [0, 1, 3])
    np.testing.assert_allclose(b.get_ydata(), [0.5, 0.4, 0.3])
    (band,) = ax.collections  # one run has no deviation
    vertices = band.get_paths()[0].vertices
    sd = RUNS.std(axis=0, ddof=1)
    for x, mean, width in zip([0, 1, 3], RUNS.mean(0), sd, strict=True):
        at = np.unique(vertices[vertices[:, 0] == x, 1])
        np.testing.assert_allclose((at.min(), at.max()), (mean - width, mean + width))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Severity", "NLL")
    assert legend(ax.figure) == ["a", "b"]


def test_gaps_of_runs_that_broke_off_and_scale():
    ax = curves([1, 2, 3], {"NLL": [[2.0, np.nan, np.nan], [4.0, 3.0, np.nan]], "KL": RUNS}, yscale="log")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [3, 3, np.nan])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), RUNS.mean(0))
    assert ax.get_yscale() == "log"


def stairs(ax, index):
    """Values and edges of the outline of a group (each has a filled twin before it)."""
    data = ax.patches[2 * index + 1].get_data()
    return data.values, data.edges


def test_histograms_are_shares_on_common_edges():
    test, noise = np.array([0.0, 0.55, 0.6, 0.9]), np.array([0.95, 1.0])
    ax = uncertainty_histograms({"test": test, "noise": noise}, bins=4, xlabel="Entropy")
    for index, values in enumerate((test, noise)):
        share, edges = stairs(ax, index)
        assert edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
        assert share.tolist() == (np.histogram(values, edges)[0] / len(values)).tolist()
    assert (ax.get_xlabel(), ax.get_xlim(), ax.get_xscale()) == ("Entropy", (0, 1), "linear")
    assert legend(ax.figure) == ["test", "noise"]


def test_crowded_scores_are_spread_over_a_logarithmic_axis():
    test, noise = np.geomspace(1e-9, 1e-2, 200), np.linspace(0.5, 2, 100)
    ax = uncertainty_histograms({"test": test, "noise": noise}, bins=20)
    assert ax.get_xlabel() == "Uncertainty (nats)"  # of whatever kind
    assert ax.get_xscale() == "log"
    share, edges = stairs(ax, 0)
    assert share.sum() == pytest.approx(1)
    assert edges[0] >= 1e-4 * noise.max() * (1 - 1e-9)
    assert (stairs(ax, 1)[0] > 0).sum() > 2
    assert uncertainty_histograms({"test": test}, limits=(0, 1)).get_xscale() == "linear"
    short = uncertainty_histograms({"test": np.geomspace(0.05, 2, 50)}, xscale="log")
    short.figure.canvas.draw()
    assert {"0.1", "0.2", "0.5", "1", "2"} <= {text.get_text() for text in short.get_xticklabels()}


def test_a_first_bin_with_what_lies_below_it_says_so():
    first = {}
    for name, low in (("all", 1e-2), ("below", 1e-6)):
        ax = uncertainty_histograms({"test": [low, 0.02, 0.5, 1.0]}, xscale="log", limits=(1e-2, 1.0))
        first[name] = ax.get_xticklabels()[0].get_text(), ax.get_xticks()[0]
    assert first["below"] == ("≤ 0.01", 1e-2)
    assert "≤" not in first["all"][0]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.lists(st.floats(0, 5), min_size=1, max_size=20))
@settings(max_examples=30)
def test_no_input_falls_out_of_the_histograms(first, second):
    for groups in ({"one": first, "other": second}, {"one": second, "other": np.square(second)}):
        ax = uncertainty_histograms(groups, ax=Figure().add_subplot())
        for index in range(2):
            assert stairs(ax, index)[0].sum() == pytest.approx(1)


def test_settings_are_put_back():
    before = dict(mpl.rcParams)
    with style():
        assert mpl.rcParams["font.size"] == RC["font.size"]
    plotting.risk_coverage({"a": ([0.5], [1])})
    assert dict(mpl.rcParams) == before


def test_lines_are_legible_on_white_and_distinct_without_colour():
    contrast = [1.05 / (luminance(colour) + 0.05) for colour in PALETTE]
    assert min(contrast) > 2.1  # the lightest, orange, is the sixth
    assert min(contrast[:3]) > 3
    looks = [line_look(index) for index in range(2 * len(PALETTE))]
    assert len({(look["marker"], str(look["ls"])) for look in looks}) == len(looks)


def test_given_axes_are_used_and_their_figure_is_not_resized():
    figure, axes = plt.subplots(1, 2)
    size = tuple(figure.get_size_inches())
    ax = curves([0, 1], {f"method {i}": [1, 2] for i in range(9)}, ax=axes[1])
    assert ax is axes[1]
    assert tuple(figure.get_size_inches()) == size
    assert len(legend(ax)) == 9
    assert not axes[0].lines


def test_legend_of_a_new_figure_covers_no_data_and_is_not_clipped():
    values = {f"a method of a rather long name {i}": [1, 2] for i in range(9)}
    ax = curves([0, 1], values, ylabel="Negative log-likelihood")
    figure = ax.figure
    figure.canvas.draw()
    words = figure.legends[0].get_window_extent()
    assert not words.overlaps(ax.get_window_extent())
    for part in (words, ax.yaxis.label.get_window_extent(), ax.xaxis.label.get_window_extent()):
        assert figure.bbox.padded(1).count_contains(part.corners()) == 4


def test_bands_are_95_percent_and_show_what_was_observed():
    x = np.array([2.0, 0.0, 1.0])
    mean, sd = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), np.full((3, 2), 0.5)
    observed = np.array([[1.0, np.nan], [np.nan, 5.0]])
    axes = posterior_bands(x, mean, sd, observed_x=[0.0, 1.0], observed_y=observed, names=["a (m)", "b"])
    in_columns = posterior_bands(x[:, None], mean, sd, observed_x=[[0.0], [1.0]], observed_y=observed)
    line, points = axes[0].lines
    assert in_columns[0].lines[1].get_xydata().tolist() == points.get_xydata().tolist()
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [1, 2, 3]
    assert points.get_xydata().tolist() == [[0, 1]]
    assert axes[1].lines[1].get_xydata().tolist() == [[1, 5]]
    edges = axes[0].collections[0].get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(1 - 0.98)
    assert edges[:, 1].max() == pytest.approx(3 + 0.98)
    assert [ax.get_ylabel() for ax in axes] == ["a (m)", "b"]


MATRIX = np.random.default_rng(0).dirichlet(np.ones(5), size=5)


def test_matrix_its_asymmetry_and_its_deviations():
    sd = np.linspace(0.1, 0.5, 5)
    matrix, asymmetry, deviations = attention_matrix(torch.tensor(MATRIX, requires_grad=True), sd)
    shown, antisymmetric = matrix.images[0], asymmetry.images[0]
    np.testing.assert_array_equal(shown.get_array(), MATRIX)
    assert shown.get_clim() == (0, MATRIX.max())
    part = np.asarray(antisymmetric.get_array())
    np.testing.assert_allclose(part, (MATRIX - MATRIX.T) / 2)
    assert antisymmetric.get_clim() == (-np.abs(part).max(), np.abs(part).max())
    assert [bar.get_width() for bar in deviations.containers[0]] == sd.tolist()
    assert deviations.get_ylim() == (4.5, -0.5)  # rows run downwards as those of the matrix


def test_symmetric_matrix_has_no_asymmetry_and_negative_ones_are_centred():
    symmetric = MATRIX + MATRIX.T - 0.5
    matrix, asymmetry = attention_matrix(symmetric)
    assert not np.asarray(asymmetry.images[0].get_array()).any()
    low, high = matrix.images[0].get_clim()
    assert low == -high == -np.abs(symmetric).max()


@pytest.mark.parametrize(
    ("marked", "line", "said"),
    [
        ({}, 0.1, ["smallest"]),
        ({"chosen": "ridge"}, 0.3, ["recommended"]),
        ({"chosen": "ridge", "ahead": "lines"}, 0.3, ["recommended", "ahead, but not surely"]),
    ],
)
def test_the_line_through_scores_is_the_recommended_method(marked, line, said):
    """Or the smallest score, where none is recommended; one that was ahead is a circle."""
    figure = Figure(layout="constrained")
    (ax,) = plotting.method_scores({"gaps of 1": {"lines": (0.1, 0.02), "ridge": (0.3, 0.1)}}, figure=figure, **marked)
    (dashed,) = (each for each in ax.lines if each.is_dashed())
    assert set(dashed.get_xdata()) == {line}
    (shown,) = figure.legends
    assert [text.get_text() for text in shown.get_texts()] == said
    open_ones = [each.lines[0].get_markerfacecolor() == "white" for each in ax.containers]
    assert open_ones == ["ahead" in marked, False]


@pytest.mark.parametrize("panels", [1, 2, 4, 6])
def test_numbers_below_scores_do_not_touch(panels):
    """However many panels share the width."""
    scores = {"lines": (-0.6, 0.02), "ridge": (-0.25, 0.02), "cgp": (-0.05, 0.02)}
    axes = plotting.method_scores({f"gaps of {n}": scores for n in range(panels)})
    axes[0].figure.draw_without_rendering()
    for ax in axes:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        low, high = ax.get_xlim()
        shown = [box for box, tick in zip(boxes, ax.get_xticks(), strict=True) if low <= tick <= high]
        assert len(shown) >= 2
        assert all(first.x1 + 3 < second.x0 for first, second in pairwise(shown))


def test_scores_within_the_error_bars_of_others_are_no_arrows():
    """Where most methods are level; one that is farther than all bars is an arrow."""
    level = {name: (1.0 + 0.01 * k, 0.1) for k, name in enumerate("abc")}
    panels = {"gaps of 1": level | {"near": (1.15, 0.1), "far": (1.5, 0.1)}}
    (ax,) = plotting.method_scores(panels, figure=Figure())
    assert [text.get_text() for text in ax.texts] == ["1.5 →"]
    assert len(ax.containers) == 4


def test_scores_within_the_axis_as_drawn_are_no_arrows():
    """Its margin has room, also for one that is beyond all bars."""
    level = {name: (0.5 + 0.01 * k, 0.1) for k, name in enumerate("abc")}
    (ax,) = plotting.method_scores({"gaps of 1": {"beyond": (0.735, 0.01)} | level}, figure=Figure())
    assert [text.get_text() for text in ax.texts] == []
    assert len(ax.containers) == 4
    assert ax.get_xlim()[1] > 0.755  # and for its bar
