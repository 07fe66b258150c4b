"""Inducing inputs of the sparse blocks: learned, pooled from the tokens, or a fixed-length map of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgp.functional.padding import mask_tokens

__all__ = ["INDUCING", "LearnedInducing", "LinearInducing", "PooledInducing", "make_inducing"]

INDUCING = ("learned", "pooled", "linear")


class LearnedInducing(nn.Module):
    """Inducing inputs that are parameters, one set a head.

    Args:
        num_heads: h.
        num_inducing: m.
        head_dim: s.
        scale: standard deviation of their start, that of the projected tokens.
    """

    depends_on_tokens = False

    def __init__(self, num_heads: int, num_inducing: int, head_dim: int, scale: float) -> None:
        super().__init__()
        self.points = nn.Parameter(scale * torch.randn(num_heads, num_inducing, head_dim))

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The inducing inputs.

        Args:
            tokens: not used.
            padding: not used.

        Returns:
            ``(h, m, s)``.
        """
        return self.points.to(tokens.dtype)


class PooledInducing(nn.Module):
    r"""Inducing inputs pooled from tokens of any length: weighted means of the real tokens, plus offsets.

    .. math:: S_j = \sum_i \operatorname{softmax}_i(w_j^\top z_i)\, z_i + c_j

    Args:
        num_heads: h.
        num_inducing: m.
        head_dim: s.
        scale: standard deviation of the offsets' start.
    """

    depends_on_tokens = True

    def __init__(self, num_heads: int, num_inducing: int, head_dim: int, scale: float) -> None:
        super().__init__()
        shape = num_heads, num_inducing, head_dim
        self.seeds = nn.Parameter(torch.randn(shape))
        self.offsets = nn.Parameter(0.5 * scale * torch.randn(shape))  # keep the set apart where tokens agree

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The inducing inputs of each sequence.

        Args:
            tokens: ``(*batch, h, n, s)``.
            padding: ``(*batch, 1, n)`` or None.

        Returns:
            ``(*batch, h, m, s)``.
        """
        scores = self.seeds.to(tokens.dtype) @ tokens.mT
        if padding is not None:
            scores = scores.masked_fill(padding[..., None, :], torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ mask_tokens(tokens, padding) + self.offsets.to(tokens.dtype)


class LinearInducing(nn.Module):
    """Inducing inputs as a linear map of n tokens to m, the papers' (CGPT, published code): for one length alone.

    Args:
        num_heads: h.
        num_inducing: m.
        head_dim: s.
        num_tokens: n.
    """

    depends_on_tokens = True

    def __init__(self, num_heads: int, num_inducing: int, head_dim: int, num_tokens: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.weight = nn.Parameter(torch.randn(num_heads, num_inducing, num_tokens) * num_tokens**-0.5)
        self.offsets = nn.Parameter(torch.zeros(num_heads, num_inducing, head_dim))

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The inducing inputs of each sequence.

        Args:
            tokens: ``(*batch, h, n, s)``.
            padding: ``(*batch, 1, n)`` or None.

        Returns:
            ``(*batch, h, m, s)``.

        Raises:
            ValueError: if there are not n tokens.
        """
        if tokens.shape[-2] != self.num_tokens:
            raise ValueError(
                f"tokens: expected {self.num_tokens} of them for inducing='linear', got {tokens.shape[-2]}"
            )
        return self.weight.to(tokens.dtype) @ mask_tokens(tokens, padding) + self.offsets.to(tokens.dtype)


def make_inducing(
    kind: str, num_heads: int, num_inducing: int, head_dim: int, *, scale: float, num_tokens: int | None
) -> LearnedInducing | PooledInducing | LinearInducing:
    """The inducing inputs of a kind.

    Args:
        kind: one of :data:`INDUCING`.
        num_heads: h.
        num_inducing: m.
        head_dim: s.
        scale: standard deviation of the projected tokens.
        num_tokens: the length that "linear" is for.

    Returns:
        A module from tokens to inducing inputs.

    Raises:
        ValueError: if the kind is unknown, a size is not positive, or "linear" comes without a length.
    """
    if kind not in INDUCING:
        raise ValueError(f"inducing: expected one of {INDUCING}, got {kind!r}")
    if num_inducing < 1:
        raise ValueError(f"num_inducing: expected at least 1, got {num_inducing}")
    if kind == "linear":
        if num_tokens is None or num_tokens < 1:
            raise ValueError(
                f"num_tokens: expected the length of every sequence for inducing='linear', got {num_tokens}"
            )
        return LinearInducing(num_heads, num_inducing, head_dim, num_tokens)
    return (LearnedInducing if kind == "learned" else PooledInducing)(num_heads, num_inducing, head_dim, scale)
