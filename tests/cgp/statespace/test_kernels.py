"""Kernels as objects: their state spaces have the covariances that their formulas say, and the algebra of kernels."""

import pytest
import torch

from cgp.functional.kernels import matern
from cgp.statespace.kernels import (
    Constant,
    Cosine,
    DampedOscillator,
    IntegratedWiener,
    Linear,
    MarkovKernel,
    Matern,
    Periodic,
    Steps,
)
from cgp.statespace.processes import MarkovProcess

X = torch.tensor([0.2, 0.2, 0.5, 1.4, 1.5, 4.0], dtype=torch.float64)
LAGS = torch.cat([torch.zeros(1, dtype=torch.float64), X.diff()])


def value(number):
    return torch.tensor(number, dtype=torch.float64)


def covariance(kernel):
    """Of the inputs, from (A, Q, P, h), step by step."""
    A, Q, P, h = kernel.state_space(LAGS, X[0])
    states = [P]
    for a, q in zip(A[1:], Q[1:], strict=True):
        states.append(a @ states[-1] @ a.mT + q)
    K = torch.zeros(len(X), len(X), dtype=torch.float64)
    for i, moved in enumerate(states):
        for j in range(i, len(X)):
            moved = moved if j == i else A[j] @ moved
            K[i, j] = K[j, i] = h @ moved @ h
    return K


def distance():
    return (X[:, None] - X).abs()


def cosine(period):
    return (2 * torch.pi * distance() / period).cos()


def oscillator(frequency, quality):
    damping = frequency / (2 * quality)
    cycle = abs(frequency**2 - damping**2) ** 0.5
    tau, decay = distance(), torch.exp(-damping * distance())
    if quality > 0.5:
        return decay * ((cycle * tau).cos() + damping / cycle * (cycle * tau).sin())
    return decay * ((cycle * tau).cosh() + damping / cycle * (cycle * tau).sinh())


def spline():
    least = torch.minimum(X[:, None], X)
    return least**3 / 3 + distance() * least**2 / 2


CASES = {
    "matern12": (lambda: Matern(value(0.7), 0), lambda: matern(X[:, None] / 0.7, degree=0)),
    "matern32": (lambda: Matern(value(0.7), 1), lambda: matern(X[:, None] / 0.7, degree=1)),
    "matern52": (lambda: Matern(value(0.7), 2), lambda: matern(X[:, None] / 0.7, degree=2)),
    "cosine": (lambda: Cosine(value(1.3)), lambda: cosine(1.3)),
    "periodic": (
        lambda: Periodic(value(1.3), value(0.9)),
        lambda: torch.exp(-2 * (torch.pi * distance() / 1.3).sin() ** 2 / 0.9**2),
    ),
    "oscillator": (lambda: DampedOscillator(value(3.0), value(4.0)), lambda: oscillator(3.0, 4.0)),
    "overdamped": (lambda: DampedOscillator(value(3.0), value(0.2)), lambda: oscillator(3.0, 0.2)),
    "constant": (Constant, lambda: torch.ones(len(X), len(X), dtype=torch.float64)),
    "linear": (Linear, lambda: X[:, None] * X),
    "spline": (IntegratedWiener, spline),
    "scaled": (lambda: 0.3 * Matern(value(0.7), 1), lambda: 0.3 * matern(X[:, None] / 0.7, degree=1)),
    "sum": (
        lambda: Matern(value(0.7), 1) + value(2.0) * Linear() + Constant(),
        lambda: matern(X[:, None] / 0.7, degree=1) + 2.0 * X[:, None] * X + 1.0,
    ),
    "product": (
        lambda: Matern(value(0.7), 1) * Cosine(value(1.3)) * 0.5,
        lambda: 0.5 * matern(X[:, None] / 0.7, degree=1) * cosine(1.3),
    ),
    "product of sums": (
        lambda: (Matern(value(0.7), 0) + Constant()) * Cosine(value(1.3)),
        lambda: (matern(X[:, None] / 0.7, degree=0) + 1.0) * cosine(1.3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_state_spaces_have_their_covariances(name):
    kernel, expected = CASES[name]
    torch.testing.assert_close(covariance(kernel()), expected(), rtol=1e-9, atol=1e-9)
    if kernel().stationary:
        torch.testing.assert_close(
            kernel().covariance(distance().flatten()).reshape(6, 6), expected(), atol=1e-9, rtol=0
        )
    else:
        with pytest.raises(ValueError, match="is not stationary"):
            kernel().covariance(LAGS)


@pytest.mark.parametrize("quality", [0.2, 0.5, 0.5001, 3.0])
def test_oscillators_have_their_gradients_and_the_noise_of_small_lags(quality):
    """Q is positive where P - APA' has lost its digits: its first entry is of the order of the cube of the lag."""
    lags = torch.tensor([1e-5, 1e-2, 0.6, 5.0], dtype=torch.float64)
    inputs = [value(1.7).requires_grad_(), value(quality).requires_grad_(), lags.clone().requires_grad_()]

    def process(frequency, quality, lags):
        return tuple(DampedOscillator(frequency, quality).process(Steps(lags, value(0.0))))[:2]

    Q = process(*inputs)[1].detach()
    rate = 4 * 1.7**2 * (1.7 / (2 * quality)) / 1.7  # of the driving noise, of a state that is the deviation
    torch.testing.assert_close(Q[0, 0, 0], rate * 1.7 * value(1e-5) ** 3 / 3, rtol=1e-3, atol=0)
    if quality != 0.5:  # where finite differences leave the series
        assert torch.autograd.gradcheck(process, inputs)


def test_batches_of_parameters():
    lengthscales = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    kernel = (Matern(lengthscales, 1) * Cosine(value(1.3))) * lengthscales + Constant()
    A, Q, P, h = kernel.state_space(LAGS)
    assert (A.shape, Q.shape, P.shape, h.shape) == ((3, 6, 5, 5), (3, 6, 5, 5), (3, 5, 5), (5,))
    for number, lengthscale in enumerate(lengthscales):
        one = (Matern(lengthscale, 1) * Cosine(value(1.3))) * lengthscale + Constant()
        torch.testing.assert_close(Q[number], one.state_space(LAGS).noise)


def test_kernels_that_cannot_be():
    with pytest.raises(ValueError, match="expected stationary factors, got Linear"):
        Matern(value(1.0), 0) * Linear()
    with pytest.raises(ValueError, match="expected inputs from 0, where the kernel starts, got -1"):
        IntegratedWiener().state_space(LAGS, -1.0)


def test_one_method_makes_a_kernel():
    class Exponential(MarkovKernel):
        def process(self, steps):
            A = torch.exp(-steps.lags)[..., None, None]
            return MarkovProcess(A, 1.0 - A**2, torch.ones(1, 1).to(A))

    torch.testing.assert_close(covariance(Exponential() + Constant()), (-distance()).exp() + 1.0)
