r"""Exact correlated Gaussian process: posterior and regulariser (CGPT section 4.1, (19)-(29), appendix B).

``K_q``, ``K_k``, ``K_o`` are the covariances within the query, key and latent process, ``K_qk`` and so on those between
two processes; rows and columns of padded tokens are zero (:mod:`cgp.functional.padding`).

Both couplings are Gaussian-process regression under a joint prior of queries and keys with cross-covariance C:

* direct (one hop): :math:`C = K_{qk}`, the exact conditional;
* latent (two hops): :math:`C = K_{qo}(K_o + \sigma^2 I)^{-1}K_{ok}`, as in the paper.

With targets :math:`Z = (K_k + \sigma^2 I)V` the predictive mean is :math:`CV`, and the covariance
:math:`K_q - C(K_k + \sigma^2 I)^{-1}C^\top`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .gaussians import DenseGaussian, Gaussian, lazy, log_normal
from .linalg import cholesky, explained_variances, log_determinant, product, solve, solve_lower
from .padding import add_noise, count_tokens, mask_gram, mask_tokens, mask_variances

__all__ = ["OBJECTIVES", "ExactPosterior", "ObservedKeys", "check_objective", "latent_coupling"]

OBJECTIVES = ("marginal", "joint")


def check_objective(objective: str) -> None:
    """Raise ValueError for an unknown regulariser."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective: expected one of {OBJECTIVES}, got {objective!r}")


class ObservedKeys:
    r"""Keys observed with noise: the data of a posterior, factorised once for all queries.

    Keys are given with weights V (``values``: the mean needs no factorisation) or with targets Z (regression).

    Args:
        K_k: covariance of the keys, ``(*batch, Nk, Nk)``.
        noise: observation variance, a number or broadcastable to ``(*batch, Nk)``.
        values: V, ``(*batch, Nk, s)``, or None.
        targets: Z, ``(*batch, Nk, s)``, or None.
        padding: padding mask of the keys, ``(*batch, Nk)``, or None.

    Example:
        >>> keys = ObservedKeys(torch.ones(1, 1), noise=1.0, targets=torch.ones(1, 1))
        >>> keys.noisy, keys.quadratic
        (tensor([[2.]]), tensor(0.5000))
    """

    def __init__(
        self,
        K_k: Tensor,
        *,
        noise: Tensor | float,
        values: Tensor | None = None,
        targets: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> None:
        self.K_k, self.noise, self.padding = mask_gram(K_k, padding, padding), noise, padding
        self.values = None if values is None else mask_tokens(values, padding)
        self._targets = None if targets is None else mask_tokens(targets, padding)

    @lazy
    def noisy(self) -> Tensor:
        r""":math:`K_k + \Sigma`, ``(*batch, Nk, Nk)``."""
        return add_noise(self.K_k, self.noise, self.padding)

    @lazy
    def factor(self) -> Tensor:
        r""":math:`L_k = \operatorname{chol}(K_k + \Sigma)`, ``(*batch, Nk, Nk)``."""
        return cholesky(self.noisy, name="K_k + noise", jitter=0.0)

    @lazy
    def targets(self) -> Tensor:
        r""":math:`Z = (K_k + \Sigma)V`, ``(*batch, Nk, s)``."""
        if self._targets is not None:
            return self._targets
        assert self.values is not None, "neither values nor targets were given"
        noise = self.noise[..., None] if isinstance(self.noise, Tensor) else self.noise
        return self.K_k @ self.values + noise * self.values

    @lazy
    def weights(self) -> Tensor:
        r"""V, which :math:`(K_k + \Sigma)V = Z` defines, ``(*batch, Nk, s)``: the mean is :math:`CV`."""
        return solve(self.noisy, self.targets, self.factor) if self.values is None else self.values

    @lazy
    def whitened_targets(self) -> Tensor:
        r""":math:`L_k^{-1}Z`, ``(*batch, Nk, s)``."""
        return solve_lower(self.factor, self.targets)

    @lazy
    def quadratic(self) -> Tensor:
        r""":math:`\operatorname{tr}Z^\top(K_k + \Sigma)^{-1}Z`, ``(*batch,)``; :math:`\operatorname{tr}V^\top Z`."""
        if self.values is not None:
            return (self.values * self.targets).sum((-2, -1))
        return self.whitened_targets.square().sum((-2, -1))

    @lazy
    def log_evidence(self) -> Tensor:
        r"""Log-density of the targets, :math:`\log N(Z; 0, K_k + \Sigma)`, ``(*batch,)`` in nats."""
        count = count_tokens(self.K_k[..., 0], self.padding)
        return log_normal(self.quadratic, log_determinant(self.factor), count, self.targets.shape[-1])


class ExactPosterior(Gaussian):
    r"""Posterior of queries given noisy keys; every attribute is computed on first access, and kept.

    .. math:: \mu = CV = C(K_k + \Sigma)^{-1}Z, \qquad V = K_q - C(K_k + \Sigma)^{-1}C^\top

    Args:
        C: covariance of queries and keys, ``(*batch, Nq, Nk)``.
        keys: the observed keys.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        K_q: computes the covariance of the queries, ``(*batch, Nq, Nq)``; needed for :attr:`covariance`.
        padding: padding mask of the queries, ``(*batch, Nq)``, or None.

    Note:
        Variances are differences: below about 1e-5 of the prior's in float32 (1e-13 in float64) they are rounding
        error.

    Example:
        >>> one = torch.ones(1, 1)
        >>> posterior = ExactPosterior(one, ObservedKeys(one, noise=1.0, values=one), torch.ones(1))
        >>> posterior.mean, posterior.variance
        (tensor([[1.]]), tensor([0.5000]))
    """

    def __init__(
        self,
        C: Tensor,
        keys: ObservedKeys,
        prior_variance: Tensor,
        *,
        K_q: Callable[[], Tensor] | None = None,
        padding: Tensor | None = None,
    ) -> None:
        self.C, self.keys = mask_gram(C, padding, keys.padding), keys
        self.prior_variance, self.padding = prior_variance, padding
        self._build_K_q = K_q

    @lazy
    def mean(self) -> Tensor:
        """Mean of each query, ``(*batch, Nq, s)``."""
        return product(self.C, self.keys.weights)

    @lazy
    def variance(self) -> Tensor:
        r"""Variance of each query, :math:`[K_q]_{ii} - \|L_k^{-1}C_i^\top\|^2`, ``(*batch, Nq)``."""
        explained = explained_variances(self.keys.noisy, self.C.mT, self.keys.factor)
        return mask_variances((self.prior_variance - explained).clamp(min=0.0), self.padding)

    @lazy
    def covariance(self) -> Tensor:
        """Covariance of the queries, ``(*batch, Nq, Nq)``, zero at padded tokens."""
        return self.K_q - self.whitened.mT @ self.whitened

    @lazy
    def K_q(self) -> Tensor:  # noqa: N802
        """Prior covariance of the queries, ``(*batch, Nq, Nq)``, zero at padded tokens."""
        assert self._build_K_q is not None, "K_q was not given"
        return mask_gram(self._build_K_q(), self.padding, self.padding)

    @lazy
    def whitened(self) -> Tensor:
        r""":math:`L_k^{-1}C^\top`, ``(*batch, Nk, Nq)``."""
        return solve_lower(self.keys.factor, self.C.mT)

    def joint(self) -> DenseGaussian:
        """The posterior with its covariance."""
        return DenseGaussian(self.mean, self.covariance, self.padding)

    def log_density(self, objective: str = "marginal") -> Tensor:
        r"""Log-density of the attention output and the keys' targets under the model, CGPT (26)-(29).

        :math:`\nu` is the predictive mean, observed with noise :math:`\sigma^2`, which keeps the density bounded:

        * "marginal": :math:`\log N(\nu; 0, K_q + \sigma^2 I) + \log N(Z; 0, K_k + \sigma^2 I)`, (27) in closed form;
        * "joint": the density of (26), :math:`-\tfrac12\log|2\pi(V + \sigma^2 I)| + \log N(Z; 0, K_k + \sigma^2 I)`.

        Args:
            objective: "marginal" or "joint".

        Returns:
            ``(*batch,)``, in nats, summed over tokens and columns.

        Raises:
            ValueError: if the objective is unknown.
        """
        check_objective(objective)
        if objective == "joint":
            predictive = self.joint().with_noise(self.keys.noise)
            return predictive.log_prob(self.mean) + self.keys.log_evidence
        prior = DenseGaussian(torch.zeros_like(self.mean), self.K_q, self.padding).with_noise(self.keys.noise)
        return prior.log_prob(self.mean) + self.keys.log_evidence


def latent_coupling(
    K_qo: Tensor, K_o: Tensor, K_ok: Tensor, *, noise: Tensor | float, padding: Tensor | None = None
) -> Tensor:
    r"""Cross-covariance of the two-hop coupling, :math:`C = K_{qo}(K_o + \sigma^2 I)^{-1}K_{ok}` (CGPT (21)-(25)).

    Given :math:`K_{ok}V` for :math:`K_{ok}`, the result is the mean :math:`CV`, and C is not formed. The padding mask
    is that of the latent inputs.

    Args:
        K_qo: ``(*batch, Nq, No)``.
        K_o: ``(*batch, No, No)``.
        K_ok: ``(*batch, No, Nk)``.
        noise: a number or broadcastable to ``(*batch, No)``.
        padding: ``(*batch, No)``, or None.

    Returns:
        ``(*batch, Nq, Nk)``.
    """
    noisy = add_noise(mask_gram(K_o, padding, padding), noise, padding)
    solved = solve(noisy, K_ok, cholesky(noisy, name="K_o + noise", jitter=0.0))
    return product(mask_gram(K_qo, None, padding), solved)
