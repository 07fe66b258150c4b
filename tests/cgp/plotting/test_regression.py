import numpy as np
import pytest

from cgp.plotting import posterior_bands


def test_bands_are_95_percent_and_show_what_was_observed():
    x = np.array([2.0, 0.0, 1.0])
    mean, sd = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), np.full((3, 2), 0.5)
    observed = np.array([[1.0, np.nan], [np.nan, 5.0]])
    axes = posterior_bands(x, mean, sd, observed_x=[0.0, 1.0], observed_y=observed, names=["a (m)", "b"])
    line, points = axes[0].lines
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [1, 2, 3]
    assert points.get_xydata().tolist() == [[0, 1]]
    assert axes[1].lines[1].get_xydata().tolist() == [[1, 5]]
    edges = axes[0].collections[0].get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(1 - 0.98)
    assert edges[:, 1].max() == pytest.approx(3 + 0.98)
    assert [ax.get_ylabel() for ax in axes] == ["a (m)", "b"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: posterior_bands([0, 1], [0, 1], [1]), "sd|cannot reshape"),
        (lambda: posterior_bands([0, 1], [0, 1], [1, 1], names=["a", "b"]), "names must have 1 entries"),
        (lambda: posterior_bands([0, 1], [0, 1], [1, 1], observed_x=[0]), "must be given together"),
        (lambda: posterior_bands([0], [0], [1], observed_x=[0], observed_y=[[0, 1]]), "must have 1 columns, got 2"),
    ],
)
def test_refuses(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
