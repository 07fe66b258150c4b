"""Inputs of the pass over generated sequences: all that the steps of the model's ``generate`` saw, at once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cgp.networks.model.inputs import model_device, to_device

__all__ = ["check_reproduced", "ended_positions", "model_inputs", "whole_sequences"]

_INPUTS = (
    *("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids", "past_key_values"),
    *("decoder_input_ids", "decoder_attention_mask", "encoder_outputs"),
)
"""Inputs of the model that may come as options of its ``generate``."""


def model_inputs(model: Any, inputs: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of the model, with the mask that its ``generate`` would infer, and the options of generation."""
    given = dict(inputs) if isinstance(inputs, Mapping) else {"input_ids": inputs}
    given |= {name: value for name, value in options.items() if name in _INPUTS and value is not None}
    options = {name: value for name, value in options.items() if name not in _INPUTS}
    beams = options.get("num_beams") or _configuration(model, options).num_beams or 1
    if beams != 1:
        raise ValueError(f"num_beams: expected 1, got {beams} (pass num_beams=1 if the model's own configuration asks)")
    given = to_device(given, model_device(model))
    ids, cache = given.get("input_ids"), given.get("past_key_values")
    if cache is not None and (ids is None or cache.get_seq_length() >= ids.shape[1]):
        raise ValueError(
            f"past_key_values: expected a cache of the first of the input_ids, which are all tokens so far, got "
            f"{cache.get_seq_length()} tokens in the cache and {0 if ids is None else ids.shape[1]} input_ids"
        )
    if "attention_mask" not in given and ids is not None and "inputs_embeds" not in given:
        given["attention_mask"] = _inferred_mask(model, ids, options)
    mask = given.get("attention_mask")
    if mask is not None and not _is_encoder_decoder(model) and bool((mask[:, :-1] > mask[:, 1:]).any()):
        raise ValueError(
            "attention_mask: expected padding on the left, as a decoder goes on from the last token, got padding after "
            "tokens (tokenizer.padding_side = 'left')"
        )
    return given, options


def _configuration(model: Any, options: dict[str, Any]) -> Any:
    return options.get("generation_config") or model.generation_config


def _inferred_mask(model: Any, ids: Tensor, options: dict[str, Any]) -> Tensor:
    """The mask of a prompt that comes without one, as transformers infers it: padding, unless it is also the end."""
    pad = options.get("pad_token_id", _configuration(model, options).pad_token_id)
    is_padding = torch.zeros_like(ids, dtype=torch.bool) if pad is None else ids == pad
    return (~is_padding if pad not in _ends(model, options) else torch.ones_like(is_padding)).long()


def _is_encoder_decoder(model: Any) -> bool:
    return bool(getattr(model.config, "is_encoder_decoder", False))


def whole_sequences(model: Any, given: dict[str, Any], sequences: Tensor, tokens: Tensor) -> dict[str, Any]:
    """Inputs of one pass over the finished sequences, without a cache."""
    times = len(tokens) // len(next(value for value in given.values() if isinstance(value, Tensor)))
    if times > 1:
        given = {name: value.repeat_interleave(times, 0) for name, value in given.items()}
    inputs = {name: value for name, value in given.items() if name != "past_key_values"} | {"use_cache": False}
    if not _is_encoder_decoder(model):
        return _whole_of_decoder(model, inputs, sequences, tokens)
    if "decoder_attention_mask" in given:
        inputs["decoder_attention_mask"] = _continued(given["decoder_attention_mask"], sequences.shape[1])
    return {**inputs, "decoder_input_ids": sequences}


def _whole_of_decoder(model: Any, inputs: dict[str, Any], sequences: Tensor, tokens: Tensor) -> dict[str, Any]:
    if "inputs_embeds" in inputs:
        inputs.pop("input_ids", None)
        inputs["inputs_embeds"] = torch.cat([inputs["inputs_embeds"], model.get_input_embeddings()(tokens)], 1)
        length = inputs["inputs_embeds"].shape[1]
    else:
        inputs["input_ids"], length = sequences, sequences.shape[1]
    inputs |= {n: _continued(inputs[n], length) for n in ("attention_mask", "token_type_ids") if n in inputs}
    if "position_ids" in inputs:
        places = inputs["position_ids"]
        new = torch.arange(1, length - places.shape[-1] + 1, device=tokens.device)
        inputs["position_ids"] = torch.cat([places, places[..., -1:] + new], -1)
    elif "attention_mask" in inputs and "position_ids" in inspect.signature(type(model).forward).parameters:
        # As generate counts them: padding on the left has no positions.
        inputs["position_ids"] = (inputs["attention_mask"].long().cumsum(1) - 1).clamp(min=0)
    return inputs


def _continued(values: Tensor, length: int) -> Tensor:
    """Values of each token ``(B, n)`` with the last one for those that follow."""
    return torch.cat([values, values[:, -1:].expand(-1, length - values.shape[1])], 1)


def check_reproduced(
    model: Any, whole: dict[str, Any], logits: Sequence[Tensor], tokens: Tensor, ended: Tensor
) -> None:
    """Raise unless one pass over the sequences gives the log-probabilities that the steps of ``generate`` gave."""
    here = model(**whole).logits[:, -len(logits) - 1 : -1]
    rounding = 0.25 if here.dtype.itemsize < 4 else 0.05
    there = torch.stack(list(logits), 1).to(here.device)
    pairs = [part.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0] for part in (here, there)]
    apart = (pairs[0] - pairs[1]).abs().masked_fill(ended, 0.0).sum(1) / (~ended).sum(1)
    if not bool((apart <= rounding).all()):
        raise ValueError(
            "inputs: expected a pass over the finished sequences to give the probabilities that the model generated "
            f"by, got log-probabilities that differ by {float(apart.max()):.2g} nats a token (pass input_ids of all "
            "tokens with their attention_mask, and a cache of these tokens or none)"
        )


def _ends(model: Any, options: dict[str, Any]) -> list[int]:
    """The tokens that end a sequence."""
    ends = options.get("eos_token_id", _configuration(model, options).eos_token_id)
    return [] if ends is None else [int(end) for end in torch.as_tensor(ends).flatten()]


def ended_positions(model: Any, tokens: Tensor, options: dict[str, Any]) -> Tensor:
    """Positions after the end of a sequence, ``(B, G)``."""
    ends = torch.tensor(_ends(model, options), device=tokens.device, dtype=tokens.dtype)
    is_end = torch.isin(tokens, ends)
    return is_end.long().cumsum(1) - is_end.long() > 0
