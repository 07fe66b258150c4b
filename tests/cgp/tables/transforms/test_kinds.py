"""Increasing functions of a column, against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy.special import boxcox, logit
from sklearn.preprocessing import PowerTransformer

from cgp.tables.transforms.kinds import BoxCox, Logit, Rectified, Transform, Unchanged, YeoJohnson

KINDS = [
    Unchanged(),
    Rectified(lower=-2.0),
    BoxCox(power=0.0, shift=0.1),
    BoxCox(power=0.25, shift=0.1, lower=-2.0),
    BoxCox(power=1.5, shift=0.01),
    *(YeoJohnson(power=power, centre=0.5, unit=2.0) for power in (0.0, 0.5, 1.0, 1.75, 2.0)),
    Logit(lower=-1.0, upper=3.0),
]


def inside(kind):
    low, high = kind.ends
    return np.linspace(max(low, -6.0), min(high, 9.0), 61)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_inverse_slope_and_file(kind):
    y = inside(kind)
    z = kind.forward(y)
    np.testing.assert_allclose(kind.inverse(z), y, rtol=1e-9, atol=1e-9)
    assert (np.diff(z) > 0.0).all()
    middle, step = y[1:-1], 1e-6
    slope = (kind.forward(middle + step) - kind.forward(middle - step)) / (2.0 * step)
    np.testing.assert_allclose(kind.log_slope(middle), np.log(slope), atol=1e-5)
    assert Transform.of_content(kind.content()) == kind


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_filled_is_beyond_the_ends(kind):
    far = kind.inverse(np.array([-1e3, -5.0, 5.0, 1e3]))
    assert (far >= kind.ends[0]).all()
    assert (far <= kind.ends[1]).all()


def test_the_tangent_goes_on_beyond_the_ends():
    kind = Logit(lower=0.0, upper=1.0)
    z, step = kind.forward(np.array([1.0, 1.1, 1.2, -0.1, np.nan])), np.exp(kind.log_slope(np.array([1.0])))[0] / 10.0
    np.testing.assert_allclose(z[1:3] - z[0], [step, 2.0 * step])
    assert z[3] == pytest.approx(-z[1])
    assert np.isnan(z[4])


def test_formulas_are_those_of_the_papers():
    y = np.random.default_rng(0).gamma(2.0, size=(50, 1))
    np.testing.assert_allclose(BoxCox(power=0.3, shift=0.5).forward(y), boxcox(y + 0.5, 0.3))
    for values in (np.sqrt(y), y - 2.0):
        known = PowerTransformer(standardize=False).fit(values)
        np.testing.assert_allclose(YeoJohnson(power=float(known.lambdas_[0])).forward(values), known.transform(values))
    shares = y / 20.0
    np.testing.assert_allclose(Logit(margin=0.0).forward(shares), logit(shares))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoxCox(power=-0.5), "power: expected a number of at least 0, got -0.5"),
        (lambda: BoxCox(shift=float("nan")), "shift: expected"),
        (lambda: YeoJohnson(power=2.5), "power: expected a number from 0 to 2, got 2.5"),
        (lambda: YeoJohnson(unit=0.0), "unit: expected a number above 0"),
        (lambda: Logit(lower=2.0), r"lower: expected one below upper \(1.0\), got 2.0"),
    ],
)
def test_impossible_ones_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
