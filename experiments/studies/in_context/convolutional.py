"""A convolutional conditional neural process over one input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.studies.in_context.attentive import gaussian
from experiments.studies.in_context.predictive import Predictive
from experiments.studies.in_context.tasks import Tasks

__all__ = ["ConvCNP"]

_PER_UNIT, _REACH = 16, 4.5
_DILATIONS = (1, 2, 4, 8, 4, 2)


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
        return gaussian(self.head(weights @ hidden.mT)[None])

    def _on_grid(self, tasks: Tasks) -> Tensor:
        """Density of the contexts, and their smoothed values, ``(B, 2, grid)``."""
        weights = _near(self.grid.expand(len(tasks.x), -1), tasks.x, self.log_width_in)
        if tasks.padding is not None:
            weights = weights.masked_fill(tasks.padding[:, None], 0.0)
        density = weights.sum(-1)
        values = (weights @ tasks.y[..., None])[..., 0] / (density + 1e-4)
        return torch.stack([density, values], 1)


def _near(a: Tensor, b: Tensor, log_width: Tensor) -> Tensor:
    """Bell-shaped weights of all pairs, ``(B, N, M)``."""
    return torch.exp(-0.5 * ((a[:, :, None] - b[:, None]) / log_width.exp()).square())
