"""Kernel attention against covariances written out in numpy, with the covariance in memory and without."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from torch.autograd import gradcheck, gradgradcheck

from cgp.attention.formulas import kernel_attention as kernel_attention_module
from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional.kernels import CANONICAL, canonical
from tests import oracles

PATHS = {"kept": 2**62, "by softmax": 0}  # bytes of a covariance that is kept for the backward pass
attended = partial(kernel_attention, canonical("rbf"))
SQUARED = {"rbf": lambda r2: np.exp(-0.5 * r2), "rq": lambda r2: 1.0 / (1.0 + 0.5 * r2)}


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    monkeypatch.setattr(kernel_attention_module, "_KEPT", PATHS[request.param])


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense(kernel, q, k, v):
    """Sequence by sequence and head by head."""
    pairs = zip(*(x.flatten(0, 1).numpy() for x in (q, k, v)), strict=True)
    rows = [SQUARED[kernel](cdist(a, b, "sqeuclidean")) @ c for a, b, c in pairs]
    return torch.tensor(np.stack(rows)).unflatten(0, q.shape[:2])


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kernel", SQUARED)
@pytest.mark.parametrize("columns", [1, 3, 6])
def test_every_head_is_its_covariance_times_the_values(kernel, columns):
    q, k, v = normal(2, 3, 4, 2), normal(2, 3, 5, 2, seed=1), normal(2, 3, 5, columns, seed=2)
    torch.testing.assert_close(kernel_attention(canonical(kernel), q, k, v), dense(kernel, q, k, v))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kernel", CANONICAL)
def test_every_kernel_is_the_product_of_its_gram_matrix(kernel):
    q, k, v = normal(2, 2, 4, 3), normal(2, 2, 5, 3, seed=1), normal(2, 2, 5, 2, seed=2)
    expected = canonical(kernel).gram(q, k) @ v
    torch.testing.assert_close(kernel_attention(canonical(kernel), q, k, v), expected)


@given(shift=st.floats(-1e3, 1e3), seed=st.integers(0, 1000))
def test_a_shift_of_queries_and_keys_changes_nothing(shift, seed):
    q, k, v = (normal(1, 1, 6, 2, seed=seed + i) for i in range(3))
    for kept in PATHS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel_attention_module, "_KEPT", kept)
            moved = kernel_attention(canonical("rbf"), q + shift, k + shift, v)
        torch.testing.assert_close(
            moved[0, 0], torch.tensor(oracles.rbf(q[0, 0], k[0, 0])) @ v[0, 0], atol=1e-7, rtol=1e-6
        )


@pytest.mark.usefixtures("path")
def test_gradients_are_those_of_the_written_product():
    arguments = [
        x.requires_grad_() for x in (normal(1, 2, 3, 2), normal(1, 2, 4, 2, seed=1), normal(1, 2, 4, 2, seed=2))
    ]
    q, k, v = arguments
    written = torch.exp(-0.5 * (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)) @ v
    cotangent = normal(1, 2, 3, 2, seed=3)
    expected = torch.autograd.grad(written, arguments, cotangent)
    given = torch.autograd.grad(kernel_attention(canonical("rbf"), *arguments), arguments, cotangent)
    for gradient, other in zip(given, expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("columns", [1, 4])
def test_gradients_may_be_differentiated_again(columns):
    arguments = [normal(2, 1, n, d, seed=n + d).requires_grad_() for n, d in ((2, 2), (3, 2), (3, columns))]
    assert gradcheck(attended, arguments)
    assert gradgradcheck(attended, arguments)


@pytest.mark.usefixtures("path")
def test_where_no_key_is_near_nothing_is_attended():
    q, k, v = normal(2, 2, 3, 2) + 30.0, normal(2, 2, 4, 2, seed=1), normal(2, 2, 4, 2, seed=2)
    torch.testing.assert_close(attended(q, k, v), torch.zeros_like(q))


def test_without_the_covariance_no_tensor_of_its_size_is_kept():
    q, k, v = (torch.randn(2, 2, 800, 8).requires_grad_() for _ in range(3))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        attended(q, k, v)
    assert max(kept) < 2 * q.numel()
