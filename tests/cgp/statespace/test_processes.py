"""Markov processes against their covariance functions, and their noise at small lags against forty digits."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp.functional.kernels import matern
from cgp.statespace.processes import (
    MarkovProcess,
    constant_process,
    harmonic_process,
    matern_process,
    periodic_weights,
    product_process,
    trend_process,
)

TIMES = torch.tensor([0.7, 0.7, 0.9, 2.0, 2.001, 5.0], dtype=torch.float64)
LAGS = torch.cat([torch.zeros(1, dtype=torch.float64), TIMES.diff()])


def covariance(process: MarkovProcess) -> torch.Tensor:
    """Of the process at the times whose lags it was made for, step by step."""
    states, n = [process.stationary], len(process.transition)
    for A, Q in zip(process.transition[1:], process.noise[1:], strict=True):
        states.append(A @ states[-1] @ A.mT + Q)
    K = torch.zeros(n, n, dtype=torch.float64)
    for i, C in enumerate(states):
        K[i, i] = C[0, 0]
        for j in range(i + 1, n):
            C = process.transition[j] @ C
            K[i, j] = K[j, i] = C[0, 0]
    return K


def distances() -> torch.Tensor:
    return (TIMES[:, None] - TIMES).abs()


STATIONARY = {
    "matern12": lambda lags: matern_process(lags, 0),
    "matern32": lambda lags: matern_process(lags, 1),
    "matern52": lambda lags: matern_process(lags, 2),
    "matern72": lambda lags: matern_process(lags, 3),
    "harmonic": lambda lags: harmonic_process(lags, 2, 0.3),
    "constant": lambda lags: constant_process(lags, 0.3),
    "quasi-periodic": lambda lags: product_process(matern_process(lags / 3, 1), harmonic_process(lags, 1)),
    "product": lambda lags: product_process(matern_process(lags, 0), matern_process(lags / 3, 2)),
}


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_matern_process_has_its_covariance(degree):
    torch.testing.assert_close(
        covariance(matern_process(LAGS / 1.3, degree)),
        matern(TIMES[:, None] / 1.3, degree=degree),
        atol=1e-12,
        rtol=1e-9,
    )


def test_cycles_have_their_covariance():
    cosine = (2 * math.pi * 2 * distances()).cos()
    torch.testing.assert_close(covariance(harmonic_process(LAGS, 2, 0.3)), 0.3 * cosine)
    torch.testing.assert_close(covariance(constant_process(LAGS, 0.3)), 0.3 * torch.ones_like(cosine))
    drifting = product_process(matern_process(LAGS, 1), harmonic_process(LAGS, 2))
    torch.testing.assert_close(covariance(drifting), matern(TIMES[:, None], degree=1) * cosine, atol=1e-12, rtol=1e-9)
    both = product_process(matern_process(LAGS, 0), matern_process(LAGS / 3, 2))
    expected = matern(TIMES[:, None], degree=0) * matern(TIMES[:, None] / 3, degree=2)
    torch.testing.assert_close(covariance(both), expected, atol=1e-12, rtol=1e-9)


def test_trend_has_its_covariance_from_the_first_input_on():
    trend, constant = trend_process(LAGS, TIMES[0], 0.3), constant_process(LAGS, 2.0)
    torch.testing.assert_close(covariance(trend) + covariance(constant), 2.0 + 0.3 * TIMES[:, None] * TIMES)


@pytest.mark.parametrize("lengthscale", [0.3, 0.8, 2.0])
def test_harmonics_sum_to_the_periodic_covariance(lengthscale):
    weights = periodic_weights(torch.tensor(lengthscale, dtype=torch.float64), 40)
    phases = torch.linspace(0, 1, 17, dtype=torch.float64)
    cosines = (2 * math.pi * torch.arange(40).to(phases)[:, None] * phases).cos()
    expected = torch.exp(-2 * (math.pi * phases).sin().square() / lengthscale**2)
    torch.testing.assert_close(weights @ cosines, expected, atol=1e-12, rtol=1e-12)
    z = lengthscale**-2
    bessel = [mpmath.besseli(j, z) * mpmath.exp(-z) * (1 if j == 0 else 2) for j in range(8)]
    np.testing.assert_allclose(weights[:8], [float(value) for value in bessel], rtol=1e-10, atol=1e-15)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(STATIONARY)), st.floats(0.0, 30.0))
def test_stationary_covariance_is_invariant(name, lag):
    A, Q, P = STATIONARY[name](torch.tensor([lag], dtype=torch.float64))
    torch.testing.assert_close(A[0] @ P @ A[0].mT + Q[0], P, atol=1e-12, rtol=1e-12)
    assert torch.linalg.eigvalsh(Q[0]).min() > -1e-12


def exact_noise(degree: int, lag: float) -> np.ndarray:
    """Q = P - A P A' of a Matérn process in forty digits, derivatives in units of the rate."""
    with mpmath.workdps(60):
        size, x = degree + 1, mpmath.mpf(lag) * mpmath.sqrt(2 * degree + 1)
        generator = mpmath.zeros(size)
        for i in range(degree):
            generator[i, i + 1] = 1
        for k in range(size):
            generator[degree, k] = -mpmath.binomial(size, k)
        A = mpmath.expm(generator * x)
        P = mpmath.matrix(matern_process(torch.zeros(1, dtype=torch.float64), degree).stationary.tolist())
        # The stationary covariance in full digits, from GP' + PG' + q ee' = 0: its entries are small fractions.
        P = P.apply(lambda value: mpmath.mpf(round(float(value) * 15)) / 15)
        Q = P - A * P * A.T
        return np.array([[float(Q[i, j]) for j in range(size)] for i in range(size)])


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("lag", [1e-6, 1e-4, 1e-3, 1e-2, 0.3, 3.0])
def test_noise_keeps_its_digits_at_small_lags(degree, lag):
    """Where P - APA' has lost all of them: of the order of lag^5 in the first entry of 5/2."""
    noise = matern_process(torch.tensor([lag], dtype=torch.float64), degree).noise[0].numpy()
    np.testing.assert_allclose(noise, exact_noise(degree, lag), rtol=1e-10)


@pytest.mark.parametrize("name", STATIONARY)
def test_gradients_by_lags(name):
    lags = torch.tensor([1e-3, 0.4, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda lags: tuple(STATIONARY[name](lags)[:2]), lags)
    nothing = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    process = STATIONARY[name](nothing)
    total = process.transition.sum() + process.noise.sum() + 0.0 * nothing.sum()  # a constant has no lag in it
    assert torch.autograd.grad(total, nothing)[0].isfinite().all()


def test_gradients_of_weights_and_starts():
    values = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, 0.3)]
    assert torch.autograd.gradcheck(lambda scale: periodic_weights(scale, 9), values[:1])
    assert torch.autograd.gradcheck(lambda start, weight: trend_process(LAGS, start, weight).stationary, values)
