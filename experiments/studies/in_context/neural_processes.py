"""Neural processes: transformers that read contexts and targets as tokens, and a convolutional one."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import Attention, SoftmaxAttention
from cgp.functional.noise import noise
from cgp.networks.model.blocks import draws as drawing
from cgp.networks.model.blocks import sampling
from experiments.studies.in_context.predictive import Predictive
from experiments.studies.in_context.tasks import Tasks
from models.transformer_layer import TransformerLayer

__all__ = ["ConvCNP", "Encoder", "NeuralProcess", "RelativeAttention", "mean_of_contexts"]

_HEADS = 4
_SMALLEST_SD = 0.005
_FREQUENCIES = (0.5, 1.0, 2.0, 4.0, 8.0)  # of differences, radians a unit
_PER_UNIT, _REACH = 16, 4.5  # points of the grid, and how far it reaches
_DILATIONS = (1, 2, 4, 8, 4, 2)


class RelativeAttention(nn.Module):
    r"""Softmax attention whose logits see differences of inputs, and no input itself.

    .. math:: \operatorname{softmax}\big(\rho(q_i^\top k_j / \sqrt s,\; x_i - x_j)\big)\,V

    with a perceptron :math:`\rho` over the products of all heads and sines and cosines of the difference, without which
    it learns slowly to look at what is near.

    Source:
        Ashman et al. (2024), Translation equivariant transformer neural processes.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.logits = nn.Sequential(
            nn.Linear(num_heads + 2 * len(_FREQUENCIES), 16), nn.GELU(), nn.Linear(16, num_heads)
        )

    def forward(
        self, query: Tensor, key: Tensor, *, differences: Tensor, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """Attend to the contexts; ``differences`` of inputs are ``(B, Nq, Nk)``."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for part, x in ((self.query, query), (self.key, key), (self.value, key))
        )
        products = q @ k.mT / q.shape[-1] ** 0.5
        angles = differences[..., None] * differences.new_tensor(_FREQUENCIES)
        pairs = torch.cat([products.movedim(-3, -1), angles.sin(), angles.cos()], -1)
        logits = self.logits(pairs).movedim(-1, -3)
        if key_padding_mask is not None:
            logits = logits.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        return self.out((logits.softmax(-1) @ v).transpose(-2, -3).flatten(-2))


class Encoder(nn.Module):
    """Tokens of contexts and targets after some layers in which all attend to the contexts alone.

    Args:
        width: of the tokens.
        depth: number of layers.
        equivariant: whether tokens know differences of inputs only.
        attention: block of the layers that are not equivariant.
    """

    def __init__(
        self, width: int, depth: int, *, equivariant: bool = False, attention: type[Attention] = SoftmaxAttention
    ) -> None:
        super().__init__()
        self.equivariant = equivariant
        self.embed = nn.Sequential(nn.Linear(2 if equivariant else 3, width), nn.GELU(), nn.Linear(width, width))
        factory = RelativeAttention if equivariant else attention
        sizes: dict[str, Any] = {"embed_dim": width, "mlp_dim": 2 * width, "num_heads": _HEADS, "dropout": 0.0}
        self.layers = nn.ModuleList(TransformerLayer(attention=factory, **sizes) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tasks: Tasks) -> Tensor:
        """Tokens ``(B, n + m, d)``; ``(S, B, n + m, d)`` where the attention draws S."""
        n, x = tasks.x.shape[-1], tasks.inputs
        tokens = self.embed(self._inputs(tasks, x))
        options: dict[str, Any] = {"key_padding_mask": tasks.padding}
        if self.equivariant:
            options["differences"] = x[:, :, None] - tasks.x[:, None]
        for layer in self.layers:
            tokens = layer(tokens, tokens[..., :n, :], **options)
        return self.norm(tokens)

    def _inputs(self, tasks: Tasks, x: Tensor) -> Tensor:
        """Value (zero of a target), whether it is known, and the place unless that must not be seen."""
        nothing = torch.zeros_like(tasks.x_targets)
        value, known = torch.cat([tasks.y, nothing], -1), torch.cat([torch.ones_like(tasks.y), nothing], -1)
        return torch.stack([value, known] if self.equivariant else [value, known, x], -1)


class NeuralProcess(nn.Module):
    """A transformer neural process with independent Gaussian targets (TNP-D).

    Layers that draw give a mixture over draws: one in training, ``draws`` otherwise.

    Args:
        width: of the tokens.
        depth: number of layers.
        equivariant: whether tokens know differences of inputs only.
        attention: block of the layers that are not equivariant.
        draws: number of draws of layers that can; with 0 they return their means.

    Source:
        Nguyen & Grover (2022), Transformer neural processes.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        equivariant: bool = False,
        attention: type[Attention] = SoftmaxAttention,
        draws: int = 8,
    ) -> None:
        super().__init__()
        self.encoder, self.draws = Encoder(width, depth, equivariant=equivariant, attention=attention), draws
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, tasks: Tasks) -> Predictive:
        """Independent Gaussians of the targets, mixed over draws."""
        mode = "marginal" if self.draws else "mean"
        source, count = (nullcontext(), 1) if self.training else (noise(0), max(1, self.draws))
        with source, sampling(self, mode), drawing(self, count):
            tokens = self.encoder(tasks)
        out = self.head(tokens[..., tasks.x.shape[-1] :, :])
        return _gaussian(out if out.dim() == 4 else out[None])


class ConvCNP(nn.Module):
    """Contexts are smeared onto a grid, convolved and read at the targets; equivariant inside of the grid.

    Args:
        channels: of the convolutions.

    Source:
        Gordon et al. (2020), Convolutional conditional neural processes.
    """

    grid: Tensor

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        points = torch.arange(round(2 * _REACH * _PER_UNIT) + 1) / _PER_UNIT - _REACH
        self.register_buffer("grid", points)
        self.log_width_in, self.log_width_out = (nn.Parameter(torch.tensor(2.0 / _PER_UNIT).log()) for _ in range(2))
        self.first = nn.Conv1d(2, channels, 1)
        self.blocks = nn.ModuleList(nn.Conv1d(channels, channels, 5, dilation=d, padding=2 * d) for d in _DILATIONS)
        self.mix = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in _DILATIONS)
        self.head = nn.Sequential(nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, 2))

    def forward(self, tasks: Tasks) -> Predictive:
        """Independent Gaussians of the targets."""
        hidden = self.first(self._on_grid(tasks))
        for convolution, mix in zip(self.blocks, self.mix, strict=True):
            hidden = hidden + mix(torch.relu(convolution(torch.relu(hidden))))
        weights = _near(tasks.x_targets, self.grid.expand(len(tasks.x), -1), self.log_width_out)
        return _gaussian(self.head(weights @ hidden.mT)[None])

    def _on_grid(self, tasks: Tasks) -> Tensor:
        """Density of the contexts, and their smoothed values, ``(B, 2, grid)``."""
        weights = _near(self.grid.expand(len(tasks.x), -1), tasks.x, self.log_width_in)
        if tasks.padding is not None:
            weights = weights.masked_fill(tasks.padding[:, None], 0.0)
        density = weights.sum(-1)
        values = (weights @ tasks.y[..., None])[..., 0] / (density + 1e-4)
        return torch.stack([density, values], 1)


def _gaussian(out: Tensor) -> Predictive:
    """Mean and spread from a network's outputs ``(S, B, m, 2)``, an equal mixture over S."""
    sd = _SMALLEST_SD + torch.nn.functional.softplus(out[..., 1])
    mean, variance = (part.movedim(0, 1) for part in (out[..., 0], sd.square()))
    weights = mean.new_zeros(mean.shape[:2]).log_softmax(-1)
    return Predictive(weights, mean, variance)


def _near(a: Tensor, b: Tensor, log_width: Tensor) -> Tensor:
    """Bell-shaped weights of all pairs, ``(B, N, M)``."""
    return torch.exp(-0.5 * ((a[:, :, None] - b[:, None]) / log_width.exp()).square())


def mean_of_contexts(tokens: Tensor, tasks: Tasks) -> Tensor:
    """Mean token of the contexts, ``(B, d)``."""
    tokens = tokens[..., : tasks.x.shape[-1], :]
    if tasks.padding is None:
        return tokens.mean(-2)
    real = (~tasks.padding)[..., None].to(tokens)
    return (tokens * real).sum(-2) / real.sum(-2)
