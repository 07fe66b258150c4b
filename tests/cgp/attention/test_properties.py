"""Random sizes, scales, duplicates, masks and noises in float32: finite and honest, or a clear error."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp import CGPAttention, SparseCGPAttention
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.model.blocks import added_losses


class Case(NamedTuple):
    """A block, how it draws, and the tokens it is fed."""

    sparse: bool
    options: dict
    sampling: str
    batch: int
    num_tokens: int
    heads: int
    head_dim: int
    scale: float
    offset: float
    duplicates: bool
    padded: int
    seed: int


@st.composite
def cases(draw) -> Case:
    """Any combination that the constructors accept."""
    sparse, mean = draw(st.booleans()), draw(st.sampled_from(["kernel", "kernel", "softmax"]))
    options = {"mean": mean, "noise": draw(st.sampled_from([1e-4, 1e-3, 1e-2, 1.0, 10.0]))}
    if mean == "kernel":
        options["coupling"] = draw(st.sampled_from(["direct", "latent"]))
        options["kernel"] = draw(st.sampled_from(["rbf", "matern12", "matern32", "matern52", "rq"]))
        options["objective"] = draw(st.sampled_from([None, "marginal", "joint"]))
    if sparse:
        options["num_inducing"] = draw(st.integers(1, 24))
        if mean == "kernel":
            options["approximation"] = draw(st.sampled_from(["dtc", "sor"]))
    n = draw(st.integers(1, 20))
    return Case(
        sparse,
        options,
        draw(st.sampled_from(["mean", "marginal", "joint"])),
        draw(st.integers(1, 3)),
        n,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([0.0, 1e-3, 1e-2, 1.0, 10.0, 1e3])),
        draw(st.sampled_from([0.0, 1.0, 100.0])),
        draw(st.booleans()),
        draw(st.integers(0, n)),
        draw(st.integers(0, 2**16)),
    )


def check(case: Case) -> None:
    """Finite values and gradients, variances at least zero and at most the prior's, or a clear error."""
    torch.manual_seed(case.seed)
    d = case.heads * case.head_dim
    block = (SparseCGPAttention if case.sparse else CGPAttention)(d, case.heads, **case.options)
    block.sampling = case.sampling
    x = case.scale * torch.randn(case.batch, case.num_tokens, d) + case.offset
    if case.duplicates:
        x[:, 1::2] = x[:, : x[:, 1::2].shape[1]]
    x.requires_grad_()
    mask = (torch.arange(case.num_tokens) >= case.num_tokens - case.padded).expand(case.batch, -1)
    try:
        out = block(x, key_padding_mask=mask)
        variance = block.token_variance(x, key_padding_mask=mask)
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
    assert not variance[..., case.num_tokens - case.padded :].any()
    if case.options["mean"] == "kernel":
        noise = case.options["noise"] if case.options.get("approximation") == "sor" else 0.0
        assert (variance <= 1.0 + noise + 1e-2).all()


@given(cases())
def test_random_cases_are_finite_or_a_clear_error(case):
    check(case)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(cases())
def test_ten_thousand_random_cases(case):
    check(case)
