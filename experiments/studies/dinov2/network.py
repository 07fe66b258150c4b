"""The host's upper layers with a classifier."""

from __future__ import annotations

from typing import Any

from torch import Tensor, cat, nn

__all__ = ["Upper"]


class Upper(nn.Module):
    """The host's last layers and norm, and a linear head on the class token and the mean of the patches, `(B, C)`."""

    def __init__(self, host: Any, layers: int, num_classes: int) -> None:
        super().__init__()
        self.layers, self.norm = host.encoder.layer[-layers:], host.layernorm
        self.head = nn.Linear(2 * host.config.hidden_size, num_classes)

    def forward(self, states: Tensor) -> Tensor:
        """Logits of states `(B, n, d)` below the layers."""
        for layer in self.layers:
            states = layer(states)
        states = self.norm(states)
        return self.head(cat([states[..., 0, :], states[..., 1:, :].mean(-2)], -1))
