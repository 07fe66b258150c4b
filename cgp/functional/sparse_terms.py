r"""What the sparse correlated process is made of: whitened features, capacitances, and the factors of a posterior."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky
from .covariances import Canonical
from .differentiation import may_own_backward
from .factored import Factored, factored
from .padding import as_matrix
from .shared_features import shared_features

__all__ = ["LatentFeatures", "SparseTerms", "capacitance", "factored_capacitance", "features", "features_of", "whiten"]


class LatentFeatures(NamedTuple):
    r"""Features of the latent process in the two inducing sets (the same tensor where one set serves both hops).

    Attributes:
        by_query_set: :math:`L_m^{-1}K_{mo}`, ``(*batch, m, No)``.
        by_key_set: :math:`L_\ell^{-1}K_{\ell o}`, ``(*batch, l, No)``.
        padding: ``(*batch, No)`` or None.
    """

    by_query_set: Tensor
    by_key_set: Tensor
    padding: Tensor | None


class SparseTerms(NamedTuple):
    r"""Factors shared by the posterior and the objective.

    Attributes:
        mean: ``(*batch, Nq, s)``.
        features_q: :math:`A_q`, ``(*batch, m, Nq)``, zero at padded tokens.
        features_k: :math:`A_k` in the keys' inducing set, ``(*batch, l, Nk)``, zero at padded tokens.
        inner_covariance: covariance of the whitened inducing variables, ``(*batch, m, m)``.
        residual: what the inducing inputs do not explain of each query ("dtc"), zero for "sor", ``(*batch, Nq)``.
        values: V with padded tokens zero, ``(*batch, Nk, s)``.
        gathered: :math:`A_kV`, ``(*batch, l, s)``.
        key_factored: :math:`\operatorname{chol} D_k` and its inverse, each ``(*batch, l, l)``.
        noise: :math:`\sigma^2`.
        conditional: "dtc" or "sor".
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        latent: features of the latent process, None if direct.
    """

    mean: Tensor
    features_q: Tensor
    features_k: Tensor
    inner_covariance: Tensor
    residual: Tensor
    values: Tensor
    gathered: Tensor
    key_factored: Factored
    noise: Tensor | float
    conditional: str
    query_padding: Tensor | None
    key_padding: Tensor | None
    latent: LatentFeatures | None = None

    @property
    def inner_root(self) -> Tensor:
        r"""N with :math:`NN^\top` the covariance of the whitened inducing variables, ``(*batch, m, m)``."""
        if self.latent is None:
            return self.key_factored.inverse.mT
        return cholesky(self.inner_covariance, name="covariance of the inducing variables", jitter=0.0)

    @property
    def key_factor(self) -> Tensor:
        r""":math:`\operatorname{chol} D_k`, ``(*batch, l, l)``."""
        return self.key_factored.factor

    @property
    def targets(self) -> Tensor:
        r"""Z, ``(*batch, Nk, s)``: :math:`(Q_k + \sigma^2I)V` (direct), V itself (latent, as CGPT's)."""
        if self.latent is not None:
            return self.values
        return self.features_k.mT @ self.gathered + as_matrix(self.noise) * self.values

    @property
    def key_quadratic(self) -> Tensor:
        r""":math:`\operatorname{tr} Z^\top(Q_k + \sigma^2I)^{-1}Z`, ``(*batch,)``."""
        squares = self.values.square().sum((-2, -1), keepdim=True)
        if self.latent is None:  # Z = (Q_k + noise I) V: no solve
            return (self.gathered.square().sum((-2, -1), keepdim=True) + as_matrix(self.noise) * squares)[..., 0, 0]
        scale = 1.0 / as_matrix(self.noise)
        explained = (self.key_factored.inverse @ self.gathered).square().sum((-2, -1), keepdim=True)
        return ((squares - scale * explained) * scale)[..., 0, 0]


def whiten(K_mm: Tensor) -> Tensor:
    r"""Inverse factor of the inducing covariance, :math:`L^{-1}`, which turns Gram matrices into features.

    Depends on the inducing inputs alone: where they are weights, it can be computed once.

    Args:
        K_mm: ``(*batch, m, m)``.

    Returns:
        Lower triangular, ``(*batch, m, m)``.

    Example:
        >>> whiten(torch.eye(2, dtype=torch.float64) * 4.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """
    return factored(K_mm, name="K_mm (inducing inputs)").inverse


def features(kernel: Canonical, points: Tensor, whitening: Tensor, x: Tensor) -> Tensor:
    r"""Whitened features, :math:`L^{-1}K_{mx}`.

    Args:
        kernel: the canonical covariance.
        points: inducing inputs, ``(*batch, m, s)``, or ``(h, m, s)`` where the whole batch shares them.
        whitening: :math:`L^{-1}`, of the same batch shape.
        x: points of a process, ``(*batch, h, N, s)``.

    Returns:
        ``(*batch, h, m, N)``.

    Example:
        >>> from cgp.functional.covariances import canonical
        >>> features(canonical("rbf"), torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.zeros(5, 1, 3, 2)).shape
        torch.Size([5, 1, 1, 3])
    """
    return features_of(kernel, points, whitening, x)[0]


def features_of(kernel: Canonical, points: Tensor, whitening: Tensor, *sets: Tensor) -> tuple[Tensor, ...]:
    """Whitened features of several sets of points, such as queries and keys, in as few operations as there are.

    Args:
        kernel: the canonical covariance.
        points: inducing inputs, as for :func:`features`.
        whitening: :math:`L^{-1}`, of the same batch shape.
        *sets: each ``(*batch, h, N, s)``.

    Returns:
        For each, ``(*batch, h, m, N)``.

    Example:
        >>> from cgp.functional.covariances import canonical
        >>> x = torch.zeros(5, 1, 3, 2)
        >>> len(features_of(canonical("rbf"), torch.zeros(1, 1, 2), torch.ones(1, 1, 1), x, x))
        2
    """
    is_shared = points.dim() == whitening.dim() == 3 and all(x.dim() >= 3 for x in sets)
    if kernel.name == "rbf" and is_shared and may_own_backward():
        return shared_features(points, whitening, *sets)
    return tuple(whitening @ kernel.gram(points, x) for x in sets)


def capacitance(features: Tensor, noise: Tensor | float) -> Tensor:
    r"""Cholesky factor of :math:`D = I + AA^\top/\sigma^2`, whose eigenvalues are at least one.

    Args:
        features: A, ``(*batch, m, n)``.
        noise: :math:`\sigma^2`.

    Returns:
        Lower triangular, ``(*batch, m, m)``.
    """
    return cholesky(_capacitance(features, noise), name="I + AA'/noise", jitter=0.0)


def factored_capacitance(features: Tensor, noise: Tensor | float) -> Factored:
    r"""The same factor with its inverse.

    Args:
        features: A, ``(*batch, m, n)``.
        noise: :math:`\sigma^2`.

    Returns:
        Factor and inverse, each ``(*batch, m, m)``.
    """
    return factored(_capacitance(features, noise), name="I + AA'/noise", jitter=0.0)


def _capacitance(features: Tensor, noise: Tensor | float) -> Tensor:
    identity = torch.eye(features.shape[-2], dtype=features.dtype, device=features.device)
    return identity + features @ features.mT / as_matrix(noise)
