"""When a paired difference counts."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from cgp.comparisons import Difference, critical_value


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
    assert str(Difference(-0.02, 0.01)) == "-0.0200 ± 0.0100"
    assert Difference.of(np.array([1.0, 3.0])) == Difference(2.0, 1.0)
    assert not Difference(0.005, 0.0).exceeds(0.01, 2.0)
