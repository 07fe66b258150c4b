"""Rows of labelled logits."""

import torch

from cgp.networks.methods.rows import Logits


def test_probabilities_are_means_over_draws():
    draws = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([(draw / 2.0).softmax(-1) for draw in draws]).mean(0)
    torch.testing.assert_close(Logits(draws).probabilities(2.0), expected)
