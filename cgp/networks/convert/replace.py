"""Blocks in the place of a transformer's attention, to be fine-tuned: their means are their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.attention import Attention, SparseCGPAttention
from cgp.networks.model.blocks import REPLACED
from cgp.networks.model.structural_copy import structural_copy

from .convert import chosen_indices
from .sites import num_parameters

__all__ = ["replace_attention"]


def replace_attention(
    model: nn.Module,
    block: Callable[..., Attention] = SparseCGPAttention,
    layers: str | Sequence[int] = "all",
    **options: Any,
) -> nn.Module:
    """Put an attention block in the place of a transformer's attention, to be fine-tuned.

    A block keeps the host's map of the values, if it has values, and its output map; queries and keys start as in the
    block. Its predictions are not the host's (:func:`cgp.convert` keeps those): train the result.

    Args:
        model: any module with :class:`torch.nn.MultiheadAttention` (``batch_first``), or with attention of timm, which
            has one map ``qkv`` and an output map ``proj``, or of the image encoders of transformers, which has maps
            ``v_proj`` and ``o_proj`` and is called with tokens alone.
        block: class of the block.
        layers: "all", "last", or indices into the layers that can be replaced.
        **options: further arguments of the block, such as ``dropout``.

    Returns:
        New modules around the same parameters, except for those of the blocks. ``model`` is not changed.

    Raises:
        ValueError: if the model has no such attention, or one that a block cannot replace.

    Example:
        >>> encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> replaced = replace_attention(encoder, dropout=0.1)
        >>> type(replaced.self_attn).__name__, replaced(torch.zeros(3, 5, 8)).shape
        ('SparseCGPAttention', torch.Size([3, 5, 8]))
    """
    copy = structural_copy(model)
    hosts = [(path, host) for path, module in copy.named_modules() if (host := _host(path, module))]
    if not hosts:
        raise ValueError(
            "model: expected torch.nn.MultiheadAttention, or attention with qkv and proj, or with v_proj and o_proj, "
            f"got none in {type(model).__name__}"
        )
    for path, host in (hosts[index] for index in chosen_indices(layers, len(hosts))):
        started = _started(block(host.out.in_features, host.num_heads, **options), host)
        setattr(started, REPLACED, num_parameters(copy.get_submodule(path)))
        placed = (_Paired(started) if host.is_paired else started).train(copy.training)
        if not path:
            return placed
        parent, _, name = path.rpartition(".")
        setattr(copy.get_submodule(parent), name, placed)
    for module in copy.modules():
        if isinstance(module, nn.TransformerEncoder):  # its nested tensors are for torch's own attention
            vars(module).update(use_nested_tensor=False)
    return copy


class _Host(NamedTuple):
    """What a block takes from the attention that it replaces."""

    num_heads: int
    value: tuple[Tensor, Tensor | None]
    out: nn.Linear
    is_paired: bool = False  # whether its host expects weights beside its output


class _Paired(nn.Module):
    """A block in the place of attention that returns its weights, too: None for them."""

    def __init__(self, block: Attention) -> None:
        super().__init__()
        self.block = block

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **others: Any
    ) -> tuple[Tensor, None]:
        """Outputs ``(B, n, d)`` for tokens ``(B, n, d)``."""
        for name, value in {"attention_mask": attention_mask, **others}.items():
            if isinstance(value, (Tensor, tuple)):
                raise ValueError(
                    f"{name}: expected None, as a block in the place of this attention takes tokens alone, got "
                    f"{type(value).__name__}: replace attention of image encoders, or of torch or timm"
                )
        return self.block(hidden_states), None


def _host(path: str, module: nn.Module) -> _Host | None:
    if isinstance(module, nn.MultiheadAttention):
        same_width = module._qkv_same_embed_dim
        if not (module.batch_first and same_width) or module.bias_k is not None or module.add_zero_attn:
            raise ValueError(
                f"model: expected {path or 'attention'} with batch_first=True, one width of queries, keys and values, "
                "and no added key, got another"
            )
        return _Host(module.num_heads, _last_third(module.in_proj_weight, module.in_proj_bias), module.out_proj)
    if (host := _of_transformers(path, module)) is not None:
        return host
    qkv, out, heads = (getattr(module, name, None) for name in ("qkv", "proj", "num_heads"))
    if not (isinstance(qkv, nn.Linear) and isinstance(out, nn.Linear) and isinstance(heads, int)):
        return None
    if qkv.weight.shape != (3 * out.in_features, out.out_features):
        raise ValueError(f"model: expected {path or 'attention'} with as wide heads as tokens, got another")
    return _Host(heads, _last_third(qkv.weight, qkv.bias), out)


def _of_transformers(path: str, module: nn.Module) -> _Host | None:
    """Attention of the image encoders of transformers."""
    value, out, heads = (getattr(module, name, None) for name in ("v_proj", "o_proj", "num_attention_heads"))
    if not (isinstance(value, nn.Linear) and isinstance(out, nn.Linear) and isinstance(heads, int)):
        return None
    if value.weight.shape != out.weight.shape or getattr(module, "is_causal", False):
        raise ValueError(f"model: expected {path or 'attention'} with as wide heads as tokens, not causal, got another")
    return _Host(heads, (value.weight, value.bias), out, is_paired=True)


def _last_third(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight.chunk(3)[-1], None if bias is None else bias.chunk(3)[-1]


@torch.no_grad()
def _started(block: Attention, host: _Host) -> Attention:
    """The block with the host's maps of values and outputs, on its device."""
    block = block.to(host.out.weight)
    _copy((block.out_proj.weight, block.out_proj.bias), (host.out.weight, host.out.bias))
    if "value" in block.processes:
        place, width = block.processes.index("value"), block.embed_dim
        rows = slice(place * width, (place + 1) * width)
        _copy((block.in_proj.weight[rows], block.in_proj.bias[rows]), host.value)
    return block


def _copy(own: tuple[Tensor, Tensor], given: tuple[Tensor, Tensor | None]) -> None:
    own[0].copy_(given[0])
    own[1].zero_() if given[1] is None else own[1].copy_(given[1])
