"""Start a training from the weights of another row: CGPT starts from asymmetric kernel attention."""

import torch
from torch import nn

from cgp.attention import Attention
from cgp.networks.model.blocks import attention_blocks
from cgp.networks.model.inducing import initialize_inducing
from experiments.data.examples import Examples, batch

__all__ = ["start_from"]

_STAND_INS = {"query": "key", "latent": "key"}  # a latent process at the keys: its mean starts near the one-hop mean
_INDUCING_FROM = 256  # examples among whose tokens the inducing inputs are chosen


@torch.no_grad()
def start_from(model: nn.Module, source: nn.Module, examples: Examples) -> None:
    """Copy the parameters that two networks have in common, process by process in their attention blocks.

    A process that the source lacks is initialised by its keys' map. Inducing inputs are chosen among the tokens of
    a few training examples.
    """
    state, blocks = model.state_dict(), attention_blocks(model)
    given = source.state_dict()
    shared = {name: value for name, value in given.items() if name in state and state[name].shape == value.shape}
    sources = attention_blocks(source)
    if len(sources) != len(blocks) or not any(name.startswith("embedding") or ".embedding" in name for name in shared):
        raise ValueError("init_from: expected a run of a model of the same sizes, got one of others")
    model.load_state_dict(shared, strict=False)
    for block, other in zip(blocks, sources, strict=True):
        _copy_processes(block, other)
    first = torch.arange(min(_INDUCING_FROM, len(examples)))
    initialize_inducing(model, batch(examples, first)[0])


def _copy_processes(block: Attention, source: Attention) -> None:
    maps = dict(zip(source.processes, source.in_proj.weight.chunk(len(source.processes)), strict=True))
    biases = dict(zip(source.processes, source.in_proj.bias.chunk(len(source.processes)), strict=True))
    weight, bias = (part.chunk(len(block.processes)) for part in (block.in_proj.weight, block.in_proj.bias))
    for place, process in enumerate(block.processes):
        name = process if process in maps else _STAND_INS.get(process)
        if name in maps:
            weight[place].copy_(maps[name])
            bias[place].copy_(biases[name])
