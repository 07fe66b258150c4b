"""Inducing inputs chosen from data."""

import pytest
import torch

from cgp import CGPAttention, SparseCGPAttention
from cgp.model.inducing import initialize_inducing
from tests.cgp.helpers import moved


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("options", "count"), [({}, 10), ({"coupling": "latent"}, 15), ({"mean": "softmax"}, 10)])
def test_placed_at_every_token_they_make_the_block_exact(options, count, heads):
    """Whatever the scales of softmax's covariance."""
    exact = CGPAttention(8, heads, **options).double().eval()
    sparse = SparseCGPAttention(8, heads, num_inducing=count, **options).double().eval()
    if exact.softmax is not None:
        moved(exact.softmax)
    sparse.load_state_dict(exact.state_dict(), strict=False)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    initialize_inducing(sparse, x)
    found, expected = sparse.posterior(x), exact.posterior(x)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix, rtol=1e-4, atol=1e-5)
    if "coupling" not in options:  # the sparse targets of two hops are others
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
