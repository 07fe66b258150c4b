"""Inducing inputs chosen from data."""

import pytest
import torch

from cgp import CGPAttention, SparseCGPAttention
from cgp.model.inducing import initialize_inducing


@pytest.mark.parametrize(("options", "count"), [({}, 10), ({"coupling": "latent"}, 15), ({"mean": "softmax"}, 10)])
def test_placed_at_every_token_they_make_the_block_exact(options, count):
    """Whatever the scales of softmax's covariance."""
    exact = CGPAttention(8, 2, **options).double().eval()
    sparse = SparseCGPAttention(8, 2, num_inducing=count, **options).double().eval()
    if exact.softmax is not None:
        with torch.no_grad():
            exact.softmax.key_shift.normal_()
            exact.softmax.log_lengthscale.copy_(torch.tensor([0.3, -0.2]))
            exact.softmax.raw_noise.add_(torch.randn(2))
    sparse.load_state_dict(exact.state_dict(), strict=False)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    initialize_inducing(sparse, x)
    found, expected = sparse.posterior(x), exact.posterior(x)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix, rtol=1e-4, atol=1e-5)
    if "coupling" not in options:  # the sparse targets of two hops are others
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
