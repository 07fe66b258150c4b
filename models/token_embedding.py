"""Words, characters or their precomputed embeddings to tokens."""

import torch
from torch import nn

__all__ = ["TokenEmbedding"]

_SCALE = 0.5


class TokenEmbedding(nn.Module):
    r"""A learned vector per symbol, or a linear map of a precomputed embedding, plus a learned position.

    .. math:: x_i = E_{t_i} + e_i \quad\text{or}\quad x_i = W t_i + b + e_i

    Args:
        vocabulary_size: number of symbols, for tokens that are numbers; None for precomputed embeddings.
        input_dim: width of precomputed embeddings; None for symbols.
        max_length: longest sequence.
        embed_dim: width d of the tokens.

    Raises:
        ValueError: if not exactly one of `vocabulary_size` and `input_dim` is given, or a size is not positive.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=100, max_length=20, embed_dim=8)
        >>> embedding(torch.zeros(3, 5, dtype=torch.long)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self, *, vocabulary_size: int | None = None, input_dim: int | None = None, max_length: int, embed_dim: int
    ) -> None:
        super().__init__()
        if (vocabulary_size is None) == (input_dim is None):
            raise ValueError(
                "vocabulary_size, input_dim: expected one of them (symbols, or precomputed embeddings), "
                f"got {vocabulary_size} and {input_dim}"
            )
        if max_length < 1:
            raise ValueError(f"max_length: expected at least 1, got {max_length}")
        self.max_length, self.input_dim = max_length, input_dim
        self.symbols: nn.Module
        if vocabulary_size is not None:
            self.symbols = nn.Embedding(vocabulary_size, embed_dim)
        else:
            self.symbols = nn.Linear(input_dim or 0, embed_dim)
        self.positions = nn.Parameter(_SCALE * torch.randn(max_length, embed_dim))

    def forward(
        self,
        tokens: torch.Tensor,  # shape: (*batch, n) int64, or (*batch, n, input_dim)
    ) -> torch.Tensor:  # shape: (*batch, n, d)
        """Embed the tokens; those of the other kind, or more than `max_length`, are a ValueError."""
        symbolic = not tokens.is_floating_point()
        if symbolic != (self.input_dim is None) or (not symbolic and tokens.shape[-1] != self.input_dim):
            kind = (
                "symbols (*batch, n) int64" if self.input_dim is None else f"embeddings (*batch, n, {self.input_dim})"
            )
            raise ValueError(f"tokens: expected {kind}, got {tokens.dtype} of shape {tuple(tokens.shape)}")
        embedded = self.symbols(tokens)
        length = embedded.shape[-2]
        if not 1 <= length <= self.max_length:
            raise ValueError(f"tokens: expected 1 to {self.max_length} of them, got {length}")
        return embedded + self.positions[:length]
