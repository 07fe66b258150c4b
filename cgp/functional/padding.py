"""Exact treatment of padded tokens: masking a token equals removing it.

A ``padding`` is bool ``(*batch, n)``: True where a token is padding.
Off-diagonals of padded tokens are zero in every Gram matrix; after noise is added, their diagonal is one in every
matrix that is factorised, so that they add nothing to solves and log-determinants.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["add_noise", "count_tokens", "mask_gram", "mask_tokens", "mask_variances"]


def mask_tokens(values: Tensor, padding: Tensor | None) -> Tensor:
    """Values per token, ``values`` ``(*batch, n, d)``, with those of padded tokens set to zero, ``(*batch, n, d)``."""
    return values if padding is None else values.masked_fill(padding[..., None], 0.0)


def mask_variances(variances: Tensor, padding: Tensor | None) -> Tensor:
    """Variances, ``variances`` ``(*batch, n)``, with those of padded tokens set to zero, ``(*batch, n)``."""
    return variances if padding is None else variances.masked_fill(padding, 0.0)


def mask_gram(gram: Tensor, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor:
    """Gram matrix with the rows and columns of padded tokens set to zero.

    Args:
        gram: ``(*batch, n, m)``.
        rows: padding mask of the rows, ``(*batch, n)``, or None.
        columns: padding mask of the columns, ``(*batch, m)``, or None.

    Returns:
        ``(*batch, n, m)``.
    """
    if rows is not None:
        gram = gram.masked_fill(rows[..., :, None], 0.0)
    if columns is not None:
        gram = gram.masked_fill(columns[..., None, :], 0.0)
    return gram


def add_noise(covariance: Tensor, noise: Tensor | float, padding: Tensor | None = None) -> Tensor:
    r"""Covariance of noisy observations, :math:`K + \sigma^2 I`, with a unit diagonal at padded tokens.

    Args:
        covariance: masked, ``(*batch, n, n)``.
        noise: a variance, a number or broadcastable to ``(*batch, n)``.
        padding: ``(*batch, n)``, or None.

    Returns:
        ``(*batch, n, n)``.

    Example:
        >>> add_noise(torch.eye(2), 0.5, torch.tensor([False, True]))
        tensor([[1.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    n = covariance.shape[-1]
    identity = torch.eye(n, dtype=covariance.dtype, device=covariance.device)
    if isinstance(noise, Tensor):
        noisy = covariance + noise[..., None] * identity
    else:
        noisy = torch.add(covariance, identity, alpha=noise)
    if padding is None:
        return noisy
    return torch.where(padding[..., None] & identity.bool(), torch.ones_like(noisy), noisy)


def count_tokens(like: Tensor, padding: Tensor | None) -> Tensor:
    """Number of real tokens, ``()`` or ``(*batch,)`` with a padding, in the dtype of ``like`` ``(..., n)``."""
    if padding is None:
        return like.new_tensor(like.shape[-1])
    return (~padding).sum(-1).to(like.dtype)
