r"""Mean and variances of the sparse correlated process in one step, with a backward pass that needs no factorisation.

With :math:`Q = D_k^{-1}`, :math:`P = D_o^{-1}`, :math:`G = A_kV`, :math:`J = I - P`,

.. math:: \mu = A_q^\top R, \quad v = k - \|a\|^2 + a^\top Ma; \qquad
    \text{direct: } R = G,\; M = Q; \qquad \text{latent: } R = \sigma^{-2}JQG,\; M = I - J(I - Q)J

Everything depends on the features through m × m matrices alone, and the gradient of an inverse is two products,
:math:`\bar D = -Q\bar QQ`: the Cholesky factor need not be differentiated. AttentionInputs that are left out have features of
zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .differentiation import may_own_backward, open_backward
from .padding import as_matrix
from .sparse_terms import factored_capacitance

__all__ = ["sparse_hop", "unit_variances"]


class _Small(NamedTuple):
    """What is m × m or m × s, a matrix for each sequence and head."""

    Q: Tensor
    P: Tensor | None
    G: Tensor | None
    R: Tensor | None
    M: Tensor


def sparse_hop(
    features_q: Tensor,
    features_k: Tensor,
    features_o: Tensor | None,
    values: Tensor | None,
    prior_variance: Tensor,
    noise: Tensor | float,
) -> tuple[Tensor | None, Tensor]:
    r"""Mean and variances by the deterministic training conditional, of one set of inducing inputs.

    Args:
        features_q: :math:`A_q`, ``(*batch, m, Nq)``, zero at padded tokens.
        features_k: :math:`A_k`, ``(*batch, m, Nk)``, zero at padded tokens.
        features_o: :math:`A_o`, ``(*batch, m, No)``, or None for the direct coupling.
        values: V, ``(*batch, Nk, s)``; None for the variances alone (direct coupling).
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        noise: :math:`\sigma^2`, a number or broadcastable to ``(*batch,)``.

    Returns:
        Mean ``(*batch, Nq, s)``, None without values, and variances ``(*batch, Nq)``.

    Example:
        >>> one = torch.ones(1, 1)
        >>> sparse_hop(one, one, None, 3.0 * one, torch.ones(1), 1.0)
        (tensor([[3.]]), tensor([0.5000]))
    """
    arguments = features_q, features_k, features_o, values, prior_variance, noise
    if not may_own_backward():
        return _plain(*arguments)
    return _Hop.apply(*arguments) if torch.is_grad_enabled() else _hop(*arguments)[:2]


def unit_variances(
    features_q: Tensor, features_k: Tensor, noise: Tensor | float, query_padding: Tensor | None = None
) -> Tensor:
    r"""Variances by one hop of a process of unit variance, zero at padded queries.

    Args:
        features_q: :math:`A_q`, ``(*batch, m, Nq)``, zero at padded tokens.
        features_k: :math:`A_k`, ``(*batch, m, Nk)``, zero at padded tokens.
        noise: :math:`\sigma^2`, a number or broadcastable to ``(*batch,)``.
        query_padding: ``(*batch, Nq)`` or broadcastable, or None.

    Returns:
        ``(*batch, Nq)``.

    Example:
        >>> unit_variances(torch.ones(1, 1), torch.ones(1, 1), 1.0)
        tensor([0.5000])
    """
    one = features_q.new_ones(()).expand(*features_q.shape[:-2], features_q.shape[-1])
    variance = sparse_hop(features_q, features_k, None, None, one, noise)[1]
    return variance if query_padding is None else variance.masked_fill(query_padding, 0.0)


def _plain(
    A_q: Tensor, A_k: Tensor, A_o: Tensor | None, V: Tensor | None, prior: Tensor, noise: Tensor | float
) -> tuple[Tensor | None, Tensor]:
    small = _small_matrices(A_k, A_o, V, noise)
    explained = ((small.M @ A_q) * A_q).sum(-2).clamp(min=0.0)
    variance = explained + (prior - A_q.square().sum(-2)).clamp(min=0.0)
    return None if small.R is None else A_q.mT @ small.R, variance


def _small_matrices(A_k: Tensor, A_o: Tensor | None, V: Tensor | None, noise: Tensor | float) -> _Small:
    Q, G = _inverse(A_k, noise), None if V is None else A_k @ V
    if A_o is None:
        return _Small(Q, None, G, G, Q)
    P = _inverse(A_o, noise)
    identity = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    J = identity - P
    assert G is not None
    return _Small(Q, P, G, J @ (Q @ G) / as_matrix(noise), identity - J @ (identity - Q) @ J)


def _inverse(features: Tensor, noise: Tensor | float) -> Tensor:
    inverse = factored_capacitance(features, noise).inverse
    return inverse.mT @ inverse


class _SmallGradients(NamedTuple):
    """Gradients of what the small matrices are made of."""

    of_keys: Tensor
    of_latent: Tensor | None
    of_gathered: Tensor | None
    of_noise: Tensor  # (*batch,)


def _small_backward(small: _Small, of_M: Tensor, of_R: Tensor | None, noise: Tensor | float) -> _SmallGradients:
    """Backwards through the small matrices; of_M is symmetric."""
    Q, P, G, R, _ = small
    scale = 1.0 / as_matrix(noise)
    if P is None:
        of_keys = -(Q @ of_M @ Q)
        of_noise = scale * ((Q * of_M).sum((-2, -1), keepdim=True) + _trace(of_keys))
        return _SmallGradients(of_keys, None, of_R, of_noise[..., 0, 0])
    assert G is not None
    assert R is not None
    assert of_R is not None
    identity = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    J, unseen = identity - P, identity - Q
    of_S = scale * (J @ of_R)  # S = QG
    crossed = of_M @ J @ unseen
    of_P = crossed + crossed.mT - _symmetric(scale * (of_R @ (Q @ G).mT))
    of_Q = _symmetric(of_S @ G.mT) + J @ of_M @ J
    of_keys, of_latent = -(Q @ of_Q @ Q), -(P @ of_P @ P)
    inner = Q * of_Q + P * of_P
    parts = inner.sum((-2, -1), keepdim=True) - (of_R * R).sum((-2, -1), keepdim=True)
    of_noise = scale * (parts + _trace(of_keys) + _trace(of_latent))
    return _SmallGradients(of_keys, of_latent, Q @ of_S, of_noise[..., 0, 0])


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def _hop(
    A_q: Tensor, A_k: Tensor, A_o: Tensor | None, V: Tensor | None, prior: Tensor, noise: Tensor | float
) -> tuple[Tensor | None, Tensor, _Small]:
    small, rows = _small_matrices(A_k, A_o, V, noise), A_q.mT
    explained = torch.matmul(rows, small.M).mul_(rows).sum(-1).clamp_(min=0.0)
    unexplained = torch.linalg.vector_norm(rows, dim=-1).square_().neg_().add_(prior).clamp_(min=0.0)
    return None if small.R is None else rows @ small.R, explained.add_(unexplained), small


class _Hop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, Tensor]:
        mean, variance, small = _hop(*arguments)
        ctx.noise = noise = arguments[-1]
        ctx.save_for_backward(*arguments[:-1], noise if isinstance(noise, Tensor) else None, *small)
        return mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        A_q, A_k, A_o, V, prior, noise, *matrices = ctx.saved_tensors
        noise = ctx.noise if noise is None else noise
        if torch.is_grad_enabled():  # to be differentiated again: every step in the open
            arguments = (A_q, A_k, A_o, V, prior, noise)
            return open_backward(_plain(*arguments), arguments, gradients, ctx.needs_input_grad)
        small = _Small(*matrices)
        of_mean, of_variance = gradients
        q, k = A_q.mT, A_k.mT
        weighted = q * of_variance[..., None]
        not_cut = prior > torch.linalg.vector_norm(q, dim=-1).square_()
        of_q = (weighted @ small.M).sub_(weighted * not_cut[..., None]).mul_(2.0)
        of_R = None
        if small.R is not None:
            of_q.add_(of_mean @ small.R.mT)
            of_R = A_q @ of_mean
        inner = _small_backward(small, weighted.mT @ q, of_R, noise)
        twice = 2.0 / as_matrix(noise)
        of_k, of_V = k @ (twice * inner.of_keys), None
        if inner.of_gathered is not None and V is not None:
            of_k.add_(V @ inner.of_gathered.mT)
            of_V = k @ inner.of_gathered
        of_o = None
        if inner.of_latent is not None:
            of_o = (A_o.mT @ (twice * inner.of_latent)).mT
        of_prior = (of_variance * not_cut).sum_to_size(prior.shape) if ctx.needs_input_grad[4] else None
        of_noise = inner.of_noise.sum_to_size(noise.shape) if ctx.needs_input_grad[5] else None
        return of_q.mT, of_k.mT, of_o, of_V, of_prior, of_noise
