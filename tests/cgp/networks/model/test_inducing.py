"""Inducing inputs chosen from data."""

import pytest
import torch
from torch import nn

from cgp import CGPAttention, SparseCGPAttention
from cgp.functional.kernels import canonical
from cgp.networks.model.inducing import initialize_inducing
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
    result, expected = sparse.posterior(x), exact.posterior(x)
    torch.testing.assert_close(result.covariance_matrix, expected.covariance_matrix, rtol=1e-4, atol=1e-5)
    if "coupling" not in options:  # the sparse targets of two hops are others
        torch.testing.assert_close(result.mean, expected.mean, rtol=1e-4, atol=1e-5)


class Offering(nn.Module):
    """Any layer that offers candidates and takes points, whatever its class."""

    num_heads, num_inducing, canonical = 1, 2, canonical("rbf")

    def forward(self, x):
        return self.attend(x)

    def attend(self, x):
        return x

    def candidates(self, x):
        return [(x[:, None], None)]

    def place_inducing(self, points):
        self.points = points


def test_every_layer_that_offers_candidates_is_given_points():
    model, x = nn.Sequential(Offering()), torch.tensor([[[0.0], [0.1], [9.0]]])
    initialize_inducing(model, x)
    assert sorted(model[0].points.flatten().tolist()) in ([0.0, 9.0], [pytest.approx(0.1), 9.0])
