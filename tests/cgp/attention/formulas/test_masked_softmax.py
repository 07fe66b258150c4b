"""The covariance of queries that see different keys, against one dense conditional per query."""

import pytest
import torch

import cgp.attention.formulas.masked_softmax as visible_module
from cgp.attention.formulas.masked_softmax import (
    Visibility,
    exact_posterior,
    exact_variance,
    read_visibility,
    sparse_posterior,
    sparse_variance,
)
from cgp.functional.kernels import squared_exponential
from cgp.functional.linalg import solve_lower

NOISE = torch.tensor([0.05, 0.4], dtype=torch.float64)


def points(num_queries: int, num_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, num_queries, 4).double(), torch.randn(3, 2, num_keys, 4).double()


def windows(n: int, width: int) -> torch.Tensor:
    distance = torch.arange(n)[:, None] - torch.arange(n)
    return (distance >= 0) & (distance < width)


def packed(n: int) -> torch.Tensor:
    which = torch.arange(n) // 3
    return which[:, None] == which


def padding(n: int) -> torch.Tensor:
    return (torch.arange(n) < torch.tensor([n, n - 2, 1])[:, None])[:, None, None, :]


MASKS = {
    "none": (lambda n: None, Visibility()),
    "padding": (lambda n: padding(n).expand(3, 1, n, n), "hidden"),
    "causal": (lambda n: torch.ones(n, n, dtype=torch.bool).tril(), "offset"),
    "causal with padding": (lambda n: torch.ones(n, n, dtype=torch.bool).tril() & padding(n), "offset"),
    "windows": (lambda n: windows(n, 3), "pairs"),
    "packed": (lambda n: packed(n), "pairs"),
    "per head": (lambda n: torch.stack([windows(n, 2), packed(n)])[None], "pairs"),
    "bias": (lambda n: torch.randn(n, n).masked_fill(~windows(n, 3), -torch.inf), "pairs"),
}


def one_by_one(q, k, mask):
    """Condition each query on the keys it sees, by a dense solve."""
    n, m = q.shape[-2], k.shape[-2]
    seen = torch.ones(n, m, dtype=torch.bool) if mask is None else mask
    seen = (seen if seen.dtype == torch.bool else seen > -1e30).expand(3, 2, n, m)
    result = torch.ones(3, 2, n).double()
    for b in range(3):
        for h in range(2):
            for i in range(n):
                keys = k[b, h, seen[b, h, i]]
                if not len(keys):
                    continue
                cross = squared_exponential(q[b, h, i : i + 1], keys)
                factor = torch.linalg.cholesky(squared_exponential(keys) + NOISE[h] * torch.eye(len(keys)).double())
                result[b, h, i] -= (cross @ torch.cholesky_solve(cross.mT, factor)).squeeze()
    return result


@pytest.mark.parametrize("name", MASKS)
def test_every_query_is_conditioned_on_the_keys_it_sees(name, monkeypatch):
    make, expected = MASKS[name]
    q, k = points(7, 7)
    mask = make(7)
    visible = read_visibility(mask, 7, 7)
    if isinstance(expected, str):
        assert getattr(visible, expected) is not None
        assert (visible.pairs is not None) == (expected == "pairs")
    expected = one_by_one(q, k, mask)
    torch.testing.assert_close(exact_variance(q, k, NOISE, visible), expected, atol=1e-10, rtol=0)
    monkeypatch.setattr(visible_module, "_PIECE", 1)  # one query at a time
    torch.testing.assert_close(exact_variance(q, k, NOISE, visible), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", MASKS)
def test_inducing_inputs_at_all_keys_give_the_exact_variance(name):
    q, k = points(6, 6)
    k, q = k[:1, :1].expand(3, 2, 6, 4), k[:1, :1].expand(3, 2, 6, 4)
    mask = MASKS[name][0](6)
    A = solve_lower(torch.linalg.cholesky(squared_exponential(k)), squared_exponential(k, q))
    visible = read_visibility(mask, 6, 6)
    expected = exact_variance(q, k, NOISE, visible)
    torch.testing.assert_close(sparse_variance(A, A, NOISE, visible), expected, atol=1e-8, rtol=0)


def test_new_queries_see_all_cached_keys():
    q, k = points(6, 6)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    whole = exact_variance(q, k, NOISE, read_visibility(causal, 6, 6))
    A_q, A_k = 0.3 * torch.randn(3, 2, 5, 6).double(), 0.3 * torch.randn(3, 2, 5, 6).double()
    sparse = sparse_variance(A_q, A_k, NOISE, read_visibility(causal, 6, 6))
    for new in (1, 2):
        visible = read_visibility(causal[-new:], new, 6)
        torch.testing.assert_close(exact_variance(q[..., -new:, :], k, NOISE, visible), whole[..., -new:])
        torch.testing.assert_close(sparse_variance(A_q[..., -new:], A_k, NOISE, visible), sparse[..., -new:])


def test_a_query_without_keys_has_the_prior_variance():
    q, k = points(4, 4)
    mask = windows(4, 2)
    mask[2] = False
    assert exact_variance(q, k, NOISE, read_visibility(mask, 4, 4))[..., 2].eq(1.0).all()


def test_queries_before_the_first_key_have_the_prior_variance():
    """More queries than keys under a causal mask that ends with both: the first ones see nothing."""
    q, k = points(5, 3)
    visible = Visibility(offset=-2)
    whole, sparse = exact_variance(q, k, NOISE, visible), 0.2 * torch.randn(3, 2, 4, 8).double()
    last = sparse_variance(sparse[..., :5], sparse[..., 5:], NOISE, visible)
    for result in (whole, last):
        torch.testing.assert_close(result[..., :2], torch.ones(3, 2, 2).double())
        assert (result[..., 2:] < 1.0).all()
    mask = torch.ones(5, 3, dtype=torch.bool).tril(-2)
    torch.testing.assert_close(whole, one_by_one(q, k, mask), atol=1e-10, rtol=0)
    by_pairs = sparse_variance(sparse[..., :5], sparse[..., 5:], NOISE, Visibility(pairs=mask.expand(3, 2, 5, 3)))
    torch.testing.assert_close(last, by_pairs)


def test_joint_covariances_have_the_marginals_on_their_diagonal():
    q, k = points(5, 7)
    hidden = ~padding(7)[:, :, 0]
    covariance = exact_posterior(q, k, NOISE, Visibility(hidden)).covariance
    variance = exact_variance(q, k, NOISE, Visibility(hidden=hidden))
    torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1), variance)
    assert torch.linalg.eigvalsh(covariance).min() > -1e-12
    A_q, A_k = 0.3 * torch.randn(3, 2, 4, 5).double(), 0.3 * torch.randn(3, 2, 4, 7).double()
    posterior = sparse_posterior(A_q, A_k, NOISE, Visibility(hidden))
    expected = sparse_variance(A_q, A_k, NOISE, Visibility(hidden=hidden))
    torch.testing.assert_close(posterior.root.square().sum(-1) + posterior.diagonal, expected)


def test_many_equal_keys_of_one_query_each_have_the_variances_of_float64():
    """The squares of features sum to a little more than one: nothing of the prior is added."""
    features = 0.36 + 1e-3 * torch.rand(1, 1, 8, 300)
    pairs = Visibility(pairs=torch.rand(1, 1, 300, 300) < 0.9)
    expected = sparse_variance(features.double(), features.double(), 1e-4, pairs)
    variance = sparse_variance(features, features, 1e-4, pairs)
    assert variance.dtype == torch.float32
    torch.testing.assert_close(variance.double(), expected, rtol=5e-3, atol=0.0)
