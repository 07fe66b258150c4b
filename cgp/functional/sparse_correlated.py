r"""Sparse correlated Gaussian process by the deterministic training conditional (DTC).

CGPT section 4.2, (30)-(35), appendices C-E. All covariances are whitened by the inducing inputs, as features
:math:`A_p = L^{-1}K_{mp}`, :math:`L = \operatorname{chol}(K_{mm})`, in which the inducing variables are
:math:`u \sim N(0, I)` and :math:`z_p = A_p^\top u` plus an unexplained part. Given keys observed as
:math:`Z = A_k^\top u + N(0, \Sigma)`,

.. math:: u \mid Z \sim N(\Lambda^{-1}A_k\Sigma^{-1}Z,\; \Lambda^{-1}), \qquad \Lambda = I + A_k\Sigma^{-1}A_k^\top

(eigenvalues of Λ are at least one). The queries are :math:`N(A_q^\top m_u,\; A_q^\top S_uA_q + \delta)` for
:math:`u \sim N(m_u, S_u)`, with :math:`\delta = \operatorname{diag}(K_q - A_q^\top A_q)`. Attention has targets
:math:`Z = (A_k^\top A_k + \sigma^2I)V`, for which :math:`m_u = A_kV`: attention of rank m.
No n × n matrix is formed: time O(n m (m + s)), memory O(n m).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .correlated import check_objective
from .gaussians import Gaussian, LowRankGaussian, lazy, log_normal
from .kernels import Canonical, gram_of_sets
from .linalg import (
    cholesky,
    in_double,
    inverse,
    inverse_factor,
    log_determinant,
    may_read,
    outer_product,
    product,
    quadratic_forms,
)
from .padding import add_noise, count_tokens, mask_gram, mask_tokens, mask_variances

__all__ = [
    "APPROXIMATIONS",
    "InducingGaussian",
    "InducingPosterior",
    "SparseCorrelatedPosterior",
    "SparsePosterior",
    "features",
    "is_resolved",
]

APPROXIMATIONS = ("dtc", "sor")
_RESOLVED = 2e-3  # largest bound on the relative error of Λ's inverse in float32; errors of means are then about 1e-4


def features(kernel: Canonical, points: Tensor, whitening: Tensor, *sets: Tensor) -> tuple[Tensor, ...]:
    r"""Whitened features, :math:`A = L^{-1}K_{mx}`, of several sets of tokens.

    Args:
        kernel: the canonical covariance.
        points: inducing inputs, ``(*batch, m, s)``; those that the batch shares have the dimension of heads only.
        whitening: :math:`L^{-1}`, ``(*batch, m, m)``, likewise.
        *sets: for each process its points, ``(*batch, ·, s)``.

    Returns:
        For each set ``(*batch, m, ·)``, whose transpose is contiguous.

    Example:
        >>> from cgp.functional.kernels import canonical
        >>> features(canonical("rbf"), torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.zeros(5, 1, 3, 2))[0].shape
        torch.Size([5, 1, 1, 3])
    """
    if points.dim() > 3 or sets[0].dim() <= 3 or len({x.shape for x in sets}) > 1:
        return tuple((kernel.gram(x, points) @ whitening.mT).mT for x in sets)
    # Concatenate all sets and sequences along the rows: one product per head.
    by_head = [x.movedim(-3, 0) for x in sets]
    rows = gram_of_sets(kernel, [x.flatten(1, -2) for x in by_head], points) @ whitening.mT
    apart = rows.unflatten(1, (len(sets), *by_head[0].shape[1:-1])).unbind(1)
    return tuple(part.movedim(0, -3).contiguous().mT for part in apart)


class InducingGaussian:
    r"""A Gaussian of the whitened inducing variables, N(location, covariance), given by its covariance or a root of it.

    Args:
        location: m, ``(*batch, m, s)``.
        covariance: S, ``(*batch, m, m)``, or None.
        root: N with :math:`NN^\top = S`, ``(*batch, m, r)``, or None.
    """

    def __init__(self, location: Tensor, covariance: Tensor | None = None, root: Tensor | None = None) -> None:
        self.location, self._covariance, self._root = location, covariance, root

    @lazy
    def covariance(self) -> Tensor:
        """S, ``(*batch, m, m)``."""
        if self._covariance is not None:
            return self._covariance
        return self.root @ self.root.mT

    @lazy
    def root(self) -> Tensor:
        """N, ``(*batch, m, r)``."""
        if self._root is not None:
            return self._root
        return cholesky(self.covariance, name="covariance of the inducing variables", jitter=0.0)


class InducingPosterior(InducingGaussian):
    r"""The whitened inducing variables given observations, :math:`N(\Lambda^{-1}A\Sigma^{-1}Z,\; \Lambda^{-1})`.

    Args:
        gram: :math:`A\Sigma^{-1}A^\top`, ``(*batch, m, m)``; a sum over observations, so minibatches can be added up.
        projection: :math:`A\Sigma^{-1}Z`, ``(*batch, m, s)``, likewise a sum; None if ``location`` is given.
        location: the mean, ``(*batch, m, s)``, if it is known without solving a system, as :math:`A_kV` is.
        in_float64: computes the same from the observations in float64, see :attr:`resolved`; None if only the sums are
            known.

    Example:
        >>> posterior = InducingPosterior(torch.ones(1, 1), torch.ones(1, 1))
        >>> posterior.location, posterior.covariance
        (tensor([[0.5000]]), tensor([[0.5000]]))
    """

    def __init__(
        self,
        gram: Tensor,
        projection: Tensor | None = None,
        *,
        location: Tensor | None = None,
        in_float64: Callable[[], InducingPosterior] | None = None,
    ) -> None:
        self.gram, self.projection, self._location, self._in_float64 = gram, projection, location, in_float64

    @classmethod
    def of_targets(cls, features: Tensor, targets: Tensor, noise: Tensor | float) -> InducingPosterior:
        r"""Condition on targets Z ``(*batch, n, s)``; noise is a number or broadcastable to ``(*batch, n)``."""
        again = _in_float64(cls.of_targets, features, targets, noise)
        if isinstance(noise, Tensor) and noise.dim() and noise.shape[-1] != 1:  # a variance per observation
            weighted = features / noise[..., None, :]
            return cls(weighted @ features.mT, weighted @ targets, in_float64=again)
        scale = _columns(noise)
        return cls(outer_product(features) / scale, product(features, targets) / scale, in_float64=again)

    @classmethod
    def of_values(cls, features: Tensor, values: Tensor | None, noise: Tensor | float) -> InducingPosterior:
        r"""Condition on attention's :math:`Z = (A^\top A + \sigma^2I)V`; without values, only the covariance."""
        location = None if values is None else product(features, values)
        again = _in_float64(cls.of_values, features, None, noise)
        return cls(outer_product(features) / _columns(noise), location=location, in_float64=again)

    @lazy
    def precision(self) -> Tensor:
        """Λ, ``(*batch, m, m)``."""
        return add_noise(self.gram, 1.0)

    @lazy
    def factor(self) -> Tensor:
        r""":math:`\operatorname{chol}\Lambda`, ``(*batch, m, m)``."""
        return cholesky(self.precision, name="I + AA'/noise", jitter=0.0)

    @lazy
    def whitening(self) -> Tensor:
        r"""W, the inverse of the factor: :math:`\Lambda^{-1} = W^\top W`, ``(*batch, m, m)``."""
        return inverse_factor(self.factor)

    @lazy
    def location(self) -> Tensor:
        """Mean, ``(*batch, m, s)``."""
        if self._location is not None:
            return self._location
        assert self.resolved.projection is not None, "neither projection nor location was given"
        return (self.resolved.inverse @ self.resolved.projection).to(self.gram.dtype)

    @lazy
    def resolved(self) -> InducingPosterior:
        """This posterior, or the same computed in float64 where float32 is too inaccurate."""
        if self._in_float64 is None or (may_read(self.gram) and is_resolved(self.precision, self.whitening)):
            return self
        return self._in_float64()

    @lazy
    def inverse(self) -> Tensor:
        r""":math:`\Lambda^{-1}` in the precision of the Gram matrix, ``(*batch, m, m)``."""
        return inverse(self.precision, self.whitening)

    @lazy
    def covariance(self) -> Tensor:
        """Covariance, ``(*batch, m, m)``."""
        return self.resolved.inverse.to(self.gram.dtype)

    @property
    def root(self) -> Tensor:
        """Root of the covariance, ``(*batch, m, m)``."""
        return self.resolved.whitening.mT.to(self.gram.dtype)

    @lazy
    def log_det(self) -> Tensor:
        """Log-determinant of Λ, ``(*batch,)``."""
        return log_determinant(self.resolved.factor).to(self.gram.dtype)

    def log_evidence(self, squares: Tensor, log_noise: Tensor | float, count: Tensor | int) -> Tensor:
        r"""Log-density of ``count`` observations, :math:`\log N(Z; 0, A^\top A + \Sigma)`, from sums over them.

        The sums are ``squares``, :math:`\operatorname{tr}Z^\top\Sigma^{-1}Z`, and ``log_noise``, :math:`\log|\Sigma|`.

        Returns:
            ``(*batch,)``, in nats.
        """
        projection = self.resolved.projection
        assert projection is not None, "projection was not given"
        explained = (self.resolved.whitening @ projection).square().sum((-2, -1))
        quadratic = (squares - explained).to(self.gram.dtype)
        return log_normal(quadratic, self.log_det + log_noise, count, projection.shape[-1])

    def kl_divergence(self) -> Tensor:
        r"""Divergence from N(0, I), :math:`\tfrac12[\operatorname{tr}\Lambda^{-1} + m^\top m - M + \log|\Lambda|]`."""
        size, columns = self.location.shape[-2:]
        trace = self.resolved.whitening.square().sum((-2, -1)).to(self.gram.dtype)
        return 0.5 * (columns * (trace - size + self.log_det) + self.location.square().sum((-2, -1)))


def is_resolved(precision: Tensor, whitening: Tensor) -> bool:
    """Whether the rounding error of Λ, multiplied by a bound on its condition number, is small.

    Args:
        precision: Λ, ``(*batch, m, m)``.
        whitening: the inverse of its factor, ``(*batch, m, m)``.

    Returns:
        Of all matrices.
    """
    # Rounding errors of the Gram matrix are multiplied by the condition number of Λ, which for observations that are
    # nearly equal is as large as n / σ².
    trace = precision.detach().diagonal(dim1=-2, dim2=-1).sum(-1)
    condition = trace * whitening.detach().square().sum((-2, -1))
    return bool((condition * torch.finfo(condition.dtype).eps <= _RESOLVED).all())


class SparsePosterior(Gaussian):
    r"""Posterior of queries through inducing variables; every attribute is computed on first access, and kept.

    .. math:: \mu = A_q^\top m_u, \qquad \operatorname{var} = \delta + A_q^\top S_uA_q, \qquad u \sim N(m_u, S_u)

    with :math:`\delta = \operatorname{diag}(K_q - A_q^\top A_q)` ("dtc": the variance returns to the prior's far from
    the inducing inputs) or :math:`\delta = \sigma^2` ("sor", as in the paper: it goes to the noise there).

    Args:
        features: :math:`A_q`, ``(*batch, m, Nq)``.
        inducing: the Gaussian of the inducing variables.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        noise: observation variance, which "sor" adds, a number or broadcastable to ``(*batch, Nq)``.
        approximation: "dtc" or "sor".
        padding: padding mask of the queries, ``(*batch, Nq)``, or None.

    Raises:
        ValueError: if the approximation is unknown.

    Note:
        :math:`\delta` is a difference: below about 1e-5 of the prior's variance in float32 it is rounding error. The
        other part is a quadratic form and accurate at every size.

    Example:
        >>> one = torch.ones(1, 1)
        >>> posterior = SparsePosterior(one, InducingPosterior.of_values(one, one, 1.0), torch.ones(1))
        >>> posterior.mean, posterior.variance
        (tensor([[1.]]), tensor([0.5000]))
    """

    def __init__(
        self,
        features: Tensor,
        inducing: InducingGaussian,
        prior_variance: Tensor,
        *,
        noise: Tensor | float = 0.0,
        approximation: str = "dtc",
        padding: Tensor | None = None,
    ) -> None:
        if approximation not in APPROXIMATIONS:
            raise ValueError(f"approximation: expected one of {APPROXIMATIONS}, got {approximation!r}")
        self.features_q, self.inducing = mask_gram(features, None, padding), inducing
        self.prior_variance, self.noise = prior_variance, noise
        self.approximation, self.padding = approximation, padding

    @lazy
    def mean(self) -> Tensor:
        """Mean of each query, ``(*batch, Nq, s)``."""
        return product(self.features_q.mT, self.inducing.location)

    @lazy
    def variance(self) -> Tensor:
        """Variance of each query, ``(*batch, Nq)``."""
        explained = quadratic_forms(self.features_q, self.inducing.covariance).clamp(min=0.0)
        return explained + self.diagonal

    @lazy
    def root(self) -> Tensor:
        r"""Root of the covariance through the inducing variables, :math:`A_q^\top N`, ``(*batch, Nq, r)``."""
        return self.features_q.mT @ self.inducing.root

    @lazy
    def diagonal(self) -> Tensor:
        r""":math:`\delta`, the part of the variance not due to the inducing variables, ``(*batch, Nq)``."""
        diagonal = self.residual if self.approximation == "dtc" else self.residual + self.noise
        return mask_variances(diagonal, self.padding)

    @lazy
    def residual(self) -> Tensor:
        r"""Prior variance that the inducing inputs do not explain ("dtc"), zero for "sor", ``(*batch, Nq)``."""
        if self.approximation == "sor":
            return torch.zeros_like(self.features_q[..., 0, :])
        return (self.prior_variance - self.features_q.square().sum(-2)).clamp(min=0.0)

    def joint(self) -> LowRankGaussian:
        """The posterior with its covariance of low rank plus a diagonal."""
        return LowRankGaussian(self.mean, self.root, self.diagonal, self.padding)


class SparseCorrelatedPosterior(SparsePosterior):
    r"""Posterior of attention through inducing inputs, with the regulariser of its keys and outputs.

    Direct: queries and keys share the inducing variables, :math:`S_u = \Lambda_k^{-1}`, and the values are weights,
    :math:`m_u = A_kV`, or observations at the keys, :math:`m_u = \Lambda_k^{-1}A_k\Sigma^{-1}V`. Latent: the first hop,
    from the keys, which observe the values, ends in the latent process, which the second hop observes with noise,

    .. math:: m_u = J\Lambda_k^{-1}A_k\Sigma^{-1}V, \quad S_u = \Lambda_o^{-1} + J(\Lambda_o^{-1} + \Lambda_k^{-1}J),
        \quad J = I - \Lambda_o^{-1}

    (CGPT (33)-(35), appendix D, in which the outer products of means cancel).

    Args:
        features_q: :math:`A_q`, ``(*batch, m, Nq)``.
        features_k: :math:`A_k`, ``(*batch, m, Nk)``.
        values: V, ``(*batch, Nk, s)``; None if only variances are needed.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        features_o: :math:`A_o` of the latent process, ``(*batch, m, No)``; None for the direct coupling.
        noise: observation variance of every hop, a number or broadcastable to ``(*batch, 1)``.
        key_noise: Σ, a variance for each key that observes its value, ``(*batch, Nk)``; None is ``noise``.
        observed: whether the values are observations at the keys; of the latent coupling they always are.
        approximation: "dtc" or "sor".
        query_padding: padding mask of the queries, ``(*batch, Nq)``, or None.
        key_padding: padding mask of keys and latent inputs, ``(*batch, Nk)``, or None.

    Raises:
        ValueError: if the approximation is unknown.
    """

    def __init__(
        self,
        features_q: Tensor,
        features_k: Tensor,
        values: Tensor | None,
        prior_variance: Tensor,
        *,
        features_o: Tensor | None = None,
        noise: Tensor | float,
        key_noise: Tensor | None = None,
        observed: bool = False,
        approximation: str = "dtc",
        query_padding: Tensor | None = None,
        key_padding: Tensor | None = None,
    ) -> None:
        self.features_k = mask_gram(features_k, None, key_padding)
        self.values = None if values is None else mask_tokens(values, key_padding)
        self.key_padding = key_padding
        self.observed = observed or features_o is not None
        if self.observed:
            assert self.values is not None, "observations need values"
            of_keys = noise if key_noise is None else key_noise
            self.keys = InducingPosterior.of_targets(self.features_k, self.values, of_keys)
        else:
            self.keys = InducingPosterior.of_values(self.features_k, self.values, noise)
        inducing: InducingGaussian = self.keys
        if features_o is not None:
            inducing = _LatentHop(self.keys, mask_gram(features_o, None, key_padding), noise)
        super().__init__(
            features_q,
            inducing,
            prior_variance,
            noise=noise,
            approximation=approximation,
            padding=query_padding,
        )

    @lazy
    def targets(self) -> Tensor:
        r"""Z, ``(*batch, Nk, s)``: :math:`(Q_k + \sigma^2I)V`, or V itself if it is observed."""
        assert self.values is not None, "values were not given"
        if self.observed:
            return self.values
        return self.features_k.mT @ self.keys.location + _columns(self.noise) * self.values

    @lazy
    def log_evidence(self) -> Tensor:
        r"""Log-density of the targets, :math:`\log N(Z; 0, Q_k + \sigma^2I)`, ``(*batch,)`` in nats."""
        assert self.values is not None, "values were not given"
        count = count_tokens(self.features_k[..., 0, :], self.key_padding)
        log_noise = self.noise.log() if isinstance(self.noise, Tensor) else math.log(self.noise)
        log_noise = log_noise[..., 0] if isinstance(log_noise, Tensor) and log_noise.dim() else log_noise
        if self.observed:
            squares = (self.values.square() / _columns(self.noise)).sum((-2, -1))
            return self.keys.log_evidence(squares, count * log_noise, count)
        quadratic = (self.values * self.targets).sum((-2, -1))  # VᵀZ: no solve
        return log_normal(quadratic, self.keys.log_det + count * log_noise, count, self.values.shape[-1])

    def log_density(self, objective: str = "marginal") -> Tensor:
        r"""Log-density of the attention output and the keys' targets, in O(n m²): CGPT (36)-(44), errors corrected.

        It is :meth:`.ExactPosterior.log_density` with :math:`K_q` replaced by :math:`Q_q + \delta` and :math:`K_k` by
        :math:`Q_k`.

        Returns:
            ``(*batch,)``, in nats.
        """
        check_objective(objective)
        is_joint = objective == "joint"
        root = self.root if is_joint else self.features_q.mT
        centre = self.mean if is_joint else torch.zeros_like(self.mean)
        query = LowRankGaussian(centre, root, self.residual, self.padding).with_noise(self.noise)
        return query.log_prob(self.mean) + self.log_evidence


def _columns(noise: Tensor | float) -> Tensor | float:
    """Noise shaped to multiply ``(*batch, n, s)``."""
    return noise[..., None] if isinstance(noise, Tensor) else noise


def _in_float64(
    condition: Callable[..., InducingPosterior], features: Tensor, values: Tensor | None, noise: Tensor | float
) -> Callable[[], InducingPosterior] | None:
    """A function that computes the posterior in float64; None if the features are in float64 already."""
    if in_double(features).dtype == features.dtype:
        return None
    return lambda: condition(in_double(features), values if values is None else in_double(values), noise)


class _LatentHop(InducingGaussian):
    """The inducing variables after the second hop, over the latent process."""

    def __init__(self, keys: InducingPosterior, features_o: Tensor, noise: Tensor | float) -> None:
        self._root, self.dtype, self.keys = None, features_o.dtype, keys
        self.latent = InducingPosterior.of_values(features_o, None, noise)

    @lazy
    def hop(self) -> Tensor:
        """J, ``(*batch, m, m)``, in the precision of :attr:`InducingPosterior.resolved`."""
        latent = self.latent.resolved
        return latent.inverse @ latent.gram

    @lazy
    def location(self) -> Tensor:
        keys = self.keys.resolved
        assert keys.projection is not None
        dtype = torch.promote_types(self.hop.dtype, keys.gram.dtype)
        return (self.hop.to(dtype) @ (keys.inverse @ keys.projection).to(dtype)).to(self.dtype)

    @lazy
    def covariance(self) -> Tensor:
        # A sum of positive semi-definite terms, in which nothing cancels.
        latent, keys = self.latent.resolved.inverse, self.keys.resolved.inverse
        dtype = torch.promote_types(latent.dtype, keys.dtype)
        latent, keys, hop = (x.to(dtype) for x in (latent, keys, self.hop))
        return (latent + hop @ (latent + keys @ hop)).to(self.dtype)
