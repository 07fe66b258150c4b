"""Sparse regression with correlated processes, in closed form, and whether its inducing inputs are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from gpytorch import Module
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from linear_operator.operators import LowRankRootLinearOperator
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cgp.functional.clusters import cluster_centres
from cgp.functional.linalg import cholesky, solve_lower
from cgp.functional.sparse_correlated import InducingGaussian, InducingPosterior, SparsePosterior
from cgp.kernels.canonical_kernel import CanonicalPoints
from cgp.regression.covariances.neighbours import neighbour_noise
from cgp.regression.covariances.rows import RowKernel, dense_covariance, prior_variance
from cgp.regression.covariances.structure import check_count
from cgp.regression.likelihood import ProcessGaussianLikelihood
from cgp.warning import warn_user

from .choice import Cost, Problem
from .model import Moments, RegressionModel

__all__ = ["InducingFeatures", "SparseCorrelatedGPRegression", "Sums", "unexplained_variance", "warn_of_unexplained"]

_CHUNK = 4096  # rows at a time
_STORED = 2**25  # entries of A stored for the backward pass; larger ones are recomputed
_ENTRIES = 2**21  # distances at a time
_LEAST_EXPLAINED = 0.9


class InducingFeatures(Module):
    r"""Whitened inducing variables of every component.

    .. math:: A^{(q)} = L_q^{-1}k(S_q, x), \qquad L_qL_q^\top = k(S_q, S_q), \qquad
        S = \big(U \odot w_0,\; \Pi a\big)

    One set of inducing inputs S in the canonical space of a component serves every process. Their locations U are in
    units of the first process's lengthscales, and their loadings are weighted sums of those of the processes, so that
    they move with the data while the covariance is learned. They are initialised at cluster centres of the mapped
    rows, each with the loadings of the nearest row.

    Args:
        covariance: the sum of components, whose parameters are those of its owner.
        rows: ``(n, d + 1)``, from which the first inducing inputs are taken.
        num_inducing: m, shared evenly by the components.
        seed: seed of the clustering.

    Raises:
        ValueError: if there are fewer inducing inputs than components, or more than distinct rows.

    Source:
        CGPT section 4.2 (inducing inputs in the space of the latent process).
    """

    def __init__(self, covariance: AdditiveKernel, rows: Tensor, num_inducing: int, *, seed: int = 0) -> None:
        super().__init__()
        components = list(covariance.kernels)
        check_count("num_inducing", num_inducing, len(components))
        shares = [num_inducing // len(components)] * len(components)
        shares[0] += num_inducing - sum(shares)
        self.places, self.weights = nn.ParameterList(), nn.ParameterList()
        for component, share in zip(components, shares, strict=True):
            with torch.no_grad():
                places, weights = _first_inducing(component, rows, share, seed)
            self.places.append(nn.Parameter(places))
            # The loadings of a single process are one number, which whitening cancels.
            self.weights.append(nn.Parameter(weights, requires_grad=component.num_processes > 1))

    @property
    def num_inducing(self) -> int:
        """m, over all components."""
        return sum(places.shape[-2] for places in self.places)

    def points(self, covariance: AdditiveKernel) -> list[CanonicalPoints]:
        """The m_q inducing inputs of every component, in its canonical space."""
        return [
            CanonicalPoints(places * component.input_maps.scales.unsqueeze(-2), weights @ component.loadings())
            for component, places, weights in zip(covariance.kernels, self.places, self.weights, strict=True)
        ]

    def factors(self, covariance: AdditiveKernel) -> list[Tensor]:
        """Cholesky factors ``(*batch, m_q, m_q)`` of the inducing covariances."""
        return [
            cholesky(component.gram(points), name="inducing covariance")
            for component, points in zip(covariance.kernels, self.points(covariance), strict=True)
        ]

    def forward(self, covariance: AdditiveKernel, x: Tensor, factors: list[Tensor] | None = None) -> Tensor:
        """Features A ``(*batch, m, n)`` of rows ``(*batch, n, d + 1)``; ``factors`` saves computing them again."""
        factors = self.factors(covariance) if factors is None else factors
        parts = zip(covariance.kernels, self.points(covariance), factors, strict=True)
        crosses = [
            solve_lower(factor, component.gram(points, component.points(x))) for component, points, factor in parts
        ]
        return torch.cat(crosses, dim=-2)


class Sums(NamedTuple):
    r"""Sums over observations, of a size that does not depend on their number; sums of two sets can be added.

    Attributes:
        gram: :math:`A\Sigma^{-1}A^\top`, ``(*batch, m, m)``.
        projection: :math:`A\Sigma^{-1}r`, ``(*batch, m, 1)``.
        squares: :math:`r^\top\Sigma^{-1}r`, ``(*batch,)``.
        log_noise: :math:`\log|\Sigma|`, ``(*batch,)``.
        unexplained: :math:`\sum_i (k_{ii} - q_{ii})/\sigma_i^2`, ``(*batch,)``.
    """

    gram: Tensor
    projection: Tensor
    squares: Tensor
    log_noise: Tensor
    unexplained: Tensor


class SparseCorrelatedGPRegression(RegressionModel):
    r"""Regression through inducing inputs in the canonical space.

    .. math:: \log N(y; m, A^\top A + \Sigma) - \tfrac12\sum_i (k_{ii} - a_i^\top a_i)/\sigma^2_{p_i}, \qquad
        A = L^{-1}K_{mn}

    The variational bound of the log marginal likelihood is maximised in closed form. Far from the inducing inputs the
    variance is the prior's. Time O(n m²), memory O(n + m²) in addition to the data: rows are processed in chunks,
    which the backward pass recomputes.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes, covar_module, likelihood, mean_module: those of :class:`CorrelatedGPRegression`.
        num_inducing: number m of inducing inputs, over all components; at most the number of distinct rows.
        seed: seed of the clustering that places the initial inducing inputs.

    Raises:
        ValueError: if the data are not finite, shapes do not fit, or an argument is out of range.

    Source:
        Titsias (2009), equation (9); CGPT equations (30)-(35).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 20)[:, None], torch.zeros(20, 1)], dim=-1)
        >>> model = SparseCorrelatedGPRegression(x, x[:, 0].sin(), num_inducing=5).eval()
        >>> model(x[:3]).mean.shape
        torch.Size([3])
    """

    name = "sparse"
    with_inducing: ClassVar[bool | None] = True

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Linear in the observations, quadratic in the inducing inputs."""
        n, m = float(problem.num_observations), float(problem.num_inducing or 0)
        seconds = 3e-3 + n * (8.5e-8 * m + 1.8e-10 * m**2) + 1e-10 * m**3
        return Cost(seconds, 8.0 * (min(n * m, 2**25) * 8.0 + 10.0 * m**2))

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        num_inducing: int = 100,
        covar_module: AdditiveKernel | None = None,
        likelihood: ProcessGaussianLikelihood | GaussianLikelihood | None = None,
        mean_module: Mean | None = None,
        seed: int = 0,
    ) -> None:
        given: dict[str, Any] = {"covar_module": covar_module, "likelihood": likelihood, "mean_module": mean_module}
        super().__init__(train_inputs, train_targets, num_processes, **given)
        self.features = InducingFeatures(self.covar_module, train_inputs, num_inducing, seed=seed)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The low-rank prior at rows ``(*batch, n, d + 1)``."""
        root = self.features(self.covar_module, x).mT
        return MultivariateNormal(self.mean_module(x), LowRankRootLinearOperator(root))

    def sums(self) -> Sums:
        """Sums over the observations, in chunks of rows."""
        factors = self.features.factors(self.covar_module)
        rows, residual, noise = self.train_inputs[0], self.residual(), self.noise()
        chunks = list(zip(rows.split(_CHUNK, -2), residual.split(_CHUNK, -1), noise.split(_CHUNK, -1), strict=True))
        if rows.shape[-2] * self.features.num_inducing <= _STORED or not torch.is_grad_enabled():
            parts = [self._sums(*chunk, *factors) for chunk in chunks]
        else:
            parts = [checkpoint(self._sums, *chunk, *factors, use_reentrant=False) for chunk in chunks]
        return Sums(*(torch.stack(field).sum(0) for field in zip(*parts, strict=True)))

    def condition(self) -> InducingGaussian:
        """The posterior of the inducing values, factored."""
        sums = self.sums()
        return InducingPosterior(sums.gram, sums.projection)

    def log_evidence(self) -> Tensor:
        """The variational bound of the log marginal likelihood."""
        sums = self.sums()
        inducing = InducingPosterior(sums.gram, sums.projection)
        evidence = inducing.log_evidence(sums.squares, sums.log_noise, self.train_targets.shape[-1])
        return evidence - 0.5 * sums.unexplained

    def leave_one_out(self) -> Moments:
        r"""Mean and variance of every observation given all others, with fixed parameters.

        .. math:: \mu_{-i} = m_i + \frac{a_i^\top D^{-1}A\Sigma^{-1}r - h_ir_i}{1 - h_i}, \qquad
            v_{-i} = \frac{h_i\sigma_i^2}{1 - h_i} + \delta_i + \sigma_i^2, \qquad h_i = a_i^\top D^{-1}a_i / \sigma_i^2

        Returns:
            ``(*batch, n)`` each, noise included.
        """
        condition, x, noise = self.condition(), self.train_inputs[0], self.noise()
        parts = self._posteriors(x, condition)
        mean = torch.cat([part.mean.squeeze(-1) for part in parts], dim=-1)
        beside = torch.cat([part.diagonal for part in parts], dim=-1)
        leverage = (torch.cat([part.variance for part in parts], dim=-1) - beside) / noise
        remaining = 1.0 - leverage
        mean = self.mean_module(x) + (mean - leverage * self.residual()) / remaining
        return Moments(mean, leverage * noise / remaining + beside + noise)

    def explained_variance(self) -> float:
        r"""Share of the prior variance explained by the inducing inputs at the observations, :math:`a_i^2 / k_{ii}`.

        Returns:
            The mean over observations, 1 if all is explained.
        """
        rows, factors = self.train_inputs[0], self.features.factors(self.covar_module)
        with torch.no_grad():
            parts = [
                self.features(self.covar_module, some, factors).square().sum(-2)
                / prior_variance(self.covar_module, some)
                for some in rows.split(_CHUNK, dim=-2)
            ]
        return float(torch.cat(parts, dim=-1).mean())

    def inducing_points(self) -> list[CanonicalPoints]:
        """The inducing inputs of every component, in its canonical space."""
        return self.features.points(self.covar_module)

    def _sums(self, x: Tensor, residual: Tensor, noise: Tensor, *factors: Tensor) -> Sums:
        whitened = (residual * noise.rsqrt()).unsqueeze(-1)
        features = self.features(self.covar_module, x, list(factors)) * noise.rsqrt().unsqueeze(-2)
        gram = features @ features.mT
        prior = (prior_variance(self.covar_module, x) / noise).sum(-1)
        unexplained = prior - gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        squares = whitened.square().sum((-2, -1))
        return Sums(gram, features @ whitened, squares, noise.log().sum(-1), unexplained)

    def _posteriors(self, x: Tensor, condition: InducingGaussian) -> list[SparsePosterior]:
        """The posterior at rows minus its mean function, of one column, in chunks of rows."""
        return [self._posterior(rows, condition) for rows in x.split(_CHUNK, dim=-2)]

    def _posterior(self, x: Tensor, condition: InducingGaussian) -> SparsePosterior:
        return SparsePosterior(self.features(self.covar_module, x), condition, prior_variance(self.covar_module, x))

    def _marginals(self, x: Tensor, condition: InducingGaussian) -> Moments:
        parts = self._posteriors(x, condition)
        mean = torch.cat([part.mean.squeeze(-1) for part in parts], dim=-1)
        return Moments(mean, torch.cat([part.variance for part in parts], dim=-1))

    def _joint(self, x: Tensor, condition: InducingGaussian) -> tuple[Tensor, Tensor]:
        posterior = self._posterior(x, condition)
        features = posterior.features_q
        unexplained = dense_covariance(self.covar_module, x) - features.mT @ features
        return posterior.mean.squeeze(-1), unexplained + posterior.root @ posterior.root.mT


def _first_inducing(component: RowKernel, rows: Tensor, number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Locations in units of the first lengthscales ``(m, d)``, and the processes' weights ``(m, P)``."""
    points = component.points(rows)
    joint = torch.cat([points.inputs, points.loadings], dim=-1)
    centres = cluster_centres(joint, number, seed=seed)
    nearest = torch.cat([torch.cdist(some, joint).argmin(-1) for some in centres.split(1 + _ENTRIES // len(joint))])
    weights = nn.functional.one_hot(rows[nearest, -1].long(), component.num_processes).to(rows)
    return centres[:, : points.inputs.shape[-1]] / component.input_maps.scales, weights


def warn_of_unexplained(models: Sequence[RegressionModel]) -> None:
    """Warn where the inducing inputs are too few."""
    sparse = [model for model in models if isinstance(model, SparseCorrelatedGPRegression)]
    explained = min((1.0 - unexplained_variance(model) for model in sparse), default=1.0)
    if explained < _LEAST_EXPLAINED:
        warn_user(
            f"The {sparse[0].features.num_inducing} inducing inputs explain {max(explained, 0.0):.0%} of the variance "
            f"that is not noise (should be {_LEAST_EXPLAINED:.0%} or more): what varies faster is lost. Take more "
            "inducing inputs, or fewer rows.",
            ConvergenceWarning,
        )


def unexplained_variance(model: SparseCorrelatedGPRegression) -> float:
    r"""The share of the variance that the inducing inputs do not explain, the largest of all processes.

    .. math:: 1 - \overline{q_{ii} / k_{ii}} + \max(0, \sigma_p^2 - \gamma_p) / s_p^2

    The first part is the unexplained prior variance at the observations. A fit attributes most of the variation that
    the inducing inputs cannot follow to noise: the second part is the noise above the semivariance of neighbours,
    divided by the variance of the observations.

    Returns:
        The share, which may be above 1.
    """
    rows, targets = model.train_inputs[0], model.train_targets
    with torch.no_grad():
        left_out, noise = 1.0 - model.explained_variance(), model.noise()
    shares = [0.0]
    for process in range(model.num_processes):
        seen = rows[:, -1] == process
        if int(seen.sum()) > 2:
            beyond = noise[seen][0] - neighbour_noise(rows[seen], targets[seen])
            shares.append(float(beyond / targets[seen].var()))
    return left_out + max(shares)
