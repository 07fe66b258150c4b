"""Values, derivatives, integrals and sums as rows of one operator, against dense covariances in float64."""

from functools import partial

import numpy as np
import pytest
import torch

from cgp.operators import MarkovLinearOperator
from cgp.statespace.kernels import Constant, Cosine, IntegratedWiener, Matern
from cgp.statespace.moments import posterior_moments
from cgp.statespace.readings import Reading, Readings, reading_processes
from cgp.statespace.space import state_space

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)
V, D, INT, S = Reading
ROWS = [(0.0, V, 0.5), (0.3, D, 0.0), (0.3, V, 2.0), (0.7, INT, 0.0), (1.5, V, -1.0), (1.5, S, 0.0), (2.0, D, 1.0)]
ROWS += [(6.0, V, 1.0), (6.1, INT, 0.0), (6.1, S, 0.0), (6.4, V, 0.0), (6.4, V, 3.0), (7.0, INT, 0.0), (7.0, S, 0.0)]
NODES, WEIGHTS = (torch.as_tensor(each) for each in np.polynomial.legendre.leggauss(150))


def readings(rows=ROWS):
    times, kinds, weights = zip(*rows, strict=True)
    return Readings(
        torch.tensor(times, dtype=torch.float64), torch.tensor(kinds), torch.tensor(weights, dtype=torch.float64)
    )


def kernel(scale):
    return 1.7 * Matern(scale, 2) + Matern(3.0 * scale, 1) * Cosine(scale + 1.0) + 0.3 * Constant()


def functionals(rows):
    """Each row as values at points: points, weights, and which are of a derivative."""
    since, gathered, parts = 0.0, [], []
    for time, kind, weight in rows:
        gathered += [(time, weight)]
        if kind in (V, D):
            parts.append(([time], [1.0], kind == D))
        elif kind == S:
            parts.append((*zip(*gathered, strict=True), False))
            gathered = []
        else:
            ends = torch.tensor(
                sorted({since, time, *(t for t, _, _ in rows if since < t < time)}), dtype=torch.float64
            )
            half = 0.5 * ends.diff()[:, None]  # pieces between rows, where the kernel has kinks
            points = ends[:-1, None] + half * (NODES + 1.0)
            parts.append((points.flatten().tolist(), (half * WEIGHTS).flatten().tolist(), False))
            since = time
    return parts


def covariance(scale, x, y):
    r = (x - y).abs()
    m52, m32 = 5**0.5 * r / scale, 3**0.5 * r / (3.0 * scale)
    cosine = torch.cos(2.0 * torch.pi * r / (scale + 1.0))
    return 1.7 * (1.0 + m52 + m52**2 / 3.0) * (-m52).exp() + (1.0 + m32) * (-m32).exp() * cosine + 0.3


def dense(scale, rows=ROWS):
    """By quadrature of the kernel between the times of all rows, and autograd's derivatives of it."""
    parts = functionals(rows)
    points = torch.cat([torch.tensor(part[0], dtype=torch.float64) for part in parts])
    W = torch.block_diag(*(torch.tensor(part[1], dtype=torch.float64)[None] for part in parts))
    of_slope = torch.cat([torch.full((len(part[0]),), part[2]) for part in parts])
    x, y = (
        each.clone().requires_grad_()
        for each in (points[:, None].expand(-1, len(points)), points.expand(len(points), -1))
    )
    K = covariance(scale, x, y)
    by_x, by_y = torch.autograd.grad(K.sum(), (x, y), create_graph=True)
    (by_both,) = torch.autograd.grad(by_x.sum(), y, create_graph=True)
    slope = scale**-2 * 1.7 * 5.0 / 3.0 + 3.0 / (3.0 * scale) ** 2 + (2.0 * torch.pi / (scale + 1.0)) ** 2
    by_both = torch.where(x == y, slope, by_both)  # autograd has no second derivative of |x - y| at 0
    K = torch.where(of_slope[:, None], torch.where(of_slope, by_both, by_x), torch.where(of_slope, by_y, K))
    return W @ K @ W.mT


def space_of(scale, rows=ROWS, loadings=((1.0,),)):
    processes = reading_processes(kernel(scale), readings(rows))
    columns = torch.tensor(loadings).double()
    return state_space(processes, [columns] * len(processes), torch.arange(len(rows)))


def test_rows_are_the_dense_functionals():
    scale = torch.tensor(1.3, dtype=torch.float64)
    count = len(ROWS)
    made = MarkovLinearOperator.of(space_of(scale), torch.arange(count), torch.full((count,), 0.1, dtype=torch.float64))
    expected = dense(scale) + 0.1 * torch.eye(count, dtype=torch.float64)
    CLOSE(made.to_dense(), expected)
    CLOSE(made.diagonal(), expected.diagonal())
    y = torch.linspace(-1, 1, count, dtype=torch.float64)
    for found, wanted in zip(
        made.inv_quad_logdet(y, logdet=True), (y @ torch.linalg.solve(expected, y), expected.logdet()), strict=True
    ):
        CLOSE(found, wanted)
    CLOSE(made.cholesky().to_dense(), torch.linalg.cholesky(expected))


def test_values_given_integrals_and_derivatives_with_gradients():
    """Mean and variance of every functional given half of them, of two outputs, and their gradients by a scale."""
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    loadings, count = ((1.0,), (-0.5,)), len(ROWS)
    observed = torch.arange(2 * count).reshape(count, 2) % 3 > 0
    y, noise = (
        torch.linspace(-1, 1, 2 * count, dtype=torch.float64).reshape(count, 2),
        torch.full((count, 2), 0.05, dtype=torch.float64),
    )
    moments = posterior_moments(space_of(scale, loadings=loadings), y, noise, observed)
    columns = torch.tensor(loadings).double()
    K, kept = torch.kron(dense(scale), columns @ columns.mT), observed.flatten()
    noisy = K[kept][:, kept] + 0.05 * torch.eye(int(kept.sum()), dtype=torch.float64)
    mean = K[:, kept] @ torch.linalg.solve(noisy, y.flatten()[kept])
    variance = (K - K[:, kept] @ torch.linalg.solve(noisy, K[kept])).diagonal()
    for found, wanted in zip(moments, (mean, variance), strict=True):
        CLOSE(found.flatten(), wanted)
        slopes = [
            torch.autograd.grad(each.flatten()[::2].sum(), scale, retain_graph=True)[0] for each in (found, wanted)
        ]
        CLOSE(*slopes, rtol=1e-7, atol=1e-7)


def test_long_lags_and_many_rows():
    """An integral over 1000 lengthscales is a mean of independent parts; it takes linear time."""
    scale, count = torch.tensor(1.0, dtype=torch.float64), 2000
    kinds = torch.tensor([V, INT]).repeat(count)
    times = (1000.0 * torch.arange(1, count + 1).double()).repeat_interleave(2)
    processes = reading_processes(Matern(scale, 1), Readings(times, kinds, torch.zeros(2 * count)))
    space = state_space(processes, [torch.ones(1, 1).double()], torch.arange(2 * count))
    made = MarkovLinearOperator.of(space, torch.arange(2 * count), torch.zeros(2 * count).double())
    root3 = 3.0**0.5
    CLOSE(made.diagonal()[3], torch.tensor(4.0 / root3 * 1000.0 - 6.0 / 3.0, dtype=torch.float64), rtol=1e-8, atol=0)


def test_readings_that_there_are_not_are_refused():
    one = torch.tensor(1.0, dtype=torch.float64)
    with pytest.raises(ValueError, match="expected a process that is differentiable"):
        reading_processes(Matern(one, 0), readings([(0.0, D, 0.0)]))
    with pytest.raises(ValueError, match="expected times in order"):
        reading_processes(Matern(one, 1), readings([(1.0, V, 0.0), (0.0, V, 0.0)]))
    with pytest.raises(ValueError, match="expected a stationary one, got IntegratedWiener"):
        reading_processes(IntegratedWiener(), readings())
