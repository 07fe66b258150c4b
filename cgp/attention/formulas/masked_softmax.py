r"""The bounded covariance around softmax attention where queries see different sets of keys.

.. math:: v_i = 1 - r_i^\top (R_{S_i} + \sigma^2 I)^{-1} r_i, \qquad r_i = R(q_i, k_{S_i})

S_i are the keys that query i attends to. They are the same for every query (padding), increase with it (a causal mask),
or differ arbitrarily (sliding windows, packed sequences), which needs one factorisation per query.

A finite bias b added to the scores (relative positions, ALiBi) multiplies the cross-covariance of the scaled processes
by :math:`e^{b_{ij}}` and so is part of the mean. The covariance given the keys can be any positive semi-definite matrix
(the Schur complement of a prior that is not determined otherwise). This one compares contents only: finite biases do
not change it, and a key with a bias of minus infinity is masked.

Shapes: queries ``q`` ``(*batch, Nq, s)`` and keys ``k`` ``(*batch, Nk, s)``; whitened features ``A_q``
``(*batch, m, Nq)`` and ``A_k`` ``(*batch, m, Nk)``; ``noise`` of the keys a number or broadcastable to ``(*batch,)``;
``padding`` of the queries ``(*batch, Nq)``.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.gaussians import Gaussian, MarginalGaussian
from cgp.functional.kernels import squared_exponential
from cgp.functional.linalg import cholesky, solve_lower
from cgp.functional.padding import add_noise, mask_gram, mask_variances
from cgp.functional.sparse_correlated import InducingPosterior, SparsePosterior

from .causal import explained_by_prefixes, in_enough_digits, remaining_of_prefixes, up_to

__all__ = [
    "Visibility",
    "exact_posterior",
    "exact_variance",
    "read_visibility",
    "sparse_posterior",
    "sparse_variance",
]

_PIECE = 2**24  # entries of the Gram matrices that are formed at a time


class Visibility(NamedTuple):
    """The keys that each query sees.

    Attributes:
        hidden: keys that no query sees, ``(*batch, Nk)``, or None.
        offset: query i sees the keys up to i + offset; None: all.
        pairs: whether query i sees key j, ``(*batch, Nq, Nk)``, if ``hidden`` and ``offset`` cannot express it; or
            None.

    Keys beyond the length of ``hidden`` or ``pairs`` (free slots of a static cache) are seen by no query of the batch.
    """

    hidden: Tensor | None = None
    offset: int | None = None
    pairs: Tensor | None = None

    @property
    def is_common(self) -> bool:
        """Whether every query sees the same keys: only then is there a joint covariance."""
        return self.offset is None and self.pairs is None

    def filled(self, keys: Tensor, dim: int = -2) -> Tensor:
        """Keys, or their features, without the free slots at the end."""
        masks = [mask for mask in (self.hidden, self.pairs) if mask is not None]
        return keys.narrow(dim, 0, masks[0].shape[-1]) if masks else keys


def read_visibility(mask: Tensor | None, num_queries: int, num_keys: int, *, is_causal: bool = False) -> Visibility:
    """The keys that each query sees under a mask of ``scaled_dot_product_attention``.

    Args:
        mask: broadcastable to ``(*batch, Nq, Nk)``; True = attended, or an additive bias, in which minus infinity (or
            anything below half of the dtype's lowest number) hides a key; or None.
        num_queries: number of queries Nq.
        num_keys: number of keys Nk.
        is_causal: whether query i sees the keys up to i.

    Returns:
        The sets of keys.

    Example:
        >>> read_visibility(torch.ones(3, 3).tril().bool(), 3, 3)
        Visibility(hidden=None, offset=0, pairs=None)
    """
    if mask is None:
        return Visibility(offset=0 if is_causal and num_keys > 1 else None)
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    if is_causal:
        seen = seen & up_to(num_queries, num_keys, device=seen.device)
    seen = seen.expand(*seen.shape[:-1], num_keys)
    if torch.compiler.is_compiling():  # values cannot be read
        return Visibility(pairs=seen)
    if seen.shape[-2] == 1 or bool((seen == seen[..., :1, :]).all()):
        return _cut(seen[..., 0, :], num_queries)
    offset, real = _offset(seen), seen.any(-2)
    if bool((seen == (real[..., None, :] & up_to(num_queries, num_keys, offset, seen.device))).all()):
        return _cut(real, num_queries, offset)
    return Visibility(pairs=seen)


def _offset(seen: Tensor) -> int:
    """Largest difference between the index of the last key that a query sees and its own; constant if causal."""
    queries, keys = (torch.arange(n, device=seen.device) for n in seen.shape[-2:])
    last = torch.where(seen, keys, -1).amax(-1)  # (*batch, Nq)
    return int(torch.where(last < 0, -seen.shape[-2], last - queries).max())


def _cut(real: Tensor, num_queries: int, offset: int | None = None) -> Visibility:
    """The visibility without free slots of a cache at the end; no slots are cut if keys and queries are as many."""
    count, hidden = real.shape[-1], ~real
    if count != num_queries and bool(hidden[..., -1].all()):
        last = int((real.reshape(-1, count).any(0) * torch.arange(1, count + 1, device=real.device)).max())
        hidden = hidden[..., : max(last, num_queries + (offset or 0), 1)]
    is_needed = hidden.shape[-1] < count or bool(hidden.any())
    return Visibility(hidden=hidden if is_needed else None, offset=offset)


def exact_posterior(
    q: Tensor, k: Tensor, noise: Tensor | float, visible: Visibility, padding: Tensor | None = None
) -> Gaussian:
    """Zero-mean posterior of the queries; only marginals unless all queries see the same keys.

    Args:
        q: queries.
        k: keys.
        noise: noise variance of the keys.
        visible: the keys that each query sees.
        padding: padding mask of the queries, or None.

    Returns:
        The posterior.
    """
    if not visible.is_common:
        return _marginal(exact_variance(q, k, noise, visible), padding)
    k = visible.filled(k)
    return ExactPosterior(
        squared_exponential(q, k),
        ObservedKeys(squared_exponential(k), noise=_spread(noise, 1), padding=visible.hidden),
        q.new_ones(()).expand(q.shape[:-1]),
        K_q=partial(squared_exponential, q),
        padding=padding,
    )


def sparse_posterior(
    A_q: Tensor, A_k: Tensor, noise: Tensor | float, visible: Visibility, padding: Tensor | None = None
) -> Gaussian:
    """The posterior of :func:`exact_posterior` through inducing inputs, given whitened features."""
    if not visible.is_common:
        return _marginal(sparse_variance(A_q, A_k, noise, visible), padding)
    A_k = visible.filled(A_k, -1)
    inducing = InducingPosterior.of_values(mask_gram(A_k, None, visible.hidden), None, _spread(noise, 1))
    return SparsePosterior(A_q, inducing, A_q.new_ones(()).expand_as(A_q[..., 0, :]), padding=padding)


def _marginal(variance: Tensor, padding: Tensor | None) -> MarginalGaussian:
    return MarginalGaussian(torch.zeros_like(variance)[..., None], mask_variances(variance, padding))


def exact_variance(q: Tensor, k: Tensor, noise: Tensor | float, visible: Visibility) -> Tensor:
    """Variance of each query given the keys it sees, in [0, 1]; arguments of :func:`exact_posterior`.

    Returns:
        ``(*batch, Nq)``.

    Example:
        >>> exact_variance(torch.zeros(1, 2), torch.zeros(1, 2), 1.0, Visibility())
        tensor([0.5000])
    """
    if visible.pairs is not None:
        return _one_by_one(q, k, noise, visible.pairs)
    posterior = exact_posterior(q, k, noise, Visibility(visible.hidden))
    if visible.offset is None:
        return posterior.variance
    assert isinstance(posterior, ExactPosterior)
    explained = explained_by_prefixes(posterior.C, posterior.keys.factor, visible.offset)
    return (posterior.prior_variance - explained).clamp(min=0.0)


def sparse_variance(A_q: Tensor, A_k: Tensor, noise: Tensor | float, visible: Visibility) -> Tensor:
    r"""Variance of each query given the keys it sees, through inducing inputs.

    .. math:: 1 - \|a_i\|^2 + a_i^\top\big(I + \sigma^{-2}\textstyle\sum_{j \in S_i}a_ja_j^\top\big)^{-1}a_i

    Returns:
        ``(*batch, Nq)``, in [0, 1].
    """
    if visible.is_common:
        return sparse_posterior(A_q, A_k, noise, visible).variance
    b = visible.filled(A_k, -1).mT / _spread(noise, 2) ** 0.5  # (*batch, Nk, m)
    if visible.offset is not None:
        remaining = remaining_of_prefixes(A_q.mT, mask_gram(b, visible.hidden), visible.offset)
    else:
        assert visible.pairs is not None
        a, b = in_enough_digits(A_q.mT, b)
        outer = b[..., :, None] * b[..., None, :]
        sums = (visible.pairs.to(b.dtype) @ outer.flatten(-2)).unflatten(-1, (b.shape[-1],) * 2)
        factor = cholesky(add_noise(sums, 1.0), name="I + bb' of each query", jitter=0.0)
        remaining = solve_lower(factor, a[..., None])[..., 0].square().sum(-1).to(A_q.dtype)
    return remaining + (1.0 - A_q.square().sum(-2)).clamp(min=0.0)


def _one_by_one(q: Tensor, k: Tensor, noise: Tensor | float, pairs: Tensor) -> Tensor:
    """Variance of each query, with one factorisation per query, in pieces of the queries."""
    most = max(int(pairs.sum(-1).max()), 1)
    pairs = pairs.expand(*torch.broadcast_shapes(pairs.shape[:-2], q.shape[:-2]), *pairs.shape[-2:])
    noise = noise[..., None] if isinstance(noise, Tensor) else noise
    size = max(_PIECE // (q.shape[:-2].numel() * most**2), 1)
    pieces = []
    for start in range(0, q.shape[-2], size):
        seen, queries = pairs[..., start : start + size, :], q[..., start : start + size, None, :]
        real, index = seen.to(torch.uint8).topk(most, dim=-1, sorted=False)  # (*batch, Nq, most)
        flat = index.flatten(-2)[..., None].expand(*index.shape[:-2], -1, k.shape[-1])
        keys = k.expand(*index.shape[:-2], *k.shape[-2:]).gather(-2, flat).unflatten(-2, index.shape[-2:])
        pieces.append(exact_variance(queries, keys, noise, Visibility(hidden=real == 0))[..., 0])
    return torch.cat(pieces, -1)


def _spread(noise: Tensor | float, dims: int) -> Tensor | float:
    """Noise with ``dims`` dimensions of size one appended."""
    return noise[(..., *(None,) * dims)] if isinstance(noise, Tensor) else noise
