"""The sparse regression in one step is the sparse posterior, in value and in two derivatives."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from cgp import SparseCGPAttention
from cgp.functional.kernels import canonical
from cgp.functional.linalg import whiten
from cgp.functional.sparse_correlated import SparseCorrelatedPosterior, features
from cgp.functional.sparse_regression import covariances, sparse_regression

PADDED = torch.tensor([[[0, 0, 0, 1]], [[0, 0, 0, 0]]]).bool(), torch.tensor([[[0, 0, 0, 1, 1]], [[0] * 5]]).bool()
SHARED = torch.tensor([[0, 0, 0, 1]]).bool(), torch.tensor([[0, 0, 1, 0, 1]]).bool()  # by all sequences
RBF = canonical("rbf")


def problem(dtype=torch.float64, scale=0.6, heads=3):
    shapes = (2, heads, 4, 2), (2, heads, 5, 2), (2, heads, 5, 2), (heads, 3, 2)
    tokens = [(scale * torch.randn(shape, dtype=dtype)).requires_grad_() for shape in shapes]
    return *tokens, torch.tensor([0.3, 0.5, 0.2][:heads], dtype=dtype, requires_grad=True)


def in_one_step(paddings, q, k, v, points, noise):
    query_padding, key_padding = paddings
    options = {"query_padding": query_padding, "key_padding": key_padding}
    return sparse_regression(q, k, v, points, noise, covariances(q, k, v, points), **options)


def by_steps(paddings, q, k, v, points, noise):
    A_q, A_k = (features(RBF, points, whiten(RBF.gram(points)), x)[0] for x in (q, k))
    options = {"query_padding": paddings[0], "key_padding": paddings[1], "observed": True}
    posterior = SparseCorrelatedPosterior(A_q, A_k, v, RBF.diagonal(q), noise=noise[:, None], **options)
    return posterior.mean, posterior.variance


@pytest.mark.parametrize("paddings", [(None, None), PADDED, SHARED])
def test_values_and_gradients_are_those_of_the_posterior(paddings):
    arguments = problem()
    results = [function(paddings, *arguments) for function in (in_one_step, by_steps)]
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other)
    cotangents = [torch.randn_like(x) for x in results[0]]
    gradients = [torch.autograd.grad(result, arguments, cotangents) for result in results]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)  # one differentiates a Cholesky factorisation


@pytest.mark.parametrize("paddings", [(None, None), PADDED])
def test_two_derivatives(paddings):
    """By differences for one head, and for several those of the posterior."""
    arguments = problem(heads=1)
    assert gradcheck(lambda *x: in_one_step(paddings, *x), arguments)
    assert gradgradcheck(lambda *x: in_one_step(paddings, *x), arguments)
    arguments, seconds = problem(), []
    for function in (in_one_step, by_steps):
        total = sum(output.square().sum() for output in function(paddings, *arguments))
        slope = sum(g.square().sum() for g in torch.autograd.grad(total, arguments, create_graph=True))
        seconds.append(torch.autograd.grad(slope, arguments))
    for mine, other in zip(*seconds, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)
    total = sum(output.square().sum() for output in in_one_step(paddings, *arguments))
    first = torch.autograd.grad(total, arguments, retain_graph=True)
    again = torch.autograd.grad(total, arguments, create_graph=True)
    torch.testing.assert_close(first, again, rtol=1e-8, atol=1e-10)


def test_keys_that_are_nearly_equal_are_conditioned_on_in_float64():
    """In float32 the inverse would have no digits left."""
    q, k, v, points, _ = problem(torch.float32)
    k = (k[:, :, :1] + 1e-3 * torch.randn(2, 3, 400, 2)).detach()
    v, noise = torch.randn(2, 3, 400, 2), torch.full((3,), 1e-5)
    mean, variance = in_one_step((None, None), q, k, v, points, noise)
    expected = in_one_step((None, None), *(x.double() for x in (q, k, v, points, noise)))
    assert (mean - expected[0]).norm() < 1e-2 * expected[0].norm()
    assert (variance - expected[1]).norm() < 1e-3 * expected[1].norm()


def test_it_does_not_apply_to_far_tokens_and_other_batches():
    q, k, v, points, _ = problem(torch.float32)
    assert covariances(q, k, v, points) is not None
    assert covariances(1e6 * q, k, v, points) is None
    assert covariances(q, k[:1], v[:1], points) is None
    assert covariances(q, k, v[0].expand_as(v), points) is not None


def test_a_block_is_the_same_with_and_without_it(monkeypatch):
    block, x = SparseCGPAttention(12, 3, num_inducing=5).double(), torch.randn(2, 7, 12, dtype=torch.float64)
    padding, results = torch.arange(7).ge(5).expand(2, 7), []
    for _ in range(2):
        block.zero_grad()
        torch.manual_seed(1)
        out = block(x, key_padding_mask=padding)
        out.square().sum().backward()
        results.append([out, *(p.grad.clone() for p in block.parameters())])
        monkeypatch.setattr(type(block), "_covariances", lambda *_: None)
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)
