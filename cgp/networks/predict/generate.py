"""Generated tokens with the uncertainty of each: decoders of the transformers library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.blocks import attention_blocks
from cgp.networks.model.inputs import model_device, to_device
from cgp.networks.model.structural_copy import structural_copy, uncompiled

from .predict import predict

__all__ = ["Generation", "generate"]


@dataclass(frozen=True, repr=False)
class Generation:
    """Generated tokens of a decoder, with the uncertainty of each.

    Attributes:
        sequences: sequences returned by the model's ``generate``, ``(B, n)``.
        tokens: the generated part, ``(B, G)``.
        log_probability: log-probability of each generated token under the averaged draws, ``(B, G)``, in nats.
        total: entropy of the averaged next-token distribution, ``(B, G)``, in nats.
        aleatoric: average entropy of the draws, ``(B, G)``, in nats; None for a single draw.
        epistemic: difference of both, ``(B, G)``, in nats; None for a single draw.
        output: output of ``generate``, with ``scores`` or ``logits`` if requested.
    """

    sequences: Tensor
    tokens: Tensor
    log_probability: Tensor
    total: Tensor
    aleatoric: Tensor | None
    epistemic: Tensor | None
    output: Any

    def __repr__(self) -> str:
        """One line."""
        batch, count = self.tokens.shape
        epistemic = "" if self.epistemic is None else f", epistemic {float(self.epistemic.nanmean()):.3g}"
        return f"Generation({batch} × {count} tokens, total {float(self.total.nanmean()):.3g}{epistemic})"


@torch.inference_mode(False)
@torch.no_grad()
def generate(
    model: nn.Module,
    inputs: Any,
    *,
    num_samples: int = 8,
    sampling: str = "marginal",
    seed: int | None = None,
    **options: Any,
) -> Generation:
    r"""Generate with the model's own ``generate`` and its cache, with the uncertainty of each token.

    The tokens are those of the original model: generation runs on the posterior's mean. The uncertainty of the next
    token,

    .. math:: H\Big[\tfrac1S\textstyle\sum_s p_s(\cdot \mid x_{<t})\Big], \qquad
        I(x_t; s) = H\Big[\tfrac1S\sum_s p_s\Big] - \tfrac1S\sum_s H[p_s]

    is then computed for all generated positions at once, by S draws over the finished sequences, which share the layers
    below the first stochastic one: one pass over the sequence and S over the layers above, for any number of tokens.
    Each draw is one function for the whole sequence, keys of earlier positions included.

    Args:
        model: a decoder or encoder-decoder of transformers, converted by :func:`cgp.convert`. It is not changed.
        inputs: ``input_ids`` ``(B, n)``, or the output of the tokeniser.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        seed: seed of the draws.
        **options: options of the model's ``generate``: ``max_new_tokens``, ``do_sample``, ``output_scores``, ...

    Returns:
        The tokens and their uncertainties; NaN after a sequence has ended.

    Raises:
        ValueError: if the model cannot generate, or beams are requested.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from cgp import convert
        >>> host = GPT2LMHeadModel(
        ...     GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=None)
        ... )
        >>> found = generate(
        ...     convert(host), torch.tensor([[1, 5, 7]]), max_new_tokens=4, do_sample=False, pad_token_id=0
        ... )
        >>> found.total.shape
        torch.Size([1, 4])
    """
    original = uncompiled(model)
    if not hasattr(original, "generate"):
        raise ValueError(f"model: expected one with generate (transformers), got {type(original).__name__}")
    if options.get("num_beams", 1) != 1:
        raise ValueError(f"num_beams: expected 1, got {options['num_beams']}")
    given = dict(inputs) if isinstance(inputs, Mapping) else {"input_ids": inputs}
    given = to_device(given, model_device(original))
    copy: Any = structural_copy(original).eval()
    for block in attention_blocks(copy):
        block.sampling = "mean"
    output = copy.generate(**given, **{**options, "return_dict_in_generate": True})
    sequences: Tensor = output.sequences
    count = sequences.shape[1] - (1 if _is_encoder_decoder(copy) else given["input_ids"].shape[1])
    tokens = sequences[:, -count:]
    given = {name: value.repeat_interleave(len(tokens) // len(value), 0) for name, value in given.items()}
    prediction = predict(
        original,
        _whole(copy, given, sequences),
        num_samples,
        sampling=sampling,
        seed=seed,
        keep_variance=False,
        output=lambda out: out.logits[:, -count - 1 : -1],
    )
    assert prediction.probabilities is not None
    assert prediction.total is not None
    ended = _ended(copy, tokens, options)
    chosen = prediction.probabilities.gather(-1, tokens[..., None])[..., 0].log()
    named: dict[str, Tensor | None] = {"log_probability": chosen, "total": prediction.total}
    named |= {"aleatoric": prediction.aleatoric, "epistemic": prediction.epistemic}
    masked: dict[str, Any] = {n: None if v is None else v.masked_fill(ended, torch.nan) for n, v in named.items()}
    return Generation(sequences=sequences, tokens=tokens, output=output, **masked)


def _is_encoder_decoder(model: Any) -> bool:
    return bool(getattr(model.config, "is_encoder_decoder", False))


def _whole(model: Any, given: dict[str, Any], sequences: Tensor) -> dict[str, Any]:
    """Inputs of one pass over the finished sequences, without a cache."""
    if _is_encoder_decoder(model):
        return {**given, "decoder_input_ids": sequences, "use_cache": False}
    inputs = {**given, "input_ids": sequences, "use_cache": False}
    mask = given.get("attention_mask")
    if mask is not None:
        new = mask.new_ones(len(mask), sequences.shape[1] - mask.shape[1])
        inputs["attention_mask"] = torch.cat([mask, new], 1)
        # As generate counts them: padding on the left has no positions.
        inputs["position_ids"] = (inputs["attention_mask"].long().cumsum(1) - 1).clamp(min=0)
    return inputs


def _ended(model: Any, tokens: Tensor, options: dict[str, Any]) -> Tensor:
    """Positions after the end of a sequence, ``(B, G)``."""
    ends = options.get("eos_token_id", model.generation_config.eos_token_id)
    ends = [] if ends is None else torch.as_tensor(ends).flatten().tolist()
    is_end = torch.isin(tokens, torch.tensor(ends, device=tokens.device, dtype=tokens.dtype))
    return is_end.long().cumsum(1) - is_end.long() > 0
