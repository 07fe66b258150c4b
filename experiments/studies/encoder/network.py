"""The upper layers of the encoder with any attention, started from the encoder's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import (
    Attention,
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
)
from cgp.model.blocks import eval_mode, sampling

__all__ = ["ROWS", "Upper", "own_parameters", "upper"]

ROWS: Mapping[str, Callable[..., Attention]] = MappingProxyType(
    {
        "softmax": SoftmaxAttention,
        "kernel": KernelAttention,
        "sgpa": partial(SGPAttention, num_inducing=16),
        "kep_svgp": partial(KEPSVGPAttention, rank=5, num_landmarks=10),
        "sparse_cgp": partial(SparseCGPAttention, num_inducing=16),
        "cgp_softmax": partial(CGPAttention, mean="softmax", amplitude=1.0),
    }
)


class Upper(nn.Module):
    """From states below some layers of a BERT to logits, through its pooler of the first token.

    In the last layer only the first token goes beyond attention: nothing else is read.

    Args:
        layers: of the host, which are taken over but for their attention.
        blocks: attention of each layer.
        pooler: of the host.
        num_classes: C.
        dropout: probability before the head.
    """

    def __init__(
        self, layers: list[Any], blocks: list[Attention], pooler: Any, *, num_classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(*pair) for pair in zip(layers, blocks, strict=True))
        self.pooler, self.dropout = pooler.dense, nn.Dropout(dropout)
        self.head = nn.Linear(self.pooler.out_features, num_classes)

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Logits `(B, C)`, or `(S, B, C)` under draws, of states `(B, n, d)` and their padding `(B, n)`."""
        for layer in self.layers:
            states = layer(states, padding, first=layer is self.layers[-1])
        return self.head(self.dropout(self.pooler(states[..., 0, :]).tanh()))


class _Layer(nn.Module):
    def __init__(self, host: Any, block: Attention) -> None:
        super().__init__()
        self.block = block
        self.norm, self.dropout = host.attention.output.LayerNorm, host.attention.output.dropout
        self.intermediate, self.output = host.intermediate, host.output

    def forward(self, x: Tensor, padding: Tensor, *, first: bool) -> Tensor:
        attended = self.block(x, key_padding_mask=padding.expand(x.shape[:-1]))
        if first:
            x, attended = x[..., :1, :], attended[..., :1, :]
        x = self.norm(x + self.dropout(attended))
        return self.output(self.intermediate(x), x)


def upper(
    host: Any, row: str, replaced: int, layers: int, sample: Mapping[str, Tensor], *, num_classes: int, dropout: float
) -> Upper:
    """The upper layers of an encoder, the last of them with another attention.

    Args:
        host: the encoder.
        row: one of `ROWS`.
        replaced: how many layers have that attention, from the last one; the others keep softmax.
        layers: how many layers there are.
        sample: a batch of states and padding, at which the scales of the start are measured.
        num_classes: C.
        dropout: probability.

    Returns:
        The network; of "softmax" and "cgp_softmax" its logits are the host's, but for the new head.
    """
    chosen, (width, heads) = (
        list(host.encoder.layer[-layers:]),
        (host.config.hidden_size, host.config.num_attention_heads),
    )
    softmax = [SoftmaxAttention(width, heads) for _ in chosen]
    for block, layer in zip(softmax, chosen, strict=True):
        _take_maps(block, layer.attention)
    model = Upper(chosen, list(softmax), host.pooler, num_classes=num_classes, dropout=dropout)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    if row == "softmax":
        return model
    inputs: dict[int, Tensor] = {}
    hooks = [
        block.register_forward_pre_hook(lambda _, args, number=number: inputs.update({number: args[0]}))
        for number, block in enumerate(softmax)
    ]
    with eval_mode(model), torch.no_grad():
        model(**sample)
    for hook in hooks:
        hook.remove()
    for number in range(layers - replaced, layers):
        block = ROWS[row](width, heads)
        _take_maps(block, chosen[number].attention)
        if row != "cgp_softmax":
            _scale(block, softmax[number], inputs[number], sample["padding"])
        model.layers[number].block = block
    return model


def own_parameters(model: Upper) -> list[nn.Parameter]:
    """Parameters without counterpart in the host: the head's, and those of the blocks but for their maps."""
    own = list(model.head.parameters())
    for layer in model.layers:
        own += [p for name, p in layer.block.named_parameters() if not name.startswith(("in_proj.", "out_proj."))]
    return own


@torch.no_grad()
def _take_maps(block: Attention, attention: Any) -> None:
    """The host's map for every process that the block has, and its output map."""
    maps = {"query": attention.self.query, "key": attention.self.key, "value": attention.self.value}
    block.in_proj.weight.copy_(torch.cat([maps[name].weight for name in block.processes]))
    block.in_proj.bias.copy_(torch.cat([maps[name].bias for name in block.processes]))
    block.out_proj.load_state_dict(attention.output.dense.state_dict())


@torch.no_grad()
def _scale(block: Attention, softmax: Attention, x: Tensor, padding: Tensor) -> None:
    """One number for queries' and keys' maps, one for the output map; see the protocol."""
    size, with_map = block.embed_dim, [name for name in block.processes if name != "value"]
    if not isinstance(block, KEPSVGPAttention):
        tokens, real = block.project(x, key_padding_mask=padding), ~padding
        squares = (tokens.q[..., :, None, :] - tokens.k[..., None, :, :]).square().sum(-1)
        pairs = (real[:, None, :, None] & real[:, None, None, :]).expand_as(squares)
        factor = (2 / squares[pairs].mean()).sqrt()
        rows = slice(0, size * len(with_map))  # values come last
        block.in_proj.weight[rows] *= factor
        block.in_proj.bias[rows] *= factor
    with eval_mode(block), sampling(block, "mean"):
        given, wanted = (
            (b(x, key_padding_mask=padding) - b.out_proj.bias)[~padding].square().mean() for b in (block, softmax)
        )
    block.out_proj.weight *= (wanted / given).sqrt()
