"""Padding masks of keys are those of queries only if both are the same tokens, whatever the host calls them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cgp.networks.convert import convert
from cgp.networks.convert.manual_attention import Origins
from tests.cgp.networks.convert import hosts, oracle

REAL = hosts.padding(6, 6, 4, 2)  # of the context
MASK = REAL[:, None, None]


class Attend(nn.Module):
    """A host whose context and mask have names of their own, and are passed by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.maps = 2, nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def heads(self, x: Tensor, ctx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (m(y).unflatten(-1, (2, 4)).mT for m, y in zip(self.maps, (x, ctx, ctx), strict=False))
        return q.mT.transpose(1, 2), k.mT.transpose(1, 2), v.mT.transpose(1, 2)


class Fused(Attend):
    def forward(self, x: Tensor, ctx: Tensor, mask: Tensor) -> Tensor:
        out = nn.functional.scaled_dot_product_attention(*self.heads(x, ctx), mask)
        return self.maps[3](out.transpose(1, 2).flatten(-2))


class ByHand(Attend):
    def forward(self, x: Tensor, ctx: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.heads(x, ctx)
        weights = (q @ k.mT / 2).masked_fill(~mask, -torch.inf).softmax(-1)
        return self.maps[3]((weights @ v).transpose(1, 2).flatten(-2))


class WithLatents(Attend):
    """Its queries are the first of the keys' tokens, as global tokens are."""

    def forward(self, x: Tensor, ctx: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.heads(x, torch.cat([x, ctx], 1))
        mask = nn.functional.pad(mask, (x.shape[1], 0), value=True)
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return self.maps[3](out.transpose(1, 2).flatten(-2))


def posterior_and_oracle(host: Attend, *inputs: Tensor, context: Tensor, mask: Tensor):
    seen = hosts.watched(model := convert(host, **oracle.SCALES))
    model(*inputs)
    q, k, v = host.heads(inputs[0], context)
    return seen[-1], oracle.dense(q, k, v, mask, False, None)


@pytest.mark.parametrize("kind", [Fused, ByHand])
@pytest.mark.parametrize("count", [6, 4, 1, 9])
def test_the_padding_of_a_context_is_not_the_queries(kind: Callable[[], Attend], count: int):
    """Six keys; as many queries, fewer, one, or more."""
    host, x, ctx = hosts.spread(kind()), torch.randn(3, count, 8), torch.randn(3, 6, 8)
    result, expected = posterior_and_oracle(host, x, ctx, MASK, context=ctx, mask=MASK)
    torch.testing.assert_close(result.variance.double(), expected.variance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.mean.double(), expected.mean, rtol=1e-4, atol=1e-5)
    assert result.variance.min() > 0


@pytest.mark.parametrize("kind", [Fused, ByHand])
def test_the_padding_of_keys_is_that_of_queries_from_the_same_argument(kind: Callable[[], Attend]):
    host, x = hosts.spread(kind()), torch.randn(3, 6, 8)
    result, expected = posterior_and_oracle(host, x, x, MASK, context=x, mask=MASK)
    expected = expected.variance.masked_fill(~REAL[:, None], 0.0)
    torch.testing.assert_close(result.variance.double(), expected, rtol=1e-4, atol=1e-6)


def test_queries_that_are_the_first_of_the_keys_are_not_taken_for_the_last():
    host, x, ctx = hosts.spread(WithLatents()), torch.randn(3, 4, 8), torch.randn(3, 6, 8)
    mask = nn.functional.pad(MASK, (4, 0), value=True)
    result, expected = posterior_and_oracle(host, x, ctx, MASK, context=torch.cat([x, ctx], 1), mask=mask)
    torch.testing.assert_close(result.variance.double(), expected.variance, rtol=1e-4, atol=1e-6)


def test_origins_go_through_every_kind_of_function():
    """Parts, changes in place and writes into a buffer; a tensor of no argument covers nothing."""
    x, y, buffer = torch.randn(2, 6), torch.randn(2, 6), torch.zeros(2, 6)
    origins = Origins(x, {"context": [y]})
    first, second = x.chunk(2, -1)
    origins.follow([x], (first, second))
    origins.follow([buffer, first], buffer)
    assert origins.cover(buffer, first)
    assert origins.cover(second, x)
    assert not origins.cover(second, y)
    assert not origins.cover(torch.zeros(2), torch.zeros(2))


def fsmt() -> hosts.Host:
    """The decoder attends to ``key=``."""
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32}
    config = transformers.FSMTConfig(langs=["en", "de"], src_vocab_size=40, tgt_vocab_size=40, **sizes, **heads)
    inputs = {"input_ids": torch.randint(3, 40, (3, 6)), "attention_mask": REAL.long()}
    inputs["decoder_input_ids"] = torch.randint(3, 40, (3, 6))
    return hosts.Host(hosts.spread(transformers.FSMTModel(config)), inputs, lambda out: out.last_hidden_state)


def perceiver() -> hosts.Host:
    """Latents attend to ``inputs=``, and among themselves."""
    transformers = pytest.importorskip("transformers")
    sizes = {"num_latents": 6, "d_latents": 16, "d_model": 16, "num_self_attends_per_block": 1, "num_blocks": 1}
    config = transformers.PerceiverConfig(**sizes, num_cross_attention_heads=2, num_self_attention_heads=2)
    inputs = {"inputs": torch.randn(3, 6, 16), "attention_mask": REAL.long()}
    model = transformers.PerceiverModel(config)
    return hosts.Host(hosts.spread(model), inputs, lambda out: out.last_hidden_state)


def pegasus_x() -> hosts.Host:
    """Global tokens are the first of the keys."""
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "block_size": 4, "num_global_tokens": 4}
    config = transformers.PegasusXConfig(vocab_size=40, **sizes, **heads, max_position_embeddings=32)
    inputs = {"input_ids": torch.randint(3, 40, (3, 6)), "attention_mask": REAL.long()}
    inputs["decoder_input_ids"] = torch.randint(3, 40, (3, 6))
    return hosts.Host(hosts.spread(transformers.PegasusXModel(config)), inputs, lambda out: out.last_hidden_state)


def funnel() -> hosts.Host:
    """Pooled queries attend to all tokens."""
    transformers = pytest.importorskip("transformers")
    sizes = {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}
    config = transformers.FunnelConfig(vocab_size=40, **sizes)
    inputs = {"input_ids": torch.randint(3, 40, (3, 6)), "attention_mask": REAL.long()}
    return hosts.Host(hosts.spread(transformers.FunnelModel(config)), inputs, lambda out: out.last_hidden_state)


@pytest.mark.parametrize("make", [fsmt, perceiver, pegasus_x, funnel])
def test_no_real_token_of_such_hosts_is_without_variance(make: Callable[[], hosts.Host]):
    host = make()
    model = convert(host.model, layers="all", amplitude=0.5)
    for heads in hosts.heads_of(model):
        name, seen = heads.path, hosts.watched(model, layer=heads)
        host.run(model)
        heads.sampling = None
        assert seen, name
        for posterior in seen:
            variance = posterior.variance.transpose(-1, -2)  # (B, n, h)
            is_padded = make is funnel or name.startswith("encoder.layers")
            if is_padded and variance.shape[:2] == REAL.shape:
                assert not variance[~REAL].any(), name
                variance = variance[REAL]
            assert (variance > 0).all(), name
