"""Diagnostics against numpy and against the blocks."""

import numpy as np
import pytest
import torch
from torch import nn

from cgp import CGPAttention, SoftmaxAttention
from cgp.networks.model.diagnostics import attention_matrix, layer_outputs, token_similarity, variance_by_layer
from models import DIGITS, VisionTransformer
from tests.blocks import BLOCKS


def test_similarity_is_the_mean_over_pairs_of_real_tokens():
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    padding = torch.tensor([[False] * 6, [False, True, False, False, True, True]])
    expected = []
    for tokens, mask in zip(x.numpy(), padding.numpy(), strict=True):
        real = tokens[~mask] / np.linalg.norm(tokens[~mask], axis=1, keepdims=True)
        gram = real @ real.T
        expected.append(gram[~np.eye(len(real), dtype=bool)].mean())
    np.testing.assert_allclose(token_similarity(x, padding), expected)
    assert token_similarity(x[:, :1]).isnan().all()


@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in ("kep_svgp", "primal")])  # have their own
def test_attention_matrix_times_values_is_the_mean(name):
    """Up to an offset that the sequence's values do not move."""
    block, x = BLOCKS[name](12, 3).double().eval(), torch.randn(2, 7, 12, dtype=torch.float64)
    if name == "sgpa":
        nn.init.normal_(block.variational_strategy.variational_mean)
    matrix = attention_matrix(block, x)
    assert matrix.shape == (2, 3, 7, 7)
    tokens = block.project(x)
    values = tokens.v, torch.randn_like(tokens.v)
    respond = block.mean_heads if hasattr(block, "mean_heads") else block.attend
    difference = respond(tokens._replace(v=values[0])) - respond(tokens._replace(v=values[1]))
    torch.testing.assert_close(matrix @ (values[0] - values[1]), difference, rtol=1e-6, atol=1e-8)


def test_attention_matrix_of_softmax_is_softmax_and_padding_is_out_of_it():
    block, x = SoftmaxAttention(12, 3), torch.randn(2, 7, 12)
    mask = torch.arange(7) >= 5
    matrix = attention_matrix(block, x, key_padding_mask=mask.expand(2, 7))
    tokens = block.project(x)
    scores = (tokens.q @ tokens.k.mT / 2).masked_fill(mask, -torch.inf)
    torch.testing.assert_close(matrix[..., :5, :], scores.softmax(-1)[..., :5, :])


def test_layers_are_read_while_the_model_runs_and_hooks_are_gone_after():
    model = VisionTransformer(**DIGITS, num_classes=10, attention=CGPAttention).eval()
    images = torch.rand(3, 1, 8, 8)
    outputs = layer_outputs(model, model.layers, images)
    torch.testing.assert_close(outputs[1], model.layers[1](outputs[0]))
    assert not any(layer._forward_hooks for layer in model.layers)
    with pytest.raises(ValueError, match=r"layers: expected modules that run inside the model, .*\[0\]"):
        layer_outputs(model, [nn.Linear(1, 1)], images)


def test_variance_by_layer_is_that_of_the_tokens_that_reach_the_block():
    model = VisionTransformer(**DIGITS, num_classes=10, attention=[SoftmaxAttention, CGPAttention]).eval()
    images = torch.rand(3, 1, 8, 8)
    (variance,) = variance_by_layer(model, images)
    below = model.layers[0](model.embedding(images))
    block = model.layers[1].attention
    torch.testing.assert_close(variance, block.token_variance(model.layers[1].attention_norm(below)))
    assert not block._forward_pre_hooks
