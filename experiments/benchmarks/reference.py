"""What every ratio is related to: multi-head attention on scaled_dot_product_attention, nothing else around it."""

import torch
from torch import nn

__all__ = ["MultiheadReference"]


class MultiheadReference(nn.Module):
    """Softmax attention as a user would write it: one projection in, PyTorch's own kernel, one projection out.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.

    Example:
        >>> MultiheadReference(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend.

        Args:
            x: tokens, `(batch, n, d)`.

        Returns:
            AttentionInputs `(batch, n, d)`.
        """
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(attended.transpose(1, 2).flatten(-2))
