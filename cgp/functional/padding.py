"""Exact treatment of padded tokens: masking a token equals removing it.

``padding`` is bool, True where a token is padding, ``(*batch, n)``, and broadcasts against a Gram matrix's batch shape.
Off-diagonals of padded tokens are zero in every Gram matrix; after noise is added, their diagonal is one in every
matrix that is factorised, so that they add nothing to solves and log-determinants.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["add_noise", "count_tokens", "mask_gram", "mask_tokens", "mask_variances"]


def mask_tokens(values: Tensor, padding: Tensor | None) -> Tensor:
    """Values per token, ``(*batch, n, d)``, with those of padded tokens set to zero."""
    return values if padding is None else values.masked_fill(padding[..., None], 0.0)


def mask_variances(variances: Tensor, padding: Tensor | None) -> Tensor:
    """Variances ``(*batch, n)``, with those of padded tokens set to zero."""
    return variances if padding is None else variances.masked_fill(padding, 0.0)


def mask_gram(gram: Tensor, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor:
    """Gram matrix, ``(*batch, n, m)``, with the rows and columns of padded tokens set to zero."""
    if rows is not None:
        gram = gram.masked_fill(rows[..., :, None], 0.0)
    if columns is not None:
        gram = gram.masked_fill(columns[..., None, :], 0.0)
    return gram


def add_noise(covariance: Tensor, noise: Tensor | float, padding: Tensor | None = None) -> Tensor:
    r"""Covariance of noisy observations, :math:`K + \sigma^2 I`, with a unit diagonal at padded tokens.

    Returns:
        ``(*batch, n, n)``, of a masked covariance and a variance that is a number or broadcastable to ``(*batch, n)``.

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
    """Number of real tokens, ``()`` or the batch shape of ``padding``, in the dtype of ``like`` ``(*batch, n)``."""
    if padding is None:
        return like.new_tensor(like.shape[-1])
    return (~padding).sum(-1).to(like.dtype)
