"""Generated tokens and their uncertainties against predictions of one token after another."""

from __future__ import annotations

import warnings

import pytest
import torch

from cgp import convert, generate, predict
from tests.cgp.helpers import Sizes
from tests.cgp.networks.convert import hosts

OPTIONS = {"max_new_tokens": 5, "do_sample": False}


def prompts(padded: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 40, (2, 6))
    mask = torch.ones_like(ids)
    if padded:
        ids[1, :2], mask[1, :2] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(("make", "padded"), [(hosts.llama, True), (hosts.gpt2, False)])
def test_tokens_are_the_hosts_and_uncertainties_those_of_each_prefix(make, padded):
    """With the last layer converted, draws of one position do not depend on the others."""
    host, inputs = make(), prompts(padded)
    expected = host.model.generate(**inputs, **OPTIONS)
    model = convert(host.model, amplitude=0.5)
    result = generate(model, inputs, num_samples=64, seed=0, **OPTIONS)
    assert torch.equal(result.sequences, expected)
    assert result.tokens.shape == (2, 5)
    for step in (0, 4):
        length = 6 + step
        mask = torch.cat([inputs["attention_mask"], torch.ones(2, step, dtype=torch.int64)], 1)
        prefix = {
            "input_ids": expected[:, :length],
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        }
        p = predict(model, prefix, 300, seed=1, output=lambda out: out.logits[:, -1])
        torch.testing.assert_close(result.total[:, step], p.total, atol=0.03, rtol=0.03)
        torch.testing.assert_close(result.epistemic[:, step], p.epistemic, atol=0.03, rtol=0.3)
        chosen = p.probabilities.gather(-1, expected[:, length][:, None])[:, 0].log()
        torch.testing.assert_close(result.log_probability[:, step], chosen, atol=0.1, rtol=0.05)
    assert (result.epistemic > 0).all()


def test_an_encoder_decoder_generates_too():
    sizes = {"d_ff": 32, "d_kv": 8, "num_layers": 2, "num_heads": 2}
    host, inputs = hosts.encoder_decoder("T5", **sizes, eos_token_id=None).model, prompts(False)
    expected = host.generate(**inputs, **OPTIONS)
    result = generate(convert(host, layers="all"), inputs, num_samples=4, seed=0, **OPTIONS)
    assert torch.equal(result.sequences, expected)
    assert result.epistemic.shape == (2, 5)
    assert (result.epistemic >= 0).all()


def test_after_the_end_there_is_nothing_to_say():
    host, inputs = hosts.llama(), prompts(False)
    free = host.model.generate(**inputs, **OPTIONS)
    end = int(free[0, 7])  # the second token generated
    result = generate(convert(host.model), inputs, num_samples=2, seed=0, eos_token_id=end, pad_token_id=0, **OPTIONS)
    first = (result.tokens[0] == end).int().argmax()
    assert result.total[0, : first + 1].isfinite().all()
    assert result.total[0, first + 1 :].isnan().all()


def test_the_model_is_not_changed_and_scores_come_along():
    host, inputs = hosts.llama(), prompts(False)
    model = convert(host.model, amplitude=0.5).train()
    model.gradient_checkpointing_disable()
    result = generate(model, inputs["input_ids"], num_samples=2, seed=0, output_scores=True, **OPTIONS)
    assert len(result.output.scores) == 5
    assert model.training
    assert repr(result).startswith("Generation(2 × 5 tokens, total ")
    again = generate(model, inputs["input_ids"], num_samples=2, seed=0, **OPTIONS)
    assert torch.equal(again.total, result.total)


def test_probabilities_of_draws_are_accumulated_not_stacked():
    host = hosts.decoder("Llama", vocab_size=4000)
    with Sizes() as sizes:
        generate(convert(host.model), prompts(False), num_samples=8, seed=0, **OPTIONS)
    assert 2 * 5 * 4000 <= sizes.largest() <= 2 * 11 * 4000  # the logits of the whole sequences, once


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="model: expected one with generate"):
        generate(torch.nn.Linear(1, 1), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="num_beams: expected 1, got 3"):
        generate(hosts.llama().model, torch.zeros(1, 1, dtype=torch.int64), num_beams=3)


def bloom() -> hosts.Host:
    return hosts.decoder("Bloom", "eager", n_layer=2, n_head=4)


def opt() -> hosts.Host:
    return hosts.decoder("OPT", ffn_dim=32, word_embed_proj_dim=16, do_layer_norm_before=True)


def of_host(host: hosts.Host, result, **inputs) -> torch.Tensor:
    """The log-probabilities of the generated tokens by the steps of the host's own generate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers speaks of padding
        output = host.model.generate(**inputs, **OPTIONS, return_dict_in_generate=True, output_logits=True)
    assert torch.equal(output.sequences, result.sequences)
    logits = torch.stack(output.logits, 1)
    return logits.log_softmax(-1).gather(-1, result.tokens[..., None])[..., 0]


@pytest.mark.parametrize("make", [hosts.llama, hosts.gpt2, hosts.gemma, bloom, opt])
@pytest.mark.parametrize("masked", [True, False])
def test_padding_is_seen_with_and_without_a_mask(make, masked):
    """Prompts that are padded on the left; without a mask, transformers infers it from the padding token."""
    host, inputs = make(), prompts(padded=True)
    model = convert(host.model, amplitude=1e-3)
    given = inputs if masked else {"input_ids": inputs["input_ids"]}
    result = generate(model, given if masked else given["input_ids"], num_samples=2, seed=0, **OPTIONS)
    torch.testing.assert_close(result.log_probability, of_host(host, result, **given), atol=5e-3, rtol=0)


def test_padding_on_the_right_is_refused():
    inputs = {name: values.flip(1) for name, values in prompts(padded=True).items()}
    model = convert(hosts.llama().model)
    for given in (inputs, inputs["input_ids"]):
        with pytest.raises(ValueError, match="attention_mask: expected padding on the left"):
            generate(model, given, **OPTIONS)


@pytest.mark.parametrize("make", [hosts.llama, hosts.gpt2])
@pytest.mark.parametrize("as_options", [True, False])
def test_embeddings_and_a_cache_of_the_prompt(make, as_options):
    host, inputs = make(), prompts(padded=False)
    model, ids = convert(host.model, amplitude=1e-3), inputs["input_ids"]
    plain = generate(model, inputs, num_samples=2, seed=0, **OPTIONS)
    with torch.no_grad():
        embeds = {"inputs_embeds": host.model.get_input_embeddings()(ids)}
        cache = host.model(ids[:, :-2]).past_key_values
    places = {"input_ids": ids, "position_ids": torch.arange(ids.shape[1]).expand_as(ids)}
    for given in (embeds, places, {"input_ids": ids, "past_key_values": cache}):
        where = ({}, given) if as_options else (given, {})
        result = generate(model, where[0], num_samples=2, seed=0, **where[1], **OPTIONS)
        assert torch.equal(result.tokens, plain.tokens)
        torch.testing.assert_close(result.log_probability, plain.log_probability, atol=5e-3, rtol=0)
        torch.testing.assert_close(result.total, plain.total, atol=5e-3, rtol=0)
    assert cache.get_seq_length() == ids.shape[1] - 2


def test_a_cache_of_other_tokens_is_refused():
    host, inputs = hosts.llama(), prompts(padded=False)
    model, ids = convert(host.model), inputs["input_ids"]
    with torch.no_grad():
        cache = host.model(40 - ids[:, :-1] + 2).past_key_values
    with pytest.raises(ValueError, match="inputs: expected a pass over the finished sequences to give the prob"):
        generate(model, {"input_ids": ids, "past_key_values": cache}, **OPTIONS)
    with pytest.raises(ValueError, match="past_key_values: expected a cache of the first of the input_ids"):
        generate(model, {"input_ids": ids[:, -1:], "past_key_values": cache}, **OPTIONS)


def t5() -> hosts.Host:
    return hosts.encoder_decoder("T5", d_ff=32, d_kv=8, num_layers=2, num_heads=2)


@pytest.mark.parametrize("make", [hosts.bart, t5])
def test_a_prefix_of_the_decoder_goes_before_what_is_generated(make):
    host, inputs = make(), prompts(padded=False)
    host.model.generation_config.update(eos_token_id=None, forced_eos_token_id=None, forced_bos_token_id=None)
    prefix = torch.tensor([[0, 5, 7], [0, 9, 4]])
    model = convert(host.model, amplitude=1e-3)
    result = generate(model, {**inputs, "decoder_input_ids": prefix}, num_samples=2, seed=0, **OPTIONS)
    assert result.tokens.shape == (2, 5)
    assert torch.equal(result.sequences[:, :3], prefix)
    expected = of_host(host, result, **inputs, decoder_input_ids=prefix)
    torch.testing.assert_close(result.log_probability, expected, atol=5e-3, rtol=0)


def test_beams_of_the_models_own_configuration_are_refused():
    host = hosts.llama()
    host.model.generation_config.num_beams = 4
    with pytest.raises(ValueError, match="num_beams: expected 1, got 4"):
        generate(convert(host.model), prompts(padded=False), **OPTIONS)
    assert (
        generate(convert(host.model), prompts(padded=False), num_samples=2, num_beams=1, **OPTIONS).output.logits
        is None
    )


def test_several_sequences_of_a_prompt():
    host, inputs = hosts.llama(), prompts(padded=True)
    torch.manual_seed(0)
    result = generate(
        convert(host.model), inputs, num_samples=2, seed=0, max_new_tokens=4, do_sample=True, num_return_sequences=3
    )
    assert result.tokens.shape == (6, 4)
    assert result.total.isfinite().all()
