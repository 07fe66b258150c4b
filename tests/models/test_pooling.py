"""Pooling of tokens to one vector, by hand."""

import pytest
import torch

from models.pooling import MeanPooling, SequencePooling, pooling_layer


def test_mean_pooling_is_the_mean_over_tokens():
    x = torch.arange(12.0).reshape(1, 3, 4)
    torch.testing.assert_close(MeanPooling()(x), torch.tensor([[4.0, 5.0, 6.0, 7.0]]))


def test_sequence_pooling_weights_tokens_by_a_softmax_of_their_scores():
    pooling, x = SequencePooling(2), torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    with torch.no_grad():
        pooling.score.weight.copy_(torch.tensor([[0.5, 0.0]]))
        pooling.score.bias.fill_(7.0)
    first = 1.0 / (1.0 + torch.tensor(1.0).exp())  # scores 0.5 and 1.5 above a common bias
    torch.testing.assert_close(pooling(x), first * x[0] + (1.0 - first) * x[1])


def test_draws_and_batches_are_pooled_one_by_one():
    pooling, x = SequencePooling(4), torch.randn(3, 2, 5, 4)
    torch.testing.assert_close(pooling(x)[1, 0], pooling(x[1, 0]))


def test_pooling_by_name():
    assert isinstance(pooling_layer("mean", 4), MeanPooling)
    assert isinstance(pooling_layer("sequence", 4), SequencePooling)
    with pytest.raises(ValueError, match="pooling: expected 'mean' or 'sequence', got 'max'"):
        pooling_layer("max", 4)
