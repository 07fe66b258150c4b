"""The attention of transformers' encoders: ViT and its kin, BERT and its kin.

The module is replaced, not the attention function that it looks up: the masks then come as the library makes them for
every module, and none is lost.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cgp.attention import Attention

from .adapter import Adapter, ConvertedAttention, Projections
from .masks import HostMask, read_key_padding, read_pair_mask

__all__ = ["ConvertedTransformersAttention", "TextAdapter", "VisionAdapter"]

_NAMES = ("query", "key", "value")
_MODELS = "transformers.models"


class ConvertedTransformersAttention(ConvertedAttention):
    """A block called as the attention of transformers' encoders is; the attention weights it returns are None.

    Args:
        host: the module whose place it takes.
        block: with the host's projections.
    """

    def __init__(self, host: Any, block: Attention) -> None:
        super().__init__(block)
        self.is_causal = bool(getattr(host, "is_causal", False))

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend.

        Args:
            hidden_states: tokens, ``(B, N, d)``.
            attention_mask: ``(B, 1, N, N)``, True = attended or additive float, as for eager and sdpa attention;
                ``(B, N)``, 1 = real, as for flash attention; or None.
            past_key_values: expected to be None.
            **kwargs: what the library passes along; not used.

        Returns:
            AttentionInputs ``(B, N, d)``, and None.

        Raises:
            ValueError: if a cache is used, or the mask is neither padding nor causal.
        """
        if past_key_values is not None:
            raise self.refusal("past_key_values: expected None (use_cache=False), got a cache")
        mask = self._read(attention_mask, hidden_states)
        return self.attend(hidden_states, **mask._asdict()), None

    def _read(self, mask: Any, x: Tensor) -> HostMask:
        batch, count = x.shape[:-2], x.shape[-2]
        try:
            if isinstance(mask, Tensor) and mask.dim() == 2:
                return HostMask(read_key_padding(mask, real=True), self.is_causal)
            reading = read_pair_mask(mask, batch, count, count, attends=True)
        except ValueError as error:
            raise self.refusal(error) from error
        return HostMask(None, self.is_causal and count > 1) if mask is None else reading


class _TransformersAdapter(Adapter):
    maps: tuple[str, str, str]

    def read(self, host: Any) -> Projections:
        """The host's projections.

        Args:
            host: the module.

        Returns:
            Its own parameters.
        """
        linear = {name: getattr(host, own) for name, own in zip(_NAMES, self.maps, strict=True)}
        weights = {name: module.weight for name, module in linear.items()}
        biases = {name: module.bias for name, module in linear.items()}
        out = getattr(host, "o_proj", None)  # BERT projects in the module around this one
        out = nn.Identity() if out is None else out
        return Projections(host.num_attention_heads, weights, biases, out, scale=float(host.scaling))

    def wrap(self, host: nn.Module, block: Attention) -> ConvertedTransformersAttention:
        """The module in the host's place.

        Args:
            host: the module that is replaced.
            block: with its projections.

        Returns:
            With the same calling convention.
        """
        return ConvertedTransformersAttention(host, block)


class VisionAdapter(_TransformersAdapter):
    """Reads and replaces the attention of ViT, DINOv2 and the models that share their code."""

    maps = ("q_proj", "k_proj", "v_proj")
    hosts = tuple(
        f"{_MODELS}.{folder}.modeling_{folder}.{name}Attention"
        for folder, name in (
            ("vit", "ViT"),
            ("deit", "DeiT"),
            ("dinov2", "Dinov2"),
            ("dinov2_with_registers", "Dinov2WithRegisters"),
            ("ijepa", "IJepa"),
            ("vit_mae", "ViTMAE"),
            ("vit_msn", "ViTMSN"),
        )
    )


class TextAdapter(_TransformersAdapter):
    """Reads and replaces the attention of BERT, RoBERTa and the models that share their code."""

    maps = ("query", "key", "value")
    hosts = tuple(
        f"{_MODELS}.{folder}.modeling_{folder}.{name}SelfAttention"
        for folder, name in (
            ("bert", "Bert"),
            ("roberta", "Roberta"),
            ("camembert", "Camembert"),
            ("electra", "Electra"),
            ("ernie", "Ernie"),
            ("roberta_prelayernorm", "RobertaPreLayerNorm"),
            ("xlm_roberta", "XLMRoberta"),
            ("xlm_roberta_xl", "XLMRobertaXL"),
        )
    )
