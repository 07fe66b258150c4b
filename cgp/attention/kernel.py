"""Kernel attention: the mean of a Gaussian process without its variance."""

from __future__ import annotations

from torch import Tensor

from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional.kernels import Canonical, canonical
from cgp.functional.linalg import product
from cgp.functional.padding import mask_tokens

from .base import Attention
from .inputs import AttentionInputs, full_precision
from .masks import causal_mask

__all__ = ["KernelAttention", "kernel_heads"]


class KernelAttention(Attention):
    r"""Attention whose weights are the covariances of queries and keys, not normalised.

    .. math:: \kappa_o(Q, K)\,V

    Args:
        kernel: name of the canonical covariance; lengthscales per dimension are part of the maps.
        symmetric: whether queries and keys share one map.

    Raises:
        ValueError: if the kernel is unknown.

    Example:
        >>> import torch
        >>> KernelAttention(8, 2, symmetric=True)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    takes_causal = True

    def __init__(self, embed_dim: int, num_heads: int, *, kernel: str = "rbf", symmetric: bool = False) -> None:
        processes = ("key", "value") if symmetric else ("query", "key", "value")
        super().__init__(embed_dim, num_heads, processes=processes)
        self.symmetric = symmetric
        self.canonical = canonical(kernel)
        self._reset_process_maps(stationary=self.canonical.stationary)

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs ``(*batch, h, Nq, s)`` of projected tokens."""
        with full_precision(tokens.q.device):
            return kernel_heads(tokens, self.canonical)


def kernel_heads(tokens: AttentionInputs, kernel: Canonical) -> Tensor:
    """Kernel attention of every head, ``(*batch, h, Nq, s)``; also the mean of the direct correlated process."""
    values = mask_tokens(tokens.v, tokens.key_padding)
    if tokens.is_causal:
        gram = kernel.gram(tokens.q, tokens.k)
        return product(gram.masked_fill(causal_mask(gram.shape[-2], gram.shape[-1], gram.device), 0.0), values)
    return kernel_attention(kernel, tokens.q, tokens.k, values)
