r"""Sparse Gaussian process attention: kernel attention as the mean of a sparse variational Gaussian process.

Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (2023). Queries are inputs, keys inducing inputs,
values variational parameters; one kernel and one map serve queries and keys.

Decoupled: m global keys :math:`\beta` carry the covariance, the tokens' keys :math:`\gamma` the mean. With the
features :math:`T_x = L_\beta^{-1}K_{\beta x}`, :math:`L_\beta = \operatorname{chol}K_{\beta\beta}`, and the whitened
global variables :math:`N(w_c, R_cR_c^\top)`, :math:`w = L_\beta^\top v_\beta`:

.. math:: \mu = K_{q\gamma}V + T_q^\top(w - T_\gamma V), \qquad
    \Sigma_c = K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q

Standard: the tokens' keys carry both, with Gaussian sites of precision :math:`\Pi`; :math:`S = (K^{-1} + \Pi)^{-1}`:

.. math:: \mu = K_{qk}V, \qquad \Sigma = K_{qq} + K_{qk}(K^{-1}SK^{-1} - K^{-1})K_{kq}

Names and shapes of the decoupled form: ``features`` :math:`T_q` ``(*batch, m, Nq)``, ``values`` V ``(*batch, Nk, s)``,
``attended`` their kernel attention ``(*batch, N, s)``, ``gathered`` :math:`T_\gamma V` ``(*batch, m, s)``,
``global_mean`` w ``(*batch, m, s)``, ``mean`` :math:`\mu` ``(*batch, Nq, s)``, ``roots`` :math:`R_c`
``(*batch, s, m, m)`` or broadcastable, ``prior_variance`` :math:`k_{ii}` ``(*batch, Nq)``, ``K_qq``
``(*batch, Nq, Nq)``, ``padding`` of the queries ``(*batch, Nq)`` or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from .column_gaussians import ColumnGaussian
from .gaussians import DenseGaussian, Gaussian, lazy, safe_sqrt
from .linalg import BASE_JITTER, cholesky, inverse_factor, log_determinant
from .padding import add_noise, mask_gram, mask_tokens, mask_variances

__all__ = [
    "GlobalKeys",
    "StandardPosterior",
    "decoupled_divergence",
    "decoupled_mean",
    "decoupled_posterior",
    "global_keys",
    "unexplained_root",
    "whitened_divergence",
]


class GlobalKeys(NamedTuple):
    r"""Global keys of the decoupled form; they depend on weights only.

    Attributes:
        points: :math:`\beta`, ``(*batch, m, s)``.
        factor: :math:`L_\beta`, ``(*batch, m, m)``.
        whitening: :math:`L_\beta^{-1}`, ``(*batch, m, m)``.
    """

    points: Tensor
    factor: Tensor
    whitening: Tensor


def global_keys(points: Tensor, K_bb: Tensor) -> GlobalKeys:
    """Factorise the covariance ``K_bb`` ``(*batch, m, m)`` of the global keys, ``points`` ``(*batch, m, s)``."""
    factor = cholesky(K_bb, name="K_bb (global keys)")
    return GlobalKeys(points, factor, inverse_factor(factor))


def decoupled_mean(attended: Tensor, features: Tensor, gathered: Tensor, global_mean: Tensor) -> Tensor:
    r"""Posterior mean, :math:`K_{q\gamma}V + T_q^\top(w - T_\gamma V)`.

    At the global keys it is :math:`L_\beta w = K_{\beta\beta}v_\beta`, independent of the tokens.

    Returns:
        ``(*batch, Nq, s)``.
    """
    return attended + features.mT @ (global_mean - gathered)


def decoupled_posterior(
    mean: Tensor,
    features: Tensor,
    roots: Tensor,
    prior_variance: Tensor,
    residual_root: Callable[[], Tensor],
    padding: Tensor | None = None,
) -> ColumnGaussian:
    r"""Posterior of the decoupled form, with variances :math:`k_{ii} - \|T_i\|^2 + \|R_c^\top T_i\|^2`.

    Returns:
        One covariance per column. ``residual_root`` computes :func:`unexplained_root`, which only joint draws and
        covariances need.
    """
    features = mask_gram(features, None, padding)
    unexplained = (prior_variance - features.square().sum(-2)).clamp(min=0.0)[..., None]
    return ColumnGaussian(
        mask_tokens(mean, padding), features.mT, roots, mask_tokens(unexplained, padding), residual_root
    )


def unexplained_root(K_qq: Tensor, features: Tensor, padding: Tensor | None = None) -> Tensor:
    r"""Cholesky factor of the covariance that the global keys do not explain, :math:`K_{qq} - T_q^\top T_q`.

    The difference may vanish, so its jitter is relative to the prior. The features must be computed by substitution,
    ``solve_lower(L_b, K_bq)``: their rounding is then far below the jitter, which it is not with an explicit inverse.

    Returns:
        ``(*batch, Nq, Nq)``, zero at padded tokens.
    """
    jitter = BASE_JITTER[K_qq.dtype] * K_qq.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    residual = mask_gram(K_qq - features.mT @ features, padding, padding)
    factor = cholesky(add_noise(residual, jitter[..., None], padding), name="K_qq - T'T", jitter=0.0)
    return mask_gram(factor, padding, padding)


def decoupled_divergence(values: Tensor, attended: Tensor, gathered: Tensor) -> Tensor:
    r"""The tokens' part of the divergence, :math:`\tfrac12\operatorname{tr}V^\top(K_{\gamma\gamma} - T^\top T)V`.

    Returns:
        ``(*batch,)``, in nats, summed over the columns.
    """
    return 0.5 * ((values * attended).sum((-2, -1)) - gathered.square().sum((-2, -1)))


def whitened_divergence(mean: Tensor, root: Tensor) -> Tensor:
    r"""Divergence of whitened variables, :math:`\mathrm{KL}[N(w, RR^\top) \,\|\, N(0, I)]`.

    .. math:: \tfrac12\big[\operatorname{tr}RR^\top + w^\top w - m\big] - \log|R|

    Args:
        mean: w, ``(*batch, m)``.
        root: R, lower triangular, ``(*batch, m, m)``.

    Returns:
        ``(*batch,)``, in nats.
    """
    squares = root.square().sum((-2, -1)) + mean.square().sum(-1) - mean.shape[-1]
    return 0.5 * (squares - log_determinant(root))


class StandardPosterior(Gaussian):
    r"""Standard form, whose inducing covariance comes from Gaussian sites, :math:`S = (K^{-1} + \Pi)^{-1}`.

    With :math:`B = I + \Pi^{1/2}K\Pi^{1/2}`, the only matrix that is factorised (its eigenvalues are at least one):

    .. math:: \Sigma = K_{qq} - K_{qk}\Pi^{1/2}B^{-1}\Pi^{1/2}K_{kq}, \qquad
        \mathrm{KL} = \tfrac12\big[s(\operatorname{tr}B^{-1} - n + \log|B|) + \operatorname{tr}V^\top KV\big]

    The family contains the exact posterior of any Gaussian likelihood; unlike the paper's triangular S it does not
    depend on the order of the tokens. Variance and divergence are computed on first access: one n × n Cholesky.

    Args:
        K_qk: covariance of queries and keys, ``(*batch, Nq, Nk)``.
        K_kk: covariance of the keys, ``(*batch, Nk, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        precision: the diagonal of :math:`\Pi`, at least zero, ``(*batch, Nk)``.
        prior_variance: the diagonal of :math:`K_{qq}`, ``(*batch, Nq)``.
        K_qq: computes the prior covariance of the queries, ``(*batch, Nq, Nq)``.
        query_padding: padding mask of the queries, ``(*batch, Nq)``, or None.
        key_padding: padding mask of the keys, ``(*batch, Nk)``, or None.

    Example:
        >>> import torch
        >>> one = torch.ones(1, 1)
        >>> StandardPosterior(one, one, one, one[0], one[0], lambda: one).variance
        tensor([0.5000])
    """

    def __init__(
        self,
        K_qk: Tensor,
        K_kk: Tensor,
        values: Tensor,
        precision: Tensor,
        prior_variance: Tensor,
        K_qq: Callable[[], Tensor],
        *,
        query_padding: Tensor | None = None,
        key_padding: Tensor | None = None,
    ) -> None:
        self.K_qk, self.K_kk, self.values = K_qk, K_kk, mask_tokens(values, key_padding)
        self.root = mask_tokens(safe_sqrt(precision)[..., None], key_padding)  # (*batch, Nk, 1)
        self.prior_variance, self.K_qq, self.padding = prior_variance, K_qq, query_padding

    @lazy
    def mean(self) -> Tensor:
        """:math:`K_{qk}V`, ``(*batch, Nq, s)``."""
        return mask_tokens(self.K_qk @ self.values, self.padding)

    @lazy
    def factor(self) -> Tensor:
        """Cholesky factor of B, ``(*batch, Nk, Nk)``."""
        return cholesky(add_noise(self.root * self.K_kk * self.root.mT, 1.0), name="B (sites)", jitter=0.0)

    @lazy
    def inverse(self) -> Tensor:
        """Inverse of the factor, ``(*batch, Nk, Nk)``."""
        return inverse_factor(self.factor)

    @lazy
    def explained(self) -> Tensor:
        r"""Root of the reduction of the prior by the sites, :math:`B^{-1/2}\Pi^{1/2}K_{kq}`, ``(*batch, Nk, Nq)``."""
        return mask_gram(self.inverse @ (self.root * self.K_qk.mT), None, self.padding)

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, Nq)``, clamped at zero against rounding."""
        return mask_variances((self.prior_variance - self.explained.square().sum(-2)).clamp(min=0.0), self.padding)

    @property
    def divergence(self) -> Tensor:
        """KL from the prior, summed over the columns, ``(*batch,)``, in nats."""
        of_covariance = self.inverse.square().sum((-2, -1)) - self.K_kk.shape[-1] + log_determinant(self.factor)
        quadratic = (self.values * (self.K_kk @ self.values)).sum((-2, -1))
        return 0.5 * (self.values.shape[-1] * of_covariance + quadratic)

    def joint(self) -> DenseGaussian:
        """The posterior with its covariance over the queries."""
        covariance = mask_gram(self.K_qq() - self.explained.mT @ self.explained, self.padding, self.padding)
        return DenseGaussian(self.mean, covariance, self.padding)
