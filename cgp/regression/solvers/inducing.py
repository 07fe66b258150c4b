"""Inducing inputs in the canonical spaces, and the features of rows that they define."""

from __future__ import annotations

import torch
from gpytorch import Module
from gpytorch.kernels import AdditiveKernel
from torch import Tensor, nn

from cgp.functional.clusters import cluster_centres
from cgp.functional.linalg import cholesky, solve_lower
from cgp.kernels.canonical_kernel import CanonicalPoints
from cgp.regression.checks import check_count
from cgp.regression.covariances.rows import RowKernel

__all__ = ["InducingFeatures"]

_ENTRIES = 2**21  # distances at a time


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


def _first_inducing(component: RowKernel, rows: Tensor, number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Locations in units of the first lengthscales ``(m, d)``, and the processes' weights ``(m, P)``."""
    points = component.points(rows)
    joint = torch.cat([points.inputs, points.loadings], dim=-1)
    centres = cluster_centres(joint, number, seed=seed)
    nearest = torch.cat([torch.cdist(some, joint).argmin(-1) for some in centres.split(1 + _ENTRIES // len(joint))])
    weights = nn.functional.one_hot(rows[nearest, -1].long(), component.num_processes).to(rows)
    return centres[:, : points.inputs.shape[-1]] / component.input_maps.scales, weights
