"""Exact posteriors a few sequences at a time, where no graph is kept: the same as all at once."""

from __future__ import annotations

import pytest
import torch

from cgp import CGPAttention
from cgp.attention import correlated


@pytest.mark.parametrize("options", [{}, {"coupling": "latent"}, {"coupling": "latent", "covariance": "paper"}])
@pytest.mark.parametrize("masks", ["none", "padding", "causal"])
def test_pieces_of_a_batch_are_the_batch(options, masks, monkeypatch):
    if masks == "causal" and options:
        pytest.skip("latent coupling is not defined under a causal mask")
    block, x = CGPAttention(8, 2, **options).double().eval(), torch.randn(5, 6, 8, dtype=torch.float64)
    padding = torch.arange(6) >= torch.tensor([6, 3, 4, 6, 2])[:, None]
    given = {"none": {}, "padding": {"key_padding_mask": padding}, "causal": {"is_causal": True}}[masks]
    tokens = block.project(x, **given)
    whole = block.marginals(tokens)  # with a graph: never in pieces
    seen = []
    pieced = CGPAttention._marginals

    def watched(self, piece):
        seen.append(piece.q.shape[0])
        return pieced(self, piece)

    monkeypatch.setattr(CGPAttention, "_marginals", watched)
    monkeypatch.setattr(correlated, "_PIECE", 2 * (2 * 6 * 6 * 8))
    with torch.no_grad():
        apart = block.marginals(tokens)
    assert seen == [2, 2, 1]
    torch.testing.assert_close(tuple(apart), tuple(whole))


def test_draws_and_means_do_not_notice(monkeypatch):
    block, x = CGPAttention(8, 2, coupling="latent", objective=None).eval(), torch.randn(4, 6, 8)
    block.sampling = "marginal"
    with torch.no_grad():
        torch.manual_seed(0)
        whole = block(x)
        monkeypatch.setattr(correlated, "_PIECE", 1)
        torch.manual_seed(0)
        torch.testing.assert_close(block(x), whole)
