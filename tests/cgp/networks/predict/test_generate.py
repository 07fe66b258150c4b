"""Generated tokens and their uncertainties against predictions of one token after another."""

from __future__ import annotations

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
