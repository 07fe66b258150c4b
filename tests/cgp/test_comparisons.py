"""When a paired difference counts."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm, t

from cgp.comparisons import Difference, critical_value, normal_errors, student_reach, student_scores


@pytest.mark.parametrize("comparisons", [1, 3, 8, 32])
def test_the_critical_value_holds_the_level_of_independent_comparisons(comparisons):
    passes = 1 - norm.cdf(critical_value(comparisons)) ** comparisons
    assert (0.048 if comparisons > 2 else 0.02) < passes <= 0.05 + 1e-12


@pytest.mark.parametrize("values", [4, 9])
def test_few_values_need_the_quantile_of_student(values):
    """The mean of few normal numbers is beyond the normal quantile of its standard error too often."""
    rng, trials, comparisons = np.random.default_rng(0), 4000, 4
    best = [
        max(difference.mean / difference.error for difference in map(Difference.of, draws))
        for draws in rng.normal(size=(trials, comparisons, values))
    ]
    assert np.sum(np.array(best) > critical_value(comparisons, values - 1)) <= binom.ppf(0.999, trials, 0.05)
    assert np.sum(np.array(best) > critical_value(comparisons)) > binom.ppf(0.999, trials, 0.05)


def test_differences_are_written_without_a_sign_that_was_rounded_away():
    assert str(Difference(-1e-9, 1e-6)) == "0.0000 ± 0.0000"


@pytest.mark.parametrize("none", [0.0, -0.0])
def test_a_difference_of_equal_pairs_is_none(none):
    assert str(Difference(none, 0.0)) == "none"
    assert str(Difference(-0.02, 0.01)) == "-0.0200 ± 0.0100"
    assert Difference.of(np.array([1.0, 3.0])) == Difference(2.0, 1.0)
    assert not Difference(0.005, 0.0).exceeds(0.01, 2.0)


@pytest.mark.parametrize(
    ("law", "freedom"), [(t(3.0, 0.0, 0.5), 3.0), (t(7.0, 0.0, 2.0), 7.0), (norm(0.0, 3.0), np.inf)]
)
@pytest.mark.parametrize("error", [0.3, -4.0])
def test_scores_of_student_are_those_of_quadrature(law, freedom, error):
    scale = np.array([law.kwds.get("scale", law.args[-1])])
    density, score = student_scores(np.array([error]), scale, np.array([freedom]))
    below = quad(lambda y: law.cdf(y) ** 2, -np.inf, error)[0]
    above = quad(lambda y: law.sf(y) ** 2, error, np.inf)[0]
    np.testing.assert_allclose([density[0], score[0]], [-law.logpdf(error), below + above], rtol=1e-6)


def test_levels_of_student_are_those_of_the_normal_distribution():
    freedom, level = np.array([3.0, 10.0, np.inf]), norm.cdf(1.5)
    expected = [t(v).ppf(level) / t(v).std() for v in freedom[:2]] + [1.5]
    np.testing.assert_allclose(student_reach(1.5, freedom), expected, rtol=1e-9)
    scaled = student_reach(-1.5, freedom) * np.array([*(t(v).std() for v in freedom[:2]), 1.0])
    np.testing.assert_allclose(normal_errors(scaled, freedom), -1.5, rtol=1e-9)
    assert np.isfinite(normal_errors(np.array([1e6]), freedom[:1])).all()  # far out, where 1 - F is 0
    assert np.isinf(student_reach(np.inf, freedom)).all()
