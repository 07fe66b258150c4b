import numpy as np
import pytest
from matplotlib.figure import Figure

from cgp.plotting import (
    covariance_map,
    inducing_inputs,
    interval_coverage,
    pit_histogram,
    posterior_bands,
    rank_plot,
    trace_plot,
)


def test_bands_are_95_percent_and_show_what_was_observed():
    x = np.array([2.0, 0.0, 1.0])
    mean, sd = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), np.full((3, 2), 0.5)
    observed = np.array([[1.0, np.nan], [np.nan, 5.0]])
    axes = posterior_bands(x, mean, sd, observed_x=[0.0, 1.0], observed_y=observed, names=["a", "b"], units=["m", ""])
    line, points = axes[0].lines
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [1, 2, 3]
    assert points.get_xydata().tolist() == [[0, 1]]
    assert axes[1].lines[1].get_xydata().tolist() == [[1, 5]]
    edges = axes[0].collections[0].get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(1 - 0.98)
    assert edges[:, 1].max() == pytest.approx(3 + 0.98)
    assert [ax.get_ylabel() for ax in axes] == ["a (m)", "b"]


def test_covariance_has_zero_in_the_middle_of_the_colours():
    ax = covariance_map([[-1.0, 0.0], [3.0, 1.0]], extent=(0, 4, 0, 2))
    image = ax.images[0]
    assert (image.norm.vmin, image.norm.vcenter, image.norm.vmax) == (-3, 0, 3)
    assert ax.get_xlim() == (0, 4)
    assert covariance_map(np.zeros((2, 2))).images[0].norm.vmax == 1


def test_coverage_counts_what_lies_inside():
    ax = interval_coverage({"right": np.linspace(0.005, 0.995, 100), "sure": [0.0, 1.0]})
    diagonal, right, sure = ax.lines
    assert list(diagonal.get_ydata()) == [0, 1]
    np.testing.assert_allclose(right.get_ydata(), right.get_xdata(), atol=0.011)
    assert sure.get_ydata()[:-1].max() == 0
    assert sure.get_ydata()[-1] == 1


def test_pit_bars_are_densities():
    ax = pit_histogram([0.05, 0.1, 0.3, 0.9], bins=4)
    assert [bar.get_height() for bar in ax.patches[-4:]] == [2, 1, 0, 1]
    flat = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert flat.y1 == pytest.approx(1 + 1.96 * np.sqrt(0.75 * 4 / 4))


def test_chains_are_lines_and_ranks():
    chains = np.stack([np.arange(50.0), np.arange(50.0) + 0.5])
    assert [line.get_ydata()[0] for line in trace_plot(chains).lines] == [0, 0.5]
    steps = rank_plot(chains, bins=5).patches
    assert [step.get_data().values.tolist() for step in steps] == [[10] * 5] * 2
    apart = rank_plot(np.stack([np.arange(4.0), np.arange(4.0) + 9]), bins=2).patches
    assert [step.get_data().values.tolist() for step in apart] == [[4, 0], [0, 4]]


def test_inducing_inputs_over_points_of_processes():
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    ax = inducing_inputs(points, [[0.5, 0.5]], process=[0, 1, 1], names=["a", "b"])
    first, second, inducing = ax.collections
    assert first.get_offsets().tolist() == [[0, 0]]
    assert second.get_offsets().tolist() == [[1, 1], [2, 2]]
    assert inducing.get_offsets().tolist() == [[0.5, 0.5]]
    lanes = inducing_inputs([0.0, 1.0], [0.5], process=[0, 1]).collections
    assert [lane.get_offsets().tolist() for lane in lanes] == [[[0, 0]], [[1, 1]], [[0.5, -1]]]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: posterior_bands([0, 1], [0, 1], [1]), "sd|cannot reshape"),
        (lambda ax: posterior_bands([0, 1], [0, 1], [1, 1], names=["a", "b"]), "names, units must have 1 entries"),
        (lambda ax: posterior_bands([0, 1], [0, 1], [1, 1], observed_x=[0]), "must be given together"),
        (lambda ax: posterior_bands([0], [0], [1], observed_x=[0], observed_y=[[0, 1]]), "must have 1 columns, got 2"),
        (lambda ax: covariance_map([1.0], ax=ax), "covariance must be a non-empty array with 2 axes"),
        (lambda ax: interval_coverage({}, ax=ax), "cumulative must be a non-empty mapping"),
        (lambda ax: interval_coverage({"a": [1.2]}, ax=ax), r"must lie in \[0, 1\], got \[1.2, 1.2\]"),
        (lambda ax: pit_histogram([0.5], bins=0, ax=ax), "bins must be at least 1, got 0"),
        (lambda ax: rank_plot([[1.0]], bins=0, ax=ax), "bins must be at least 1, got 0"),
        (lambda ax: trace_plot([1.0], ax=ax), "chains must be a non-empty array with 2 axes"),
        (lambda ax: inducing_inputs([[0, 0]], [0.5], ax=ax), "inducing must have 2 dimensions as points, got 1"),
        (lambda ax: inducing_inputs([[0, 0, 0]], [[0, 0, 0]], ax=ax), "points must have 1 or 2 dimensions, got 3"),
        (lambda ax: inducing_inputs([0], [0], names=["a", "b"], ax=ax), "names must have 1 entries, got 2"),
    ],
)
def test_refuses(draw, message):
    with pytest.raises(ValueError, match=message):
        draw(Figure().add_subplot())
