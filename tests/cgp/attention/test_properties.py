"""Random sizes, scales, duplicates, masks and noises in float32: finite and accurate results, or an error."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp import CGPAttention, SparseCGPAttention
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.networks.model.blocks import added_losses


class Case(NamedTuple):
    """A block, how it draws, and the tokens it is fed."""

    block: CGPAttention
    options: dict
    x: torch.Tensor
    padding: torch.Tensor


@st.composite
def cases(draw) -> Case:
    """Any combination that the constructors accept."""

    def one_of(*values):
        return draw(st.sampled_from(values))

    options = {
        "mean": one_of("regression", "regression", "kernel", "softmax"),
        "noise": one_of(1e-4, 1e-3, 1e-2, 1.0, 10.0),
    }
    make, n, heads = one_of(CGPAttention, SparseCGPAttention), draw(st.integers(1, 20)), draw(st.integers(1, 3))
    if options["mean"] != "softmax":
        options["coupling"] = one_of("direct", "latent")
        options["kernel"] = one_of("rbf", "matern12", "matern32", "matern52", "rq")
        options["objective"] = one_of(None, "marginal", "joint")
    if make is SparseCGPAttention:
        options["num_inducing"] = draw(st.integers(1, 24))
        if options["mean"] != "softmax":
            options["approximation"] = one_of("dtc", "sor")
    d, batch = heads * draw(st.integers(1, 6)), draw(st.integers(1, 3))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    block = make(d, heads, **options)
    block.sampling = one_of("mean", "marginal", "joint")
    x = one_of(0.0, 1e-3, 1e-2, 1.0, 10.0, 1e3) * torch.randn(batch, n, d) + one_of(0.0, 1.0, 100.0)
    if draw(st.booleans()):
        x[:, 1::2] = x[:, : x[:, 1::2].shape[1]]  # duplicates
    padding = torch.arange(n) >= n - draw(st.integers(0, n))
    return Case(block, options, x.requires_grad_(), padding.expand(batch, n))


def check(case: Case) -> None:
    """Finite values and gradients, variances at least zero and at most the prior's, or a clear error."""
    block, options, x, padding = case
    try:
        out = block(x, key_padding_mask=padding)
        variance = block.token_variance(x, key_padding_mask=padding)
    except NotPositiveDefiniteError:  # the clear error: names the matrix, its size and the jitter
        return
    loss = out.square().mean() + sum(added_losses(block).values(), torch.zeros(()))
    loss.backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(loss)
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)
    assert torch.isfinite(variance).all()
    assert (variance >= 0).all()
    assert not variance.mT[padding].any()
    if options["mean"] != "softmax":
        noise = options["noise"] if options.get("approximation") == "sor" else 0.0
        assert (variance <= 1.0 + noise + 1e-2).all()


@given(cases())
def test_random_cases_are_finite_or_a_clear_error(case):
    check(case)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(cases())
def test_ten_thousand_random_cases(case):
    check(case)
