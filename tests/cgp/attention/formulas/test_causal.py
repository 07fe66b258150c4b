"""Causal forms against conditioning on each prefix, one by one."""

import pytest
import torch

from cgp.attention.formulas.causal import CHUNK, prefix_posterior, remaining_of_prefixes, sparse_prefix_posterior
from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.linalg import whiten
from cgp.functional.sparse_correlated import SparseCorrelatedPosterior

NOISE = 0.05


def problem(n, width=3, columns=2, inducing=4):
    shapes = (n, width), (n, width), (n, columns), (inducing, width)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def test_exact_rows_equal_conditioning_on_the_prefix():
    q, k, v, _ = problem(9)
    ones = torch.ones(9).double()
    whole = prefix_posterior(gram(q, k), gram(k), v, ones, noise=NOISE)
    for t in range(9):
        row, prefix = slice(t, t + 1), slice(0, t + 1)
        single = ExactPosterior(
            gram(q[row], k[prefix]), ObservedKeys(gram(k[prefix]), noise=NOISE, values=v[prefix]), ones[row]
        )
        torch.testing.assert_close(whole.mean[row], single.mean)
        torch.testing.assert_close(whole.variance[row], single.variance)


@pytest.mark.parametrize("approximation", ["dtc", "sor"])
def test_sparse_rows_equal_conditioning_on_the_prefix_across_chunks(approximation):
    n = CHUNK + 3
    q, k, v, S = problem(n)
    W = whiten(gram(S))
    A_q, A_k = W @ gram(S, q), W @ gram(S, k)
    whole = sparse_prefix_posterior(A_q, A_k, v, torch.ones(n).double(), noise=NOISE, approximation=approximation)
    for t in range(n):
        row, prefix = slice(t, t + 1), slice(0, t + 1)
        features = A_q[:, row], A_k[:, prefix]
        ones, options = torch.ones(1).double(), {"noise": NOISE, "approximation": approximation}
        single = SparseCorrelatedPosterior(*features, v[prefix], ones, **options)
        torch.testing.assert_close(whole.mean[row], single.mean)
        torch.testing.assert_close(whole.variance[row], single.variance)


def test_gradients():
    q, k, v, S = problem(4, width=2, columns=1, inducing=2)
    noise = torch.tensor(NOISE, dtype=torch.float64)

    def value(q, k, v, S, noise):
        W, ones = whiten(gram(S)), torch.ones(4).double()
        sparse = sparse_prefix_posterior(W @ gram(S, q), W @ gram(S, k), v, ones, noise=noise)
        exact = prefix_posterior(gram(q, k), gram(k), v, ones, noise=noise)
        return sparse.mean, sparse.variance, exact.mean, exact.variance

    assert torch.autograd.gradcheck(value, tuple(x.requires_grad_() for x in (q, k, v, S, noise)))


def test_padding_equals_removal():
    q, k, v, S = problem(6)
    padding = torch.tensor([False] * 4 + [True] * 2)
    W = whiten(gram(S))

    def args(q, k, v):
        return W @ gram(S, q), W @ gram(S, k), v, torch.ones(len(q)).double()

    padded = sparse_prefix_posterior(*args(q, k, v), noise=NOISE, padding=padding)
    removed = sparse_prefix_posterior(*args(q[:4], k[:4], v[:4]), noise=NOISE)
    torch.testing.assert_close(padded.mean[:4], removed.mean)
    torch.testing.assert_close(padded.variance[:4], removed.variance)
    assert not padded.variance[4:].any()


@pytest.mark.parametrize("offset", [0, 1, CHUNK, 100, -1, -40, -100])
@pytest.mark.parametrize("keys", [1, 70, 95])
@pytest.mark.parametrize("features", [3, CHUNK])
def test_chunks_equal_one_solve_per_query(offset, keys, features):
    """Whatever the numbers of queries and keys: of a cache, of a cut one, of keys behind the queries."""
    a, b = torch.randn(2, 70, features).double(), torch.randn(2, keys, features).double()
    for example in range(2):
        for t in (0, 5, CHUNK - 1, CHUNK, 69):
            seen = b[example, : max(t + offset + 1, 0)]
            precision = torch.eye(features).double() + seen.mT @ seen
            solved = torch.cholesky_solve(a[example, t][:, None], torch.linalg.cholesky(precision))
            result = remaining_of_prefixes(a, b, offset)[example, t]
            torch.testing.assert_close(result, a[example, t] @ solved[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("count", "noise"), [(16, 1.0), (CHUNK, 1e-4), (1000, 1e-2), (1000, 1e-4)])
@pytest.mark.parametrize("spread", [0.0, 1e-3])
def test_many_equal_keys_have_the_variances_of_float64(count, noise, spread):
    """Λ has one eigenvalue of count / noise: factored in float32, variances are wrong by up to 40 %."""
    keys = torch.full((8,), 0.35) + spread * torch.randn(count, 8)
    expected = remaining_of_prefixes(keys.double(), keys.double() / noise**0.5)
    variance = remaining_of_prefixes(keys, keys / noise**0.5)
    assert variance.dtype == torch.float32
    torch.testing.assert_close(variance.double(), expected, rtol=5e-3, atol=0.0)
