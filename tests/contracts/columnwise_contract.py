"""The contract of blocks whose columns have covariances of their own."""

from __future__ import annotations

import pytest
import torch

from .attention_contract import EMBED_DIM, NUM_HEADS, NUM_TOKENS, GaussianProcessContract


class ColumnwiseContract(GaussianProcessContract):
    """As every block with a posterior, but that the variance of a token is the average of its columns'."""

    def test_posterior_is_what_forward_draws_from(self):
        block, x = self.block().eval(), self.tokens(2)
        posterior = block.posterior(x)
        assert posterior.batch_shape == (2, NUM_HEADS, EMBED_DIM // NUM_HEADS)
        assert posterior.event_shape == (NUM_TOKENS,)
        heads = posterior.mean.mT.transpose(-2, -3).flatten(-2)
        torch.testing.assert_close(block.out_proj(heads), block(x))
        torch.testing.assert_close(posterior.variance.mean(-2), block.token_variance(x), rtol=1e-6, atol=1e-7)
        assert torch.linalg.eigvalsh(posterior.covariance_matrix).min() > -1e-9

    @pytest.mark.parametrize("mode", ["marginal", "joint"])
    def test_draws_have_the_moments_of_the_posterior(self, mode):
        block, x, count = self.block().eval(), self.tokens(1), 8000
        block.sampling, block.num_samples = mode, count
        with torch.no_grad():
            draws = block.attend(block.project(x))[:, 0]  # (S, h, n, s)
            posterior = block.posterior(x)
        mean, covariance = posterior.mean[0].mT, posterior.covariance_matrix[0]  # (h, n, s), (h, s, n, n)
        scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt()  # (h, s, n)
        assert ((draws.mean(0) - mean).abs() <= 5 * scale.mT / count**0.5 + 1e-9).all()
        centred = (draws - mean).mT / scale
        empirical = torch.einsum("zhsi,zhsj->hsij", centred, centred) / count
        expected = covariance / (scale[..., :, None] * scale[..., None, :])
        if mode == "marginal":
            expected = torch.eye(NUM_TOKENS, dtype=torch.float64).expand_as(expected)
        assert (empirical - expected).abs().max() < 6 * (2 / count) ** 0.5
