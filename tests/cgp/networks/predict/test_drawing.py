"""Variances of draws, without bias, against closed forms."""

import numpy as np
import pytest
import torch

from cgp.networks.predict.drawing import DrawVariance


def estimates(function, count, *, antithetic, repetitions=40_000):
    """The estimator's values over repetitions, in one vectorised pass."""
    generator = torch.Generator().manual_seed(0)
    variance = DrawVariance(antithetic=antithetic)
    for index in range(count):
        if not antithetic or index % 2 == 0:
            z = torch.randn(repetitions, dtype=torch.float64, generator=generator)
        variance.add(function(-z if antithetic and index % 2 else z))
    return variance.value()


@pytest.mark.parametrize("count", [3, 4, 5, 8, 16])
@pytest.mark.parametrize("antithetic", [True, False])
def test_the_variance_has_no_bias(count, antithetic):
    """Of z + z²/2, whose variance is 1 + 1/2."""
    values = estimates(lambda z: z + z.square() / 2, count, antithetic=antithetic).numpy()
    assert abs(values.mean() - 1.5) < 4 * values.std() / np.sqrt(len(values))
    assert (values >= 0).all()


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_of_a_linear_function_pairs_have_the_variance_of_the_function(count):
    """The sample variance of two such draws is twice as large."""
    values = estimates(lambda z: 3 * z + 1, count, antithetic=True).numpy()
    assert abs(values.mean() - 9.0) < 4 * values.std() / np.sqrt(len(values))


def test_few_draws_and_draws_by_themselves():
    for antithetic in (True, False):
        variance = DrawVariance(antithetic=antithetic)
        assert variance.value() is None
        variance.add(torch.ones(3))
        assert variance.value() is None
    draws = torch.randn(7, 3, dtype=torch.float64)
    for draw in draws:
        variance.add(draw)
    torch.testing.assert_close(variance.value(), torch.cat([torch.ones(1, 3), draws]).var(0))
