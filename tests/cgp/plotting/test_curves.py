import numpy as np
import pytest
from matplotlib.colors import to_rgb

from cgp.plotting import shift_curves, similarity_by_layer, training_curves

RUNS = np.array([[0.9, 0.8, 0.4], [0.8, 0.6, 0.6]])


def test_shift_curves_draw_mean_and_one_standard_deviation():
    ax = shift_curves([0, 1, 3], {"a": RUNS, "b": [0.5, 0.4, 0.3]}, ylabel="NLL")
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
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Strength of shift", "NLL")
    assert ax.get_xticks().tolist() == [0, 1, 3]
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["a", "b"]


def test_confidence_is_dashed_in_the_colour_of_its_method():
    ax = shift_curves([0, 1, 3], {"a": RUNS, "b": RUNS}, confidence={"b": RUNS + 0.1})
    dashed = ax.lines[2]
    np.testing.assert_allclose(dashed.get_ydata(), RUNS.mean(0) + 0.1)
    assert dashed.is_dashed()
    assert dashed.get_color() == ax.lines[1].get_color() != ax.lines[0].get_color()
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert labels == ["a", "b", "mean confidence"]


def test_training_curves_leave_gaps_and_keep_their_scale():
    ax = training_curves([1, 2, 3], {"NLL": [2.0, np.nan, 1.0], "KL": RUNS}, yscale="log", ylabel="nats")
    assert np.isnan(ax.lines[0].get_ydata()[1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), RUNS.mean(0))
    assert (ax.get_yscale(), ax.get_ylabel(), ax.get_xlabel()) == ("log", "nats", "Epoch")


def test_a_run_that_broke_off_does_not_break_the_mean_of_the_others():
    ax = training_curves([1, 2, 3], {"NLL": [[2.0, np.nan, np.nan], [4.0, 3.0, np.nan]]})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [3, 3, np.nan])


def test_similarity_counts_layers_from_one_and_shows_the_limit():
    ax = similarity_by_layer({"softmax": [0.6, 0.8, 0.9], "CGP": RUNS})
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 3]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), RUNS.mean(0))
    assert ax.get_ylim()[1] >= 1
    assert ax.get_xticks().tolist() == [1, 2, 3]


def test_eleven_methods_look_different():
    ax = shift_curves([0, 1], {f"method {i}": [i, i + 1] for i in range(11)})
    looks = {(to_rgb(line.get_color()), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 11


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shift_curves([0, 1], {"a": [1, 2, 3]}), r"curves\['a'\] must have 2 values along its last axis"),
        (lambda: shift_curves([0, 1], {}), "curves must be a non-empty mapping"),
        (lambda: shift_curves([0, 1], [1, 2]), "curves must be a non-empty mapping .* got list"),
        (lambda: shift_curves([0, 1], {"a": [1, 2]}, confidence={"b": [1, 2]}), r"confidence .* got \['b'\]"),
        (lambda: training_curves([1, 2], {"a": np.ones((1, 1, 2))}), r"parts\['a'\] must be a non-empty array"),
        (lambda: similarity_by_layer({"a": [1, 2], "b": [1]}), r"curves\['b'\] must have 2 values"),
        (lambda: similarity_by_layer({}), "curves must be a non-empty mapping"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
