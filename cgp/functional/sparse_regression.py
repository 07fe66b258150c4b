r"""Sparse regression attention in one step, whose backward pass is written out and keeps the covariance of the queries.

With features :math:`a_i = W\kappa_o(S, q_i)` and :math:`b_j = W\kappa_o(S, k_j)`, :math:`W = (\operatorname{chol}
K_{mm})^{-1}`, :math:`\Lambda = I + BB^\top/\sigma^2` and the values V observed at the keys,

.. math:: \mu_i = a_i^\top\ell, \quad \ell = \sigma^{-2}\Lambda^{-1}BV, \qquad
    v_i = (1 - a_i^\top a_i)_+ + a_i^\top\Lambda^{-1}a_i

It is the posterior of :class:`~.sparse_correlated.SparseCorrelatedPosterior` with observed values, the squared
exponential and "dtc". Mean and variance do not change if all features are rotated. So, bars being gradients,
:math:`\bar AA^\top + \bar BB^\top` is symmetric, and the gradient reaches :math:`K_{mm}` without a derivative of its
factor, :math:`\bar K_{mm} = -\tfrac12W^\top(\bar AA^\top + \bar BB^\top)W`.

Tokens are ordered by head, then sequence: ``(h, N, ·)`` with the tokens of all sequences as rows, or ``(h, B, n, ·)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .distances import are_far, log_squared_exponential, robust_centre
from .gaussians import Gaussian, lazy
from .kernels import squared_exponential
from .linalg import (
    cholesky,
    in_double,
    inverse_factor,
    may_own_backward,
    may_read,
    open_backward,
    outer_product,
    product,
    quadratic_forms,
    solve,
    whiten,
)
from .padding import add_noise, mask_tokens, mask_variances
from .sparse_correlated import is_resolved

__all__ = ["Covariances", "OneStepPosterior", "covariances", "sparse_regression"]


class OneStepPosterior(Gaussian):
    """Mean and variance by :func:`sparse_regression`; the posterior with its covariance is built when it is needed.

    Args:
        moments: computes mean ``(*batch, n, s)`` and variance ``(*batch, n)``.
        whole: builds the same posterior, which has a covariance.
    """

    def __init__(self, moments: Callable[[], tuple[Tensor, Tensor]], whole: Callable[[], Gaussian]) -> None:
        self._compute, self._build = moments, whole

    @lazy
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        return self._compute()

    @lazy
    def whole(self) -> Gaussian:
        """The posterior with its covariance."""
        return self._build()

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Mean of each query, ``(*batch, n, s)``."""
        return self.moments[0]

    @property
    def variance(self) -> Tensor:
        """Variance of each query, ``(*batch, n)``."""
        return self.moments[1]

    def joint(self) -> Gaussian:
        """The posterior with its covariance over tokens."""
        return self.whole.joint()


class Near(NamedTuple):
    """Inducing inputs minus their centre, and minus half their squares."""

    centre: Tensor
    points: Tensor  # (h, m, s)
    half: Tensor  # (h, 1, m)

    def covariance(self, x: Tensor, half: Tensor) -> Tensor:
        """With tokens minus the centre, ``(h, N, m)``."""
        return (half + self.half).baddbmm_(x, self.points.mT).clamp_(max=0.0).exp_()


class Covariances(NamedTuple):
    """Untracked covariances of both sets of tokens with the inducing inputs, ``(h, N, m)``."""

    of_queries: Tensor
    of_keys: Tensor
    near: Near
    half_of_keys: Tensor  # minus half their squares, ``(h, N, 1)``, by which their covariance is found again


@torch.no_grad()
def covariances(q: Tensor, k: Tensor, v: Tensor, points: Tensor) -> Covariances | None:
    """What :func:`sparse_regression` starts from.

    Args:
        q: queries, ``(*batch, h, Nq, s)``.
        k: keys, ``(*batch, h, Nk, s)``.
        v: values, ``(*batch, h, Nk, c)``.
        points: inducing inputs, ``(h, m, s)``.

    Returns:
        None where it does not apply: queries and keys have to be of one batch and near the inducing inputs, and values
        are read.
    """
    one_batch = q.dim() > 3 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    if not (one_batch and may_own_backward() and may_read(q)):
        return None
    centre = robust_centre(points)
    points = points - centre
    near = Near(centre, points, points.square().sum(-1).mul_(-0.5)[:, None])
    sets = [_rows(x) - near.centre for x in (q, k)]
    halves = [torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().mul_(-0.5) for x in sets]
    if any(are_far(half, near.half) for half in halves):
        return None
    of_queries, of_keys = (near.covariance(x, half) for x, half in zip(sets, halves, strict=True))
    return Covariances(of_queries, of_keys, near, halves[1])


def sparse_regression(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    points: Tensor,
    noise: Tensor,
    known: Covariances,
    *,
    whitening: Tensor | None = None,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of the queries.

    Args:
        q: queries, ``(*batch, h, Nq, s)``.
        k: keys, ``(*batch, h, Nk, s)``.
        v: values that they observe, ``(*batch, h, Nk, c)``.
        points: inducing inputs S, ``(h, m, s)``.
        noise: :math:`\sigma^2`, ``(h,)``.
        known: the :func:`covariances` of queries, keys and points.
        whitening: W, ``(h, m, m)``, if it is known and not trained.
        query_padding: ``(*batch, 1, Nq)``, True = padding, or None.
        key_padding: ``(*batch, 1, Nk)``, True = padding, or None.

    Returns:
        ``(*batch, h, Nq, c)`` and ``(*batch, h, Nq)``.

    Example:
        >>> zero, points = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1)
        >>> known = covariances(zero, zero, zero, points)
        >>> mean, variance = sparse_regression(zero, zero, zero + 1.0, points, torch.ones(1), known)
        >>> round(float(mean), 3), round(float(variance), 3)
        (0.5, 0.5)
    """
    v = mask_tokens(v, key_padding)
    mean, variance = _Regression.apply(q, k, v, points, noise, known, whitening, query_padding, key_padding)
    return mean, mask_variances(variance, query_padding)


class _Posterior(NamedTuple):
    """Inducing variables given the values, in float64 where float32 is too inaccurate."""

    covariance: Tensor  # S, (h, B, m, m)
    location: Tensor  # ℓ, (h, B, m, c)


def _posterior(b: Tensor, v: Tensor, noise: Tensor) -> _Posterior:
    precision = add_noise((b.mT @ b).div_(noise), 1.0)
    whitening = inverse_factor(cholesky(precision, name="I + AA'/noise", jitter=0.0))
    if b.dtype != torch.float64 and not is_resolved(precision, whitening):
        return _posterior(in_double(b), in_double(v), in_double(noise))
    covariance = whitening.mT @ whitening
    return _Posterior(covariance, covariance @ (b.mT @ v).div_(noise))


def _by_head(x: Tensor) -> Tensor:
    """(*batch, h, n, d) → (h, B, n, d)."""
    return x.movedim(-3, 0).reshape(x.shape[-3], -1, *x.shape[-2:])


def _rows(x: Tensor) -> Tensor:
    """(*batch, h, n, d) → (h, N, d)."""
    return x.movedim(-3, 0).flatten(1, -2)


def _as_given(x: Tensor, like: Tensor) -> Tensor:
    """(h, ...) → (*batch, h, n, d)."""
    return x.view(x.shape[0], *like.shape[:-3], *like.shape[-2:-1], -1).movedim(0, -3)


class _Kept(NamedTuple):
    """What the backward pass needs of one set of tokens: its covariance with the inducing inputs."""

    covariance: Tensor  # (h, B, n, m)
    padding: Tensor | None  # broadcastable to (1, B, n, 1)

    def masked(self, features: Tensor) -> Tensor:
        """Features, or their gradients, zero at padded tokens, in place."""
        return features if self.padding is None else features.masked_fill_(self.padding, 0.0)

    def features(self, whitening: Tensor) -> Tensor:
        """(h, B, n, m)."""
        return self.masked((self.covariance.flatten(1, 2) @ whitening.mT).view_as(self.covariance))


def _kept(known: Sequence[Tensor], sets: Sequence[Tensor], paddings: Sequence[Tensor | None]) -> list[_Kept]:
    masks = [
        None if padding is None else _by_head(padding.expand(*x.shape[:-3], -1, -1)[..., None])
        for padding, x in zip(paddings, sets, strict=True)
    ]
    shapes = [(x.shape[-3], -1, x.shape[-2], known[0].shape[-1]) for x in sets]
    return [_Kept(one.view(shape), mask) for one, shape, mask in zip(known, shapes, masks, strict=True)]


class _Regression(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, points: Tensor, noise: Tensor, *rest: Any) -> Any:
        known, whitening, *paddings = rest
        K_mm = None
        if whitening is None:
            K_mm = squared_exponential(points)
            whitening = whiten(K_mm)
        a, b = (kept.features(whitening) for kept in _kept(known[:2], (q, k), paddings))
        posterior = _posterior(b, _by_head(v), noise[:, None, None, None])
        covariance, location = (x.to(a.dtype) for x in posterior)
        unexplained = 1.0 - torch.linalg.vector_norm(a, dim=-1).square_()
        variance = ((a @ covariance).mul_(a)).sum(-1).clamp_(min=0.0).add_(unexplained.clamp(min=0.0))
        ctx.paddings = paddings
        ctx.save_for_backward(
            q, k, v, points, noise, whitening, K_mm, *posterior, *known.near, known.half_of_keys, known.of_queries
        )
        return _as_given(a @ location, q), _as_given(variance[..., None], q)[..., 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, points, noise, whitening, K_mm, S, location, *near, half_of_keys, of_queries = ctx.saved_tensors
        nothing = None, None, None, None
        if torch.is_grad_enabled():
            arguments = q, k, v, points, noise
            outputs = _plain(*arguments, whitening if K_mm is None else None, *ctx.paddings)
            return *open_backward(outputs, arguments, gradients, ctx.needs_input_grad[:5]), *nothing
        near = Near(*near)
        q_rows, k_rows = (_rows(x) - near.centre for x in (q, k))
        known = of_queries, near.covariance(k_rows, half_of_keys)
        kept = _kept(known, (q, k), ctx.paddings)
        a, b = features = [one.features(whitening) for one in kept]
        of_mean, of_variance = _by_head(gradients[0]), _by_head(gradients[1][..., None])
        of_a, of_b, of_v, of_noise = _of_features(a, b, _by_head(v), noise, S, location, of_mean, of_variance)
        of_q, of_k, of_points = _of_points((q_rows, k_rows), near.points, whitening, K_mm, features, [of_a, of_b], kept)
        return _as_given(of_q, q), _as_given(of_k, k), _as_given(of_v, v), of_points, of_noise, *nothing


def _of_features(
    a: Tensor, b: Tensor, v: Tensor, noise: Tensor, S: Tensor, location: Tensor, of_mean: Tensor, of_variance: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of both sets of features, of the values and of the noise."""
    dtype, level = a.dtype, noise[:, None, None, None].to(S.dtype)
    a, b, v, of_mean, of_variance = (x.to(S.dtype) for x in (a, b, v, of_mean.contiguous(), of_variance))
    explained = torch.linalg.vector_norm(a, dim=-1, keepdim=True).square_()
    weighted = a * of_variance
    of_S, of_location = weighted.mT @ a, a.mT @ of_mean
    of_a = torch.addcmul(weighted @ S, weighted, (explained < 1.0).to(a.dtype), value=-1.0).mul_(2.0)
    of_a = _add_product(of_a, of_mean, location.mT)
    of_projection = S @ of_location
    of_precision = -(S @ of_S @ S) - of_projection @ location.mT
    of_noise = (of_S * (S - S @ S)).sum((1, 2, 3)) - (of_projection * location).sum((1, 2, 3))
    of_projection = of_projection / level
    of_b = _add_product(b @ ((of_precision + of_precision.mT) / level), v, of_projection.mT)
    of_noise = of_noise / level.flatten()
    return of_a.to(dtype), of_b.to(dtype), (b @ of_projection).to(dtype), of_noise.to(dtype)


def _of_points(
    sets: tuple[Tensor, ...],
    relative: Tensor,
    whitening: Tensor,
    K_mm: Tensor | None,
    features: list[Tensor],
    of_features: list[Tensor],
    kept: list[_Kept],
) -> tuple[Tensor, ...]:
    """Gradients of both sets of tokens and of the inducing inputs, all minus the same centre."""
    of_points, of_sets, outer = torch.zeros_like(relative), [], torch.zeros_like(whitening)
    for x, a, of_a, one in zip(sets, features, of_features, kept, strict=True):
        rows = one.masked(of_a).flatten(1, 2)
        outer = outer + rows.mT @ a.flatten(1, 2)
        weights = (rows @ whitening).mul_(one.covariance.flatten(1, 2))
        of_points += torch.addcmul(weights.mT @ x, weights.sum(-2)[..., None], relative, value=-1.0)
        of_sets.append(torch.addcmul(weights @ relative, weights.sum(-1, keepdim=True), x, value=-1.0))
    if K_mm is not None:
        weights = (whitening.mT @ outer @ whitening).mul_(K_mm).neg_()  # twice the gradient, as it is symmetric
        of_points += torch.addcmul(weights @ relative, weights.sum(-1, keepdim=True), relative, value=-1.0)
    return *of_sets, of_points


def _add_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The sum of x and a product, in place of x."""
    flat = x.view(-1, *x.shape[-2:])
    return flat.baddbmm_(*(y.reshape(-1, *y.shape[-2:]) for y in (a, b))).view_as(x)


def _plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    points: Tensor,
    noise: Tensor,
    whitening: Tensor | None,
    query_padding: Tensor | None,
    key_padding: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same by steps that can be differentiated twice."""
    whitening = whiten(log_squared_exponential(points).exp()) if whitening is None else whitening
    a, b = (log_squared_exponential(x, points).exp() @ whitening.mT for x in (q, k))
    a, b = mask_tokens(a, query_padding), mask_tokens(b, key_padding)
    precision = add_noise(outer_product(b.mT) / noise[:, None, None], 1.0)
    factor = cholesky(precision, name="I + AA'/noise", jitter=0.0)
    location = solve(precision, product(b.mT, v) / noise[:, None, None], factor)
    identity = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device).expand_as(precision)
    remaining = quadratic_forms(a.mT, solve(precision, identity, factor)).clamp(min=0.0)
    return product(a, location), remaining + (1.0 - a.square().sum(-1)).clamp(min=0.0)
