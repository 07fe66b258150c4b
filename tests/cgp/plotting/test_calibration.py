import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy.stats import binomtest

from cgp.networks.tasks.metrics import aurc
from cgp.plotting import PALETTE, interval_coverage, method_scores, reliability_diagram, risk_coverage, style
from experiments.evaluation.protocols import reliability_bins
from tests.cgp.plotting.conftest import legend


def heights(container):
    return [bar.get_height() for bar in container]


def points(container):
    """Where the points of an error bar are, and the ends of their intervals."""
    return np.transpose(container.lines[0].get_data()), [each[:, 1] for each in container.lines[2][0].get_segments()]


def test_draws_the_bins():
    """Accuracy by mean confidence with Wilson's intervals; bins of fewer than five are hollow and have none."""
    confidence, correct = np.array([0.55, *[0.95] * 3, *[0.85] * 3, 0.35]), np.array([1, 1, 1, 1, 0, 0, 1, 0])
    ax = reliability_diagram(confidence, correct, bins=4)
    full, few = ax.containers
    places, (ends,) = points(full)
    np.testing.assert_allclose(places, [[0.9, 4 / 6]])
    known = binomtest(4, 6).proportion_ci(0.95, method="wilson")
    assert ends == pytest.approx([known.low, known.high], abs=1e-6)
    np.testing.assert_allclose(np.transpose(few.lines[0].get_data()), [[0.35, 0], [0.55, 1]])
    assert not few.lines[2]
    assert few.lines[0].get_markerfacecolor() == "white"
    assert legend(ax) == ["calibrated", "accuracy, 95 % interval", "< 5 inputs"]
    assert len(ax.lines) == 3  # what is drawn is in the legend
    assert ax.get_title("right") == "ECE 27.5 %"  # (0.35 + 0.45 + 6 * 0.7 / 3) / 8
    (strip,) = ax.child_axes
    assert heights(strip.containers[0]) == [1, 1, 6]
    assert strip.get_xlabel() == "Confidence"
    assert [strip.yaxis.get_major_formatter()(tick) for tick in (1, 1000)] == ["1", "1,000"]
    assert ax.get_xlim() == ax.get_ylim() == (0, 1)


@pytest.mark.parametrize("count", range(5, 60, 6))
def test_intervals_of_none_and_of_all_begin_at_their_points(count):
    """Which rounding would leave outside of them."""
    for correct, at in ((np.zeros(count), 0.0), (np.ones(count), 1.0)):
        ax = reliability_diagram(np.full(count, 0.9), correct, ax=Figure().add_subplot())
        (ends,) = points(ax.containers[0])[1]
        assert ends[int(at)] == pytest.approx(at, abs=1e-12)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_bins_are_those_of_the_metrics(pairs):
    confidence, correct = map(np.array, zip(*pairs, strict=True))
    ax = reliability_diagram(confidence, correct, ax=Figure().add_subplot())
    bins = reliability_bins(confidence, correct)
    filled = bins.counts > 0
    drawn = np.concatenate([container.lines[0].get_ydata() for container in ax.containers])
    np.testing.assert_allclose(np.sort(drawn), np.sort(bins.accuracy[filled]))
    assert heights(ax.child_axes[0].containers[0]) == bins.counts[filled].tolist()
    assert ax.get_title("right") == f"ECE {100 * bins.expected_error:.1f} %"


def test_risk_coverage_is_that_of_the_metrics():
    generator = np.random.default_rng(0)
    confidence = generator.random(30).round(1)  # with ties
    correct = generator.random(30) < confidence
    ax = risk_coverage({"CGP": (confidence, correct), "all right": (confidence, np.ones(30))})
    kept = np.arange(1, 31)
    risk = np.cumsum(~correct[np.argsort(-confidence, kind="stable")]) / kept
    np.testing.assert_allclose(ax.lines[0].get_data(), (kept[19:] / 30, risk[19:]))
    assert ax.lines[0].get_label() == f"CGP (AURC {100 * aurc(confidence, correct):.2f} %)"
    assert not ax.lines[1].get_ydata().any()
    assert (ax.get_xlim(), ax.get_ylim()[0]) == ((0, 1), 0)


def test_the_band_of_a_risk_is_wilsons_interval():
    """Of the first method, or of the one that stands out; the others would cover each other."""
    generator = np.random.default_rng(0)
    pairs = {name: (generator.random(60), generator.random(60) < share) for name, share in (("a", 0.9), ("b", 0.5))}
    for highlight in (None, "b"):
        ax = risk_coverage(pairs, highlight=highlight, ax=Figure().add_subplot())
        (band,) = ax.collections
        assert band.get_label() == ("95 % interval" if highlight else "95 % interval, of a only")
        line = next(line for line in ax.lines if line.get_label().startswith(("AURC", "a (")))
        assert to_rgb(band.get_facecolor()[0][:3]) == to_rgb(line.get_color())
        confidence, correct = pairs[highlight or "a"]
        wrong, edges = ~correct[np.argsort(-confidence)], band.get_paths()[0].vertices
        for count in (20, 41, 60):
            test = binomtest(int(wrong[:count].sum()), count)
            ends = test.proportion_ci(0.95, method="wilson")
            drawn = edges[np.isclose(edges[:, 0], count / 60), 1]
            assert [drawn.min(), drawn.max()] == pytest.approx([ends.low, ends.high])
        most = 1.2 * max(line.get_ydata().max() for line in ax.lines)
        assert ax.get_ylim()[1] == pytest.approx(max(most, 1.02 * edges[:, 1].max()))  # it is not cut


def test_a_band_far_above_small_risks_does_not_flatten_them():
    last = 1.02 * binomtest(5, 1000).proportion_ci(0.95, method="wilson").high  # more than 1.5 times their rate
    for correct, top in ((np.arange(1000) % 5 != 4, 1.5 * 0.2), (np.arange(1000) < 995, last)):
        ax = risk_coverage({"a": (np.linspace(1, 0, 1000), correct)}, ax=Figure().add_subplot())
        assert ax.get_ylim()[1] == pytest.approx(top, rel=1e-3)
        (band,) = ax.collections
        edges = band.get_paths()[0].vertices
        assert edges[:, 1].max() <= top
        assert edges[:, 0].min() <= 0.5  # it begins where it fits, and at half coverage


def test_a_line_on_another_is_dashed_and_the_band_is_last_in_the_legend():
    pair, other = ([0.9, 0.6, 0.5], [True, False, True]), ([0.9, 0.6, 0.5], [False, True, True])
    ax = risk_coverage({"a": pair, "b": pair, "c": other}, ax=Figure().add_subplot())
    assert [line.is_dashed() for line in ax.lines] == [False, True, False]
    assert legend(ax)[-1] == "95 % interval, of a only"


@pytest.mark.parametrize(("count", "drawn"), [(5, 5), (20, 20), (21, 2)])
def test_risk_coverage_starts_at_twenty_answers_if_there_are_more(count, drawn):
    ax = risk_coverage({"a": (np.linspace(1, 0, count), np.arange(count) > 0)}, ax=Figure().add_subplot())
    assert len(ax.lines[0].get_xdata()) == drawn


def test_one_method_stands_out():
    pair = ([0.9, 0.6], [True, False])
    ax = risk_coverage({"a": pair, "b": pair, "c": pair}, highlight="b", ax=Figure().add_subplot())
    assert legend(ax)[0] == "AURC 25.00 %"
    assert set(legend(ax)[1:]) == {"other methods", "95 % interval"}
    b, a, c = (line.get_color() for line in ax.lines)
    assert a == c != b


def test_coverage_counts_observations_inside():
    ax = interval_coverage({"right": np.linspace(0.005, 0.995, 100), "sure": [0.0, 1.0]})
    diagonal, right, sure = ax.lines
    assert legend(ax.figure) == ["calibrated", "right", "sure"]
    assert list(diagonal.get_ydata()) == [0, 1]
    np.testing.assert_allclose(right.get_ydata(), right.get_xdata(), atol=0.011)
    assert sure.get_ydata()[:-1].max() == 0
    assert sure.get_ydata()[-1] == 1


@pytest.mark.parametrize("size", [(2.8, 3.2), (3.2, 5.0)])
def test_the_legend_of_a_reliability_diagram_is_whole(size):
    """In the first drawing: a layout makes room for what is beneath the axes, whatever their height."""
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.uniform(0.2, 1, 40), rng.uniform(0.8, 1, 300)])
    with style():
        figure = Figure(figsize=size, layout="constrained")
        ax = reliability_diagram(confidence, rng.uniform(size=340) < confidence, ax=figure.add_subplot())
        FigureCanvasAgg(figure).draw()
    legend, strip = ax.get_legend().get_window_extent(), ax.child_axes[0].get_tightbbox()
    assert len(ax.get_legend().get_texts()) == 3
    assert 0 <= legend.y0 < legend.y1 <= strip.y0
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


def test_bars_of_distances_end_at_zero_and_what_is_far_is_named():
    scores = {"a": (0.1, 0.2), "b": (0.3, 0.1), "c": (50.0, 0.1), "d": (0.2, 0.01)}
    for least, lowest in ((0.0, 0.0), (-np.inf, -0.3)):
        (ax,) = method_scores({"p": scores}, least=least, figure=(figure := Figure()))
        ends = [bar.get_segments()[0][:, 0] for bar in ax.collections]
        assert min(end.min() for end in ends) == pytest.approx(lowest)
        assert ends[0].max() == pytest.approx(0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "farther than is drawn"
    assert figure.legends[0].legend_handles[-1].get_color() == PALETTE[0]  # as in the panels
