"""Decoding with every cache of transformers: the posterior of each token, against dense algebra in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cgp import generate, predict
from cgp.networks.convert import convert
from tests.cgp.networks.convert import hosts, oracle

transformers = pytest.importorskip("transformers")
NEW = 4


def dynamic(config: Any) -> Any:
    return transformers.DynamicCache(config=config)


def static(config: Any) -> Any:
    return transformers.StaticCache(config=config, max_cache_len=24)


def fp8(config: Any) -> Any:
    if not hasattr(transformers.cache_utils, "Fp8QuantizedLayer"):
        pytest.skip("this version of transformers has no cache of 8-bit floats")
    return transformers.QuantizedCache("fp8", config=config)


def quanto(config: Any) -> Any:
    pytest.importorskip("optimum.quanto")
    return transformers.QuantizedCache("quanto", config=config, nbits=4, q_group_size=4, residual_length=3)


EXACT = (dynamic, static)
CACHES = (*EXACT, fp8, pytest.param(quanto, marks=pytest.mark.slow))  # it compiles


def gemma3() -> hosts.Host:
    """A hybrid: layers of windows and of the whole sequence."""
    kinds = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}
    return hosts.decoder("Gemma3Text", num_key_value_heads=2, head_dim=4, **kinds)


QUANTISED, WINDOWED = (fp8, quanto), ("mistral", "gemma3")
DECODERS = {"llama": hosts.llama, "gpt2": hosts.gpt2, "mistral": hosts.mistral, "gemma3": gemma3}


@torch.no_grad()
def decode(model: Any, host: hosts.Host, cache: Any) -> None:
    """A prompt with padding on the left, a chunk of two tokens, and tokens one by one."""
    ids, mask = host.inputs["input_ids"], host.inputs["attention_mask"]
    generator = torch.Generator().manual_seed(3)
    model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    for count in (2, *[1] * NEW):
        ids = torch.randint(3, 40, (len(ids), count), generator=generator)
        mask = torch.cat([mask, mask.new_ones(len(ids), count)], 1)
        model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("make_cache", CACHES)
def test_every_token_has_its_dense_posterior(name: str, make_cache: Callable[[Any], Any], monkeypatch):
    if make_cache in QUANTISED and name in WINDOWED:
        pytest.skip("transformers quantises the caches of full attention only")
    host = DECODERS[name]()
    model = convert(host.model, **oracle.SCALES)
    seen = hosts.watched(model)
    decode(model, host, make_cache(host.model.config))
    expected = oracle.fused_calls(monkeypatch)
    decode(host.model, host, make_cache(host.model.config))
    expected = expected[1::2]  # of the last layer
    assert len(seen) == len(expected) == 2 + NEW
    for step, (variances, other) in enumerate(zip(seen, expected, strict=True)):
        real = (
            host.inputs["attention_mask"].bool()
            if step == 0
            else torch.ones(len(variances.mean), variances.mean.shape[2])
        )
        real = real.bool()[:, None].expand(variances.variance.shape)
        mean, variance = other.mean.reshape(variances.mean.shape), other.variance.reshape(real.shape)  # grouped heads
        torch.testing.assert_close(variances.variance[real].double(), variance[real], rtol=2e-4, atol=2e-6)
        torch.testing.assert_close(variances.mean[real].double(), mean[real], rtol=1e-4, atol=1e-5)
        assert (variances.variance[real] > 0).all()


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "gemma3"])
def test_a_static_cache_decodes_as_one_that_grows(name: str):
    """Padded tokens of the prompt included, which have no variance where the keys say that they are padding."""
    host = DECODERS[name]()
    variances: list[list[Tensor]] = []
    for make_cache in EXACT:
        seen = hosts.watched(model := convert(host.model))
        decode(model, host, make_cache(host.model.config))
        variances.append([posterior.variance for posterior in seen])
    for variance, expected in zip(*variances, strict=True):
        torch.testing.assert_close(variance, expected, rtol=1e-3, atol=1e-6)
    if name in ("llama", "gpt2"):
        assert not variances[1][0].transpose(1, 2)[~host.inputs["attention_mask"].bool()].any()


def test_generated_text_is_as_uncertain_with_a_static_cache():
    host = hosts.llama()
    model = convert(host.model, amplitude=0.5)
    options = {"num_samples": 4, "seed": 0, "max_new_tokens": 5, "do_sample": False}
    dynamic = generate(model, host.inputs, **options)
    static = generate(model, host.inputs, cache_implementation="static", disable_compile=True, **options)
    assert torch.equal(dynamic.tokens, static.tokens)
    torch.testing.assert_close(dynamic.epistemic, static.epistemic)


@torch.no_grad()
def test_the_next_token_is_as_uncertain_with_a_static_cache():
    host = hosts.gpt2()
    model = convert(host.model, amplitude=0.5)
    ids, spreads = host.inputs["input_ids"], []
    for make_cache in EXACT:
        draws = []
        for seed in range(8):
            hosts.heads_of(model)[0].sampling = "mean"
            cache = make_cache(host.model.config)
            model(ids[:, :-1], past_key_values=cache)
            hosts.heads_of(model)[0].sampling = "marginal"
            torch.manual_seed(seed)
            draws.append(model(ids[:, -1:], past_key_values=cache).logits[:, -1])
        spreads.append(torch.stack(draws).std(0))
    torch.testing.assert_close(*spreads, rtol=1e-3, atol=1e-5)
    assert spreads[1].min() > 1e-3
    hosts.heads_of(model)[0].sampling = None
    assert predict(model, {"input_ids": ids}, 4, seed=0).epistemic.max() > 0
