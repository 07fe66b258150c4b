"""Lanes: however many there are, they say what one does, which goes through the steps one after the other."""

import numpy as np
import pytest
import torch

import cgp.statespace.factors as factors_module
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.statespace.factors import takes_lanes
from cgp.statespace.filter import Chain, diagonal_blocks
from cgp.statespace.lane_filter import FilteredLanes
from cgp.statespace.lanes import Lanes, Visits
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import harmonic_process, matern_process
from cgp.statespace.root import LaneRoot
from cgp.statespace.space import state_space

COUNTS = [2, 3, 5, 11, 23, 40]


def chain(n=23, noise=0.1):
    """Irregular steps, some of them none, of a process that is noisy and one that is not."""
    generator = torch.Generator().manual_seed(0)
    lags = torch.rand(n, generator=generator, dtype=torch.float64)
    lags[::5] = 0.0
    processes = [matern_process(lags, 1), harmonic_process(lags / 3, 1, 0.5)]
    loadings = [torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)]
    observed = torch.rand(n, 1, generator=generator) < 0.7
    space = state_space(processes, loadings, torch.arange(n))
    y = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return space, torch.where(observed, y, 0.0), torch.full((n, 1), noise, dtype=torch.float64), observed


def answers(count, noise=0.1):
    """All that lanes say, in the order of the readings."""
    space, y, variances, observed = chain(noise=noise)
    tables = Chain(space, variances, observed)
    steps = space.steps.numpy().copy()
    steps[0] = len(space.transition)
    loadings = np.repeat(tables.loadings.T, len(y), axis=1)
    visits = Visits(steps, loadings, variances[:, 0].numpy(), observed[:, 0].numpy())
    lanes = Lanes(*tables.tables, visits, count)
    start = diagonal_blocks(tables.stationary)
    filtered = FilteredLanes(lanes, start, keep=True)
    values = lanes.columns(y.numpy())
    means = filtered.means(values, np.zeros((lanes.D, 1)))
    smoothed, product = filtered.smoothed(values), lanes.product(values, start)
    slopes = [filtered.log_determinant_slopes(), lanes.bilinear_slopes(smoothed, product)]
    by_step = [values - means.innovations, *filtered.weights(means.innovations)[:2], *filtered.spread()]
    by_step += [lanes.readings(product.after), smoothed.after]
    by_step += [each for slope in slopes for each in (*slope[:2], *slope[3:])]
    root, normal = LaneRoot(filtered), lanes.columns(np.sin(np.arange(len(y)))[:, None])
    normal = np.where(lanes.seen[:, None], normal, 0.0)
    by_step += [
        root.product(normal),
        root.transposed_product(normal),
        root.solve(normal),
        root.transposed_solve(normal),
    ]
    slopes.append(root.slopes(normal, normal))
    by_step += [*slopes[-1][:2], *slopes[-1][3:]]
    whole = [filtered.known.log_determinant, filtered.known.ends[-1], means.ends[-1], *(slope[2] for slope in slopes)]
    return [*(lanes.rows(each) for each in by_step), *map(np.asarray, whole)]


@pytest.mark.parametrize("count", COUNTS)
def test_number_of_lanes_does_not_matter(count):
    for mine, expected in zip(answers(count), answers(1), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-10)


def test_little_noise_is_as_exact_in_lanes():
    for mine, expected in zip(answers(5, noise=1e-5), answers(1, noise=1e-5), strict=True):
        scale = np.abs(expected).max() + 1.0
        np.testing.assert_allclose(mine / scale, expected / scale, atol=1e-8)


def test_negative_noise_is_refused():
    with pytest.raises(NotPositiveDefiniteError, match="covariance of the observations cannot be factored"):
        answers(3, noise=-10.0)


def test_what_lanes_are_for():
    """Few states; and noise, without which a reading may say all about the state before a lane."""
    assert takes_lanes(1000, 1000, 2, keep=True)
    assert not takes_lanes(1000, 1000, 100, keep=True)
    assert not takes_lanes(1000, 100_000, 20, keep=True)
    assert takes_lanes(10**6, 10**6, 16, keep=False)
    assert not takes_lanes(10**6, 10**6, 16, keep=True)
    for noise, kind in ((0.1, factors_module.LaneFactor), (1e-12, factors_module.RowFactor)):
        assert isinstance(StateSpacePosterior(*chain(noise=noise))._factor, kind)
