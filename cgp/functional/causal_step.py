r"""Causal sparse attention one token at a time: a state of fixed size and its step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .causal import own_variance
from .cholesky import inverse_factor
from .padding import as_matrix
from .sparse_correlated import capacitance

__all__ = ["PrefixState", "PrefixStep", "empty_prefix", "prefix_state", "prefix_step"]


class PrefixState(NamedTuple):
    r"""What sparse causal attention keeps of the tokens so far; its size does not grow with them.

    Attributes:
        sums: :math:`\sum_{j\le t}A_{k,j}V_j^\top`, ``(*batch, m, s)``.
        root: S with :math:`SS^\top = D_t^{-1}`, ``(*batch, m, m)``. A root, not the inverse: it stays positive
            semi-definite however long the sequence, and keeps more digits.
    """

    sums: Tensor
    root: Tensor


class PrefixStep(NamedTuple):
    """One more token.

    Attributes:
        mean: ``(*batch, 1, s)``.
        variance: ``(*batch, 1)``.
        state: with the token in it.
    """

    mean: Tensor
    variance: Tensor
    state: PrefixState


def empty_prefix(like: Tensor, columns: int) -> PrefixState:
    """The state before the first token.

    Args:
        like: an m × m matrix a head, ``(*batch, m, m)``, for size, dtype and device.
        columns: s.

    Returns:
        Zero sums and unit roots, which any batch broadcasts.

    Example:
        >>> empty_prefix(torch.zeros(3, 2, 2), columns=5).sums.shape
        torch.Size([3, 2, 5])
    """
    identity = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return PrefixState(like.new_zeros(*like.shape[:-1], columns), identity.expand_as(like))


def prefix_state(features_k: Tensor, values: Tensor, *, noise: Tensor | float) -> PrefixState:
    r"""The state after n tokens at once, by one Cholesky.

    Args:
        features_k: :math:`A_k`, ``(*batch, m, n)``.
        values: V, ``(*batch, n, s)``.
        noise: :math:`\sigma^2`.

    Returns:
        The state that n steps lead to, up to a rotation of the root.

    Example:
        >>> state = prefix_state(torch.ones(1, 3), torch.ones(3, 1), noise=1.0)
        >>> state.sums, state.root @ state.root.mT
        (tensor([[3.]]), tensor([[0.2500]]))
    """
    return PrefixState(features_k @ values, inverse_factor(capacitance(features_k, noise)).mT)


def prefix_step(
    state: PrefixState,
    feature_q: Tensor,
    feature_k: Tensor,
    value: Tensor,
    prior_variance: Tensor,
    *,
    noise: Tensor | float,
    conditional: str = "dtc",
) -> PrefixStep:
    r"""The next row of :func:`~cgp.functional.causal.sparse_prefix_posterior`.

    O(m (m + s)) whatever the number of tokens before: a rank-one update of the root (Potter's square-root filter,
    1963), with :math:`\phi = S^\top b` and :math:`b = A_{k,t}/\sigma`:

    .. math:: S \leftarrow S - \gamma\,(S\phi)\phi^\top, \qquad
        \gamma = \frac{\alpha}{1 + \sqrt\alpha}, \quad \alpha = \frac{1}{1 + \phi^\top\phi}

    Args:
        state: of the tokens before.
        feature_q: :math:`A_{q,t}`, ``(*batch, m, 1)``.
        feature_k: :math:`A_{k,t}`, ``(*batch, m, 1)``.
        value: :math:`V_t`, ``(*batch, 1, s)``.
        prior_variance: of the query, ``(*batch, 1)``.
        noise: :math:`\sigma^2`.
        conditional: "dtc" or "sor".

    Returns:
        Mean, variance and the state with this token.

    Example:
        >>> one = torch.ones(1, 1)
        >>> step = prefix_step(empty_prefix(one, 1), one, one, one, torch.ones(1), noise=1.0)
        >>> step.mean, step.variance
        (tensor([[1.]]), tensor([0.5000]))
    """
    phi = state.root.mT @ (feature_k / as_matrix(noise) ** 0.5)  # (*batch, m, 1)
    alpha = 1.0 / (1.0 + phi.square().sum(-2, keepdim=True))
    gamma = alpha / (1.0 + alpha.sqrt())
    root = state.root - gamma * (state.root @ phi) @ phi.mT
    sums = state.sums + feature_k @ value
    remaining = (root.mT @ feature_q).square().sum(-2)  # (*batch, 1)
    variance = own_variance(feature_q, prior_variance, noise, conditional) + remaining
    return PrefixStep(feature_q.mT @ sums, variance, PrefixState(sums, root))
