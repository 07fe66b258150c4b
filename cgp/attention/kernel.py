"""Kernel attention: the mean of a Gaussian process without its variance."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional.kernels import Canonical
from cgp.functional.linalg import product
from cgp.functional.padding import mask_gram, mask_tokens

from .base import Attention
from .gaussian_process import use_kernel
from .inputs import AttentionInputs, full_precision
from .masks import causal_mask

__all__ = ["KernelAttention", "PriorAmplitude", "heads_and_total", "kernel_heads", "total_covariance"]


class PriorAmplitude(Attention):
    r"""Base of blocks whose process is :math:`\tau z_o`, with an amplitude per head, and whose maps start equal."""

    canonical: Canonical
    log_amplitude: nn.Parameter | None
    weighs_values = True
    regresses = False  # whether values are observations, of which older weights know nothing

    def _start_equal(self) -> None:
        self._reset_process_maps(stationary=self.canonical.stationary, equal=True)

    def _register_amplitude(self, amplitude: float, *, is_learned: bool = True) -> None:
        if not amplitude > 0:
            raise ValueError(f"amplitude: expected a positive number, got {amplitude!r}")
        start = torch.full((self.num_heads,), math.log(amplitude))
        self.log_amplitude = nn.Parameter(start, requires_grad=is_learned)

    def _unit_amplitude(self, dtype: torch.dtype) -> Tensor:
        """The learned standard deviation, ``(h, 1)``."""
        assert self.log_amplitude is not None
        return self.log_amplitude.exp()[:, None].to(dtype)

    def _amplitude(self, total: Tensor, tokens: AttentionInputs) -> Tensor:
        r"""Standard deviation, given :func:`total_covariance`: weights sum to at most :math:`\tau^2` on average."""
        mean = total / count_visible(tokens)
        return self._unit_amplitude(total.dtype) * mean.clamp(min=1.0).rsqrt()

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        if strict and not self.regresses and f"{prefix}log_amplitude" not in state_dict:
            self.log_amplitude = None  # older weights, of a process whose variance is one
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)


def count_visible(tokens: AttentionInputs) -> Tensor:
    """Number of real keys that each query sees, at least one, broadcastable to ``(*batch, h, Nq)``."""
    real = tokens.k.new_ones(tokens.k.shape[-2])
    if tokens.key_padding is not None:
        real = real.masked_fill(tokens.key_padding, 0.0)
    return (real.cumsum(-1) if tokens.is_causal else real.sum(-1, keepdim=True)).clamp(min=1.0)


def total_covariance(gram: Tensor, tokens: AttentionInputs) -> Tensor:
    """Sum of the covariances of the key tokens as queries with them as keys, ``(*batch, h, Nk, Nk)``.

    Returns:
        ``(*batch, h, 1)``; under a causal mask the sum of the tokens up to each one, ``(*batch, h, n)``.
    """
    gram = mask_gram(gram, tokens.key_padding, tokens.key_padding)
    if tokens.is_causal:
        return gram.cumsum(-1).cumsum(-2).diagonal(dim1=-2, dim2=-1)
    return gram.sum((-2, -1))[..., None]


class KernelAttention(PriorAmplitude):
    r"""Attention whose weights are the covariances of queries and keys, not normalised by row.

    .. math:: a^2\,\kappa_o(Q, K)\,V, \qquad a^2 = \tau^2 \big/ \max(1, \bar K)

    where :math:`\bar K` is the mean sum of a row of :math:`\kappa_o(Q, K)` in the sequence of the keys, and
    :math:`\tau` is learned per head.

    Args:
        kernel: name of the canonical covariance, or a kernel of GPyTorch; lengthscales per dimension are part of the
            maps.
        symmetric: whether queries and keys share one map; if not, their maps start equal.
        normalized: whether the weights are scaled by :math:`a^2`; in the papers they are not.

    Raises:
        ValueError: if the kernel is unknown.

    Example:
        >>> import torch
        >>> KernelAttention(8, 2, symmetric=True)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    takes_causal = queries_of_keys = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: str | Kernel = "rbf",
        symmetric: bool = False,
        normalized: bool = True,
        dropout: float = 0.0,
    ) -> None:
        processes = ("key", "value") if symmetric else ("query", "key", "value")
        super().__init__(embed_dim, num_heads, processes=processes, dropout=dropout)
        self.symmetric = symmetric
        self.canonical = use_kernel(self, kernel)
        self._start_equal()
        self.register_parameter("log_amplitude", None)
        if normalized:
            self._register_amplitude(1.0)

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs ``(*batch, h, Nq, s)`` of projected tokens."""
        with full_precision(tokens.q.device):
            if self.log_amplitude is None:
                return kernel_heads(tokens, self.canonical)
            heads, total = heads_and_total(tokens, self.canonical)
            return heads * self._amplitude(total, tokens).square()[..., None]


def kernel_heads(tokens: AttentionInputs, kernel: Canonical) -> Tensor:
    """Covariances of queries and keys times the values, ``(*batch, h, Nq, s)``."""
    values = mask_tokens(tokens.v, tokens.key_padding)
    if tokens.is_causal:
        gram = kernel.gram(tokens.q, tokens.k)
        return product(gram.masked_fill(causal_mask(gram.shape[-2], gram.shape[-1], gram.device), 0.0), values)
    return kernel_attention(kernel, tokens.q, tokens.k, values)


def heads_and_total(tokens: AttentionInputs, kernel: Canonical) -> tuple[Tensor, Tensor]:
    """:func:`kernel_heads` and :func:`total_covariance`; of self-attention by one product."""
    if tokens.is_causal:
        return kernel_heads(tokens, kernel), total_covariance(kernel.gram(tokens.own, tokens.k), tokens)
    ones = tokens.k.new_ones(()).expand(*tokens.k.shape[:-1], 1)
    if tokens.own is tokens.q:
        both = kernel_heads(tokens._replace(v=torch.cat([tokens.v, ones], -1)), kernel)
        heads, sums = both[..., :-1], both[..., -1:]
    else:
        assert tokens.own is not None, "cross-attention of this block projects keys as queries"
        heads, sums = kernel_heads(tokens, kernel), kernel_heads(tokens._replace(q=tokens.own, v=ones), kernel)
    return heads, mask_tokens(sums, tokens.key_padding).sum(-2)
