"""Every causal block step by step against its full causal forward pass."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cgp import CGPAttention, KernelAttention, SGPAttention, SoftmaxAttention, SparseCGPAttention, freeze
from cgp.attention.decoding import can_decode, initial_state, prefill, step

LEARNED = {"mean": "softmax", "statistics": "learned"}
BLOCKS = {
    "softmax": SoftmaxAttention,
    "kernel": KernelAttention,
    "cgp": CGPAttention,
    "cgp_softmax": partial(CGPAttention, **LEARNED),
    "sparse": partial(SparseCGPAttention, num_inducing=5),
    "sparse_sor": partial(SparseCGPAttention, num_inducing=5, conditional="sor"),
    "sparse_softmax": partial(SparseCGPAttention, num_inducing=5, **LEARNED),
}
N = 7


def build(name):
    torch.manual_seed(0)
    return BLOCKS[name](8, 2).double().eval(), torch.randn(2, 3, N, 8, dtype=torch.float64)


def walk(block, x, state):
    for t in range(x.shape[-2]):
        decoded = step(block, state, x[..., t : t + 1, :])
        yield decoded
        state = decoded.state


@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("name", BLOCKS)
def test_steps_are_the_rows_of_the_full_forward(name, start):
    block, x = build(name)
    whole, close = block(x, is_causal=True), partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    variance = block.token_variance(x, is_causal=True) if block.stochastic else None
    state = initial_state(block)
    if start:
        first = prefill(block, x[..., :start, :])
        state = first.state
        close(first.output, whole[..., :start, :])
        assert variance is None or close(first.variance, variance[..., :start]) is None
    for t, decoded in enumerate(walk(block, x[..., start:, :], state), start):
        close(decoded.output, whole[..., t : t + 1, :])
        assert (decoded.variance is None) == (variance is None)
        assert variance is None or close(decoded.variance, variance[..., t : t + 1]) is None


def test_the_sparse_state_does_not_grow_and_is_not_written_to():
    block, x = build("sparse")
    state = before = prefill(block, x).state
    kept = [part.clone() for part in before]
    sizes = set()
    for decoded in walk(block, x, state):
        sizes.add(tuple(part.shape for part in decoded.state))
    assert sizes == {(torch.Size([2, 3, 2, 5, 4]), torch.Size([2, 3, 2, 5, 5]))}
    assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))


def test_frozen_factors_change_nothing():
    block, x = build("sparse")
    state, last = prefill(block, x[..., :-1, :]).state, x[..., -1:, :]
    torch.testing.assert_close(step(block, state, last).output, step(freeze(block), state, last).output)


def test_marginal_steps_have_the_posterior_moments():
    block, x = build("sparse")
    state, last = prefill(block, x[0, 0, :-1]).state, x[0, 0, -1:]
    mean = step(block, state, last)
    block.sampling, block.num_samples = "marginal", 20_000
    torch.nn.init.eye_(block.out_proj.weight)
    drawn = step(block, state, last).output[:, 0]  # (S, d)
    block.sampling, block.num_samples = "mean", None
    expected = mean.variance.repeat_interleave(4)
    torch.testing.assert_close(drawn.var(0), expected, rtol=0.06, atol=0)
    error = (drawn.mean(0) - step(block, state, last).output[0]) / (expected / len(drawn)).sqrt()
    assert error.abs().max() < 4.5


def test_half_precision_weights_keep_a_single_precision_state():
    block, x = build("sparse")
    block, x = block.to(torch.bfloat16), x.to(torch.bfloat16)
    assert [part.dtype for part in initial_state(block)] == [torch.float32] * 2
    *_, last = walk(block, x, initial_state(block))
    assert last.output.dtype == torch.bfloat16
    torch.testing.assert_close(last.output, block(x, is_causal=True)[..., -1:, :], rtol=0.02, atol=0.02)


def test_refuses():
    block, x = build("sparse")
    state = initial_state(block)
    with pytest.raises(ValueError, match="one token"):
        step(block, state, x)
    block.sampling = "joint"
    for call in (lambda: step(block, state, x[..., :1, :]), lambda: prefill(block, x)):
        with pytest.raises(ValueError, match="sampling"):
            call()
    other = SGPAttention(8, 2)
    assert not can_decode(other)
    assert not can_decode(torch.nn.Identity())
    for call in (lambda: initial_state(other), lambda: prefill(other, x), lambda: step(other, state, x)):
        with pytest.raises(ValueError, match="causal mask, got SGPAttention"):
            call()
