"""Inducing inputs in the canonical spaces, and the features that they make of rows."""

from __future__ import annotations

from typing import cast

import torch
from gpytorch import Module
from gpytorch.kernels import AdditiveKernel
from sklearn.cluster import KMeans
from torch import Tensor, nn

from cgp.functional.linalg import cholesky, solve_lower
from cgp.kernels import CanonicalPoints, HadamardCorrelatedKernel

from .process_map import ProcessMap
from .radial import points_gram

__all__ = ["InducingFeatures", "cluster_centres"]

_CLUSTERED = 8192


class InducingFeatures(Module):
    r"""Whitened inducing variables of every component.

    .. math:: A^{(q)} = L_q^{-1}\kappa(S_q, z_q(x))\,\sigma_q(x), \qquad L_qL_q^\top = \kappa(S_q, S_q)

    One set of inducing inputs S in the canonical space of a component serves every process. They are stored in units
    of the first process's lengthscales, :math:`S = U \odot w_0`, so that they move with the data while the
    lengthscales are learned, and start at the centres of clusters of the mapped rows.

    Args:
        covariance: the sum of components, whose parameters are those of its owner.
        rows: ``(n, d + 1)``, from which the first inducing inputs are taken.
        num_inducing: m, shared evenly by the components.
        seed: of the clustering.

    Raises:
        ValueError: if there are fewer inducing inputs than components, or more than distinct rows.

    Source:
        CGPT section 4.2 (inducing inputs in the space of the latent process).
    """

    def __init__(self, covariance: AdditiveKernel, rows: Tensor, num_inducing: int, *, seed: int = 0) -> None:
        super().__init__()
        components = list(covariance.kernels)
        if num_inducing < len(components):
            raise ValueError(f"num_inducing: expected at least {len(components)}, one a component, got {num_inducing}")
        shares = [num_inducing // len(components)] * len(components)
        shares[0] += num_inducing - sum(shares)
        self.scaled_points = nn.ParameterList()
        for component, share in zip(components, shares, strict=True):
            with torch.no_grad():
                mapped = component.points(rows).inputs
                centres = cluster_centres(mapped, share, seed=seed)
                self.scaled_points.append(nn.Parameter(centres / _stretch(component, centres.shape[-1])))

    @property
    def num_inducing(self) -> int:
        """m, over all components."""
        return sum(points.shape[-2] for points in self.scaled_points)

    def inducing_inputs(self, covariance: AdditiveKernel) -> list[Tensor]:
        """S of every component, in its canonical space.

        Args:
            covariance: the sum of components.

        Returns:
            One ``(*batch, m_q, s + e)`` a component.
        """
        return [
            points * _stretch(component, points.shape[-1])
            for component, points in zip(covariance.kernels, self.scaled_points, strict=True)
        ]

    def factors(self, covariance: AdditiveKernel) -> list[Tensor]:
        """Cholesky factors of the inducing covariances.

        Args:
            covariance: the sum of components.

        Returns:
            One ``(*batch, m_q, m_q)`` a component.
        """
        inputs = self.inducing_inputs(covariance)
        return [
            cholesky(points_gram(component.base_kernel, _unscaled(one)), name="inducing covariance")
            for component, one in zip(covariance.kernels, inputs, strict=True)
        ]

    def crosses(self, covariance: AdditiveKernel, x: Tensor, weights: Tensor | None = None) -> list[Tensor]:
        """Covariances of the inducing values with rows.

        Args:
            covariance: the sum of components.
            x: ``(*batch, n, d + 1)``.
            weights: of the rows, ``(*batch, n)``; None means 1.

        Returns:
            One ``(*batch, m_q, n)`` a component.
        """
        found = []
        for component, one in zip(covariance.kernels, self.inducing_inputs(covariance), strict=True):
            points = component.points(x)
            if weights is not None:
                points = points._replace(scales=points.scales * weights)
            found.append(points_gram(component.base_kernel, _unscaled(one), points))
        return found

    def forward(self, covariance: AdditiveKernel, x: Tensor) -> Tensor:
        """Features of rows.

        Args:
            covariance: the sum of components.
            x: ``(*batch, n, d + 1)``.

        Returns:
            A, ``(*batch, m, n)``.
        """
        pairs = zip(self.factors(covariance), self.crosses(covariance, x), strict=True)
        return torch.cat([solve_lower(factor, cross) for factor, cross in pairs], dim=-2)


def cluster_centres(points: Tensor, number: int, *, seed: int = 0) -> Tensor:
    """Centres of clusters, or the distinct points themselves where there are no more of them than asked for.

    Args:
        points: ``(n, s)``; beyond 8192 a random subset is clustered.
        number: how many centres.
        seed: of subset and clustering.

    Returns:
        ``(number, s)``.

    Raises:
        ValueError: if there are fewer distinct points than centres.

    Example:
        >>> cluster_centres(torch.tensor([[0.0], [0.2], [9.0], [9.2]]), 2).sort(0).values
        tensor([[0.1000],
                [9.1000]])
    """
    distinct = points.unique(dim=0)
    if number > len(distinct):
        raise ValueError(f"num_inducing: expected at most {len(distinct)}, the number of distinct rows, got {number}")
    if number == len(distinct):
        return distinct
    if len(distinct) > _CLUSTERED:
        order = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(seed))
        distinct = distinct[order[:_CLUSTERED].to(distinct.device)]
    found = KMeans(number, n_init=1, max_iter=20, random_state=seed).fit(distinct.cpu().numpy())
    return torch.as_tensor(found.cluster_centers_).to(points)


def _stretch(component: HadamardCorrelatedKernel, size: int) -> Tensor:
    """Inverse lengthscales of the first process, and 1 for the coordinates, ``(*batch, 1, s + e)``."""
    scales = cast(ProcessMap, component.correlated.input_maps[0]).stretch
    return nn.functional.pad(scales, (0, size - scales.shape[-1]), value=1.0).unsqueeze(-2)


def _unscaled(inputs: Tensor) -> CanonicalPoints:
    return CanonicalPoints(inputs, torch.ones_like(inputs[..., 0]))
