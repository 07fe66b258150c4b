"""Rows of labelled logits."""

import torch

from cgp.networks.methods.rows import SURE, TEMPERATURES, LabelScores, Logits


def test_probabilities_are_means_over_draws():
    draws = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([(draw / 2.0).softmax(-1) for draw in draws]).mean(0)
    torch.testing.assert_close(Logits(draws).probabilities(2.0), expected)


def test_logits_of_any_scale_have_their_temperature():
    """Cosines have no scale: a bound of 0.25 left them underconfident without a word."""
    generator = torch.Generator().manual_seed(0)
    logits = 4.0 * torch.randn(1, 500, 10, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits[0].softmax(-1), 1, generator=generator)[:, 0]
    whole = Logits(logits).fit(labels)
    for scale in (0.1, 0.03):
        assert abs(Logits(scale * logits).fit(labels) / (scale * whole) - 1.0) < 1e-6
        coarse = LabelScores.of(scale * logits, labels, TEMPERATURES).best(0.0).parameter
        assert 2.0**-0.5 < coarse / (scale * whole) < 2.0**0.5


def test_temperatures_of_predictions_that_are_all_right_are_bounded():
    logits, labels = 0.1 * torch.eye(4, dtype=torch.float64)[None], torch.arange(4)
    assert Logits(logits).fit(labels) >= SURE
    assert LabelScores.of(logits, labels, TEMPERATURES).best(0.0).parameter == SURE
