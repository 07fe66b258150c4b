"""One vector per image from its tokens."""

from typing import Literal

import torch
from torch import nn

__all__ = ["MeanPooling", "SequencePooling", "pooling_layer"]


class MeanPooling(nn.Module):
    """The mean over the tokens.

    Example:
        >>> MeanPooling()(torch.ones(3, 5, 8)).shape
        torch.Size([3, 8])
    """

    def forward(
        self,
        x: torch.Tensor,  # shape: (*batch, n, d)
    ) -> torch.Tensor:  # shape: (*batch, d)
        """Average the tokens."""
        return x.mean(-2)


class SequencePooling(nn.Module):
    r"""Attention pooling: a mean of the tokens weighted by a learned linear score.

    .. math:: \bar x = \sum_i w_i x_i, \qquad w = \mathrm{softmax}_i(a^\top x_i + b)

    Args:
        embed_dim: width d of the tokens.

    Reference: Hassani et al., Escaping the Big Data Paradigm with Compact Transformers (2021), section 3.

    Example:
        >>> SequencePooling(8)(torch.ones(3, 5, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(embed_dim, 1)

    def forward(
        self,
        x: torch.Tensor,  # shape: (*batch, n, d)
    ) -> torch.Tensor:  # shape: (*batch, d)
        """Average the tokens by their weights."""
        weights = self.score(x).softmax(-2)  # (*batch, n, 1)
        return (weights * x).sum(-2)


def pooling_layer(pooling: Literal["mean", "sequence"], embed_dim: int) -> nn.Module:
    """The pooling of a name, "mean" or "sequence": a module from `(*batch, n, d)` to `(*batch, d)`."""
    if pooling not in ("mean", "sequence"):
        raise ValueError(f"pooling: expected 'mean' or 'sequence', got {pooling!r}")
    return MeanPooling() if pooling == "mean" else SequencePooling(embed_dim)
