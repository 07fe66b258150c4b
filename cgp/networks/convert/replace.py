"""Blocks in the place of a transformer's attention, to be fine-tuned: their means are their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp import attention
from cgp.attention import Attention, SparseCGPAttention
from cgp.networks.model.blocks import REPLACED
from cgp.networks.model.structural_copy import structural_copy
from cgp.spelling import nearest

from .convert import chosen_indices
from .sites import attention_sites, num_parameters

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
        ValueError: if the model has no such attention, or one that a block cannot replace, or the block is none.

    Example:
        >>> encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> replaced = replace_attention(encoder, dropout=0.1)
        >>> type(replaced.self_attn).__name__, replaced(torch.zeros(3, 5, 8)).shape
        ('SparseCGPAttention', torch.Size([3, 5, 8]))
    """
    _check_block(block)
    copy = structural_copy(model)
    hosts = [(path, host) for path, module in copy.named_modules() if (host := _host(path, module))]
    kinds = "torch.nn.MultiheadAttention, or attention with qkv and proj, or with v_proj and o_proj"
    _refuse(model, kinds, {f"none in {type(model).__name__}": not hosts})
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


def _check_block(block: object) -> None:
    """Raise for what is no class of a block and makes none, such as a name."""
    is_other = not issubclass(block, Attention) if isinstance(block, type) else isinstance(block, nn.Module)
    if is_other or not callable(block):
        name = f"{block}".replace("_", "").removesuffix("Attention")
        near = nearest([f"{name}Attention"], attention.__all__) if isinstance(block, str) else []
        classes = "".join(f"; did you mean cgp.{each}, the class?" for each in near)
        got = f"a {type(block).__name__} in place of its class" if isinstance(block, nn.Module) else repr(block)
        raise ValueError(f"block: expected a class of cgp.attention, such as SparseCGPAttention, got {got}{classes}")


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
        expected = "with batch_first=True, one width of queries, keys and values, and no added key"
        wrong = {
            "batch_first=False": not module.batch_first,
            f"kdim={module.kdim}, vdim={module.vdim}": not module._qkv_same_embed_dim,
            "add_bias_kv=True": module.bias_k is not None,
            "add_zero_attn=True": module.add_zero_attn,
        }
        _refuse(module, f"{path or 'attention'} {expected}", wrong)
        return _Host(module.num_heads, _last_third(module.in_proj_weight, module.in_proj_bias), module.out_proj)
    if (host := _of_transformers(path, module)) is not None:
        return host
    qkv, out, heads = (getattr(module, name, None) for name in ("qkv", "proj", "num_heads"))
    if not (isinstance(qkv, nn.Linear) and isinstance(out, nn.Linear) and isinstance(heads, int)):
        return None
    wrong = {_sizes("qkv", qkv): qkv.weight.shape != (3 * out.in_features, out.out_features)}
    _refuse(module, f"{path or 'attention'} with as wide heads as tokens", wrong)
    return _Host(heads, _last_third(qkv.weight, qkv.bias), out)


def _of_transformers(path: str, module: nn.Module) -> _Host | None:
    """Attention of the image encoders of transformers."""
    value, out, heads = (getattr(module, name, None) for name in ("v_proj", "o_proj", "num_attention_heads"))
    if not (isinstance(value, nn.Linear) and isinstance(out, nn.Linear) and isinstance(heads, int)):
        return None
    wrong = {
        _sizes("v_proj", value): value.weight.shape != out.weight.shape,
        "causal attention": getattr(module, "is_causal", False),
    }
    _refuse(module, f"{path or 'attention'} with as wide heads as tokens, not causal", wrong)
    return _Host(heads, (value.weight, value.bias), out, is_paired=True)


def _sizes(name: str, linear: nn.Linear) -> str:
    return f"{name} from {linear.in_features} to {linear.out_features} features"


def _refuse(module: nn.Module, expected: str, wrong: dict[str, bool]) -> None:
    """Raise if something is wrong, and say what, and whether the attention can be converted."""
    got = ", ".join(name for name, is_so in wrong.items() if is_so)
    if got:
        takes = any(site.state == "softmax" for site in attention_sites(module))
        raise ValueError(f"model: expected {expected}, got {got}{'; cgp.convert takes it' if takes else ''}")


def _last_third(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight.chunk(3)[-1], None if bias is None else bias.chunk(3)[-1]


@torch.no_grad()
def _started(block: Attention, host: _Host) -> Attention:
    """The block with the host's maps of values and outputs, on its device."""
    if not isinstance(block, Attention):
        raise ValueError(f"block: expected what returns a block of cgp.attention, got one that returns {block!r}")
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
