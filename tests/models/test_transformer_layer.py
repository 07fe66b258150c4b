"""The transformer layer: self-attention, and targets that attend to contexts."""

import pytest
import torch

from cgp.networks.model.blocks import sampling
from models.transformer_layer import TransformerLayer
from tests.blocks import BLOCKS

CROSS = [name for name in BLOCKS if name not in ("kep_svgp", "primal")]  # whose landmarks are the tokens themselves


def layer(name: str) -> TransformerLayer:
    made = TransformerLayer(embed_dim=8, mlp_dim=12, num_heads=2, attention=BLOCKS[name], dropout=0.0)
    return made.double().eval()


def tokens(n: int) -> torch.Tensor:
    return torch.randn(3, n, 8, dtype=torch.float64)


@pytest.mark.parametrize("name", CROSS)
def test_tokens_that_attend_to_themselves_are_those_of_self_attention(name):
    module, x = layer(name), tokens(5)
    torch.testing.assert_close(module(x, x), module(x))


@pytest.mark.parametrize("name", CROSS)
def test_targets_see_the_contexts_and_not_each_other(name):
    module, targets, contexts = layer(name), tokens(4), tokens(6)
    together = module(targets, contexts)
    apart = [module(targets[:, i : i + 1], contexts) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(apart, 1))
    assert not torch.allclose(together, module(targets, tokens(6)))


@pytest.mark.parametrize("name", CROSS)
def test_padded_contexts_and_targets_are_as_if_they_were_not_there(name):
    module, targets, contexts = layer(name), tokens(4), tokens(6)
    of_targets, of_contexts = (torch.arange(n).ge(3).expand(3, n) for n in (4, 6))
    padded = module(targets, contexts, query_padding_mask=of_targets, key_padding_mask=of_contexts)
    torch.testing.assert_close(padded[:, :3], module(targets[:, :3], contexts[:, :3]))


def test_draws_come_first():
    module = layer("cgp")
    module.attention.num_samples = 7
    with sampling(module, "marginal"):
        assert module(tokens(4), tokens(6)).shape == (7, 3, 4, 8)
