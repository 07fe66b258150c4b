"""Stepping through a sequence against the full causal forward pass, and the root against dense algebra."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp.functional.causal import sparse_prefix_posterior
from cgp.functional.causal_step import empty_prefix, prefix_state, prefix_step

NOISE = 0.05


def problem(n, batch=(), m=4, s=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*batch, *shape, dtype=torch.float64, generator=generator)

    return draw(m, n), draw(m, n), draw(n, s), 20.0 + draw(n).square()


def steps(state, A_q, A_k, v, prior, **options):
    for t in range(v.shape[-2]):
        now = slice(t, t + 1)
        options = {"noise": NOISE, **options}
        step = prefix_step(state, A_q[..., now], A_k[..., now], v[..., now, :], prior[..., now], **options)
        yield step
        state = step.state


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("conditional", ["dtc", "sor"])
def test_steps_are_the_rows_of_the_full_forward(batch, conditional):
    A_q, A_k, v, prior = problem(40, batch)
    whole = sparse_prefix_posterior(A_q, A_k, v, prior, noise=NOISE, conditional=conditional)
    start = empty_prefix(A_k @ A_k.mT, 3)
    for t, step in enumerate(steps(start, A_q, A_k, v, prior, conditional=conditional)):
        torch.testing.assert_close(step.mean[..., 0, :], whole.mean[..., t, :], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(step.variance[..., 0], whole.variance[..., t], rtol=1e-9, atol=1e-9)


@given(n=st.integers(1, 30), noise=st.floats(1e-4, 10.0), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_root_is_that_of_the_inverse_capacitance(n, noise, seed):
    A_q, A_k, v, prior = problem(n, seed=seed)
    *_, last = steps(empty_prefix(A_k @ A_k.mT, 3), A_q, A_k, v, prior, noise=noise)
    D = torch.eye(4, dtype=torch.float64) + A_k @ A_k.T / noise
    identity = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(D @ last.state.root @ last.state.root.T, identity, rtol=0, atol=1e-8)
    at_once = prefix_state(A_k, v, noise=noise)
    torch.testing.assert_close(at_once.sums, last.state.sums)
    torch.testing.assert_close(D @ at_once.root @ at_once.root.T, identity, rtol=0, atol=1e-8)


def test_steps_go_on_from_a_state_made_at_once():
    A_q, A_k, v, prior = problem(12, (2,))
    whole = sparse_prefix_posterior(A_q, A_k, v, prior, noise=NOISE)
    state = prefix_state(A_k[..., :7], v[..., :7, :], noise=NOISE)
    rest = slice(7, None)
    for t, step in enumerate(steps(state, A_q[..., rest], A_k[..., rest], v[..., rest, :], prior[..., rest]), 7):
        torch.testing.assert_close(step.mean[..., 0, :], whole.mean[..., t, :], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(step.variance[..., 0], whole.variance[..., t], rtol=1e-9, atol=1e-9)


def test_float32_keeps_the_variance_over_a_long_sequence():
    """Updating the inverse itself, in place of its root, is off by eight times the tolerance."""
    A_q, A_k, v, _ = problem(2000)
    A_k = torch.cat([A_k[:1], 1e-2 * A_k[1:]])
    prior = A_q.square().sum(-2)  # nothing but what the keys leave
    exact = sparse_prefix_posterior(A_q, A_k, v, prior, noise=1e-4).variance
    single = [x.float() for x in (A_q, A_k, v, prior)]
    stepped = steps(empty_prefix((A_k @ A_k.mT).float(), 3), *single, noise=1e-4)
    remaining = torch.stack(
        [(step.state.root.mT @ q).square().sum() for step, q in zip(stepped, single[0].T, strict=True)]
    )
    torch.testing.assert_close(remaining.double(), exact, rtol=1e-4, atol=0)


def test_gradients():
    A_q, A_k, v, prior = problem(2, m=2, s=1)
    noise = torch.tensor(NOISE, dtype=torch.float64)

    def value(A_q, A_k, v, prior, noise):
        *_, last = steps(empty_prefix(A_k @ A_k.mT, 1), A_q, A_k, v, prior, noise=noise)
        return last.mean, last.variance

    assert torch.autograd.gradcheck(value, tuple(x.requires_grad_() for x in (A_q, A_k, v, prior, noise)))
