import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from cgp.plotting import curves, uncertainty_histograms

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
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["a", "b"]


def test_gaps_and_scale():
    ax = curves([1, 2, 3], {"NLL": [2.0, np.nan, 1.0], "KL": RUNS}, yscale="log")
    assert np.isnan(ax.lines[0].get_ydata()[1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), RUNS.mean(0))
    assert ax.get_yscale() == "log"


def test_a_run_that_broke_off_does_not_break_the_mean_of_the_others():
    ax = curves([1, 2, 3], {"NLL": [[2.0, np.nan, np.nan], [4.0, 3.0, np.nan]]})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [3, 3, np.nan])


def test_eleven_methods_look_different():
    ax = curves([0, 1], {f"method {i}": [i, i + 1] for i in range(11)})
    looks = {(to_rgb(line.get_color()), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 11


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
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["test", "noise"]


def test_scores_that_would_crowd_into_one_bin_are_spread_over_a_logarithmic_axis():
    test, noise = np.geomspace(1e-9, 1e-2, 200), np.linspace(0.5, 2, 100)
    ax = uncertainty_histograms({"test": test, "noise": noise}, bins=20)
    assert ax.get_xscale() == "log"
    share, edges = stairs(ax, 0)
    assert share.sum() == pytest.approx(1)
    assert edges[0] >= 1e-4 * noise.max() * (1 - 1e-9)
    assert (stairs(ax, 1)[0] > 0).sum() > 2
    assert uncertainty_histograms({"test": test}, limits=(0, 1)).get_xscale() == "linear"


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.lists(st.floats(0, 5), min_size=1, max_size=20))
@settings(max_examples=30)
def test_no_input_falls_out_of_the_histograms(one, other):
    for groups in ({"one": one, "other": other}, {"one": other, "other": np.square(other)}):
        ax = uncertainty_histograms(groups, ax=Figure().add_subplot())
        for index in range(2):
            assert stairs(ax, index)[0].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curves([0, 1], {"a": [1, 2, 3]}), r"values\['a'\] must have 2 values along its last axis"),
        (lambda: curves([0, 1], {}), "values must be a non-empty mapping"),
        (lambda: curves([0, 1], [1, 2]), "values must be a non-empty mapping .* got list"),
        (lambda: curves([1, 2], {"a": np.ones((1, 1, 2))}), r"values\['a'\] must be a non-empty array"),
        (lambda: uncertainty_histograms({}), "groups must be a non-empty mapping"),
        (lambda: uncertainty_histograms({"a": [np.inf]}), r"groups\['a'\] must be finite"),
        (lambda: uncertainty_histograms({"a": [1.2]}, limits=(0, 1)), r"groups must lie in \[0, 1\], got \[1.2, 1.2\]"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
