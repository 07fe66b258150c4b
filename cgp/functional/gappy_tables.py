r"""Tables of one kind, each in one row of D cells with gaps: a law of them all, and each filled from its own values.

.. math:: x_b \mid s_b \sim N(\mu, s_b\,C), \qquad s_b \sim \text{InvGamma}(\nu/2, \nu/2)

Tables vary by a scale of their own, so that they are multivariate t together; infinite :math:`\nu` is normal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .gaussians import log_normal
from .linalg import cholesky, log_determinant, solve_lower

__all__ = ["Cells", "Filled", "TableLaw", "covariance_of_cells"]


class Cells(NamedTuple):
    """Places of n cells of B tables among D.

    Attributes:
        places: ``(B, n)``.
        known: False where a shorter list has ended, ``(B, n)``.
    """

    places: Tensor
    known: Tensor

    @classmethod
    def of(cls, chosen: Tensor) -> Cells:
        """The cells that are ``chosen`` ``(B, D)``."""
        longest = int(chosen.sum(-1).max())
        places = (~chosen).byte().argsort(dim=-1, stable=True)[:, :longest]
        return cls(places, chosen.gather(-1, places))

    def values(self, tables: Tensor) -> Tensor:
        """Their values in ``tables`` ``(B, D)``, 0 in padding, ``(B, n)``."""
        return torch.where(self.known, tables.gather(-1, self.places), 0.0)


def covariance_of_cells(covariance: Tensor, cells: Cells, others: Cells | None = None) -> Tensor:
    """The covariance of some cells and others, or each other.

    Args:
        covariance: of all cells, ``(D, D)``, or of those of each table, ``(B, D, D)``.
        cells: n of each table.
        others: m of each table; None are the same, whose padding is independent, with unit variance.

    Returns:
        ``(B, n, m)``; zero in padding.
    """
    second = cells if others is None else others
    rows, columns = cells.places.unsqueeze(-1), second.places.unsqueeze(-2)
    among = cells.known.unsqueeze(-1) & second.known.unsqueeze(-2)
    table = () if covariance.dim() == 2 else (torch.arange(len(covariance))[:, None, None],)
    chosen = torch.where(among, covariance[(*table, rows, columns)], 0.0)
    if others is None:
        chosen.diagonal(dim1=-2, dim2=-1).add_(~cells.known)
    return chosen


class Filled(NamedTuple):
    r"""Tables given what each shows.

    .. math:: \mu_M + C_{MO}C_{OO}^{-1}(x_O - \mu_O), \qquad \bar s\,(C_{MM} - W^\top W), \quad W = L_{OO}^{-1}C_{OM}

    Attributes:
        mean: of the gaps, and what was observed, ``(B, D)``.
        gaps: m of each table.
        left: :math:`C_{MM} - W^\top W`, zero in padding, ``(B, m, m)``.
        scale: :math:`\bar s = (\nu + q)/(\nu + n - 2)`, the mean of each table's scale, ``(B,)``.
        weight: :math:`(\nu + n)/(\nu + q)`, the mean of its inverse, ``(B,)``.
    """

    mean: Tensor
    gaps: Cells
    left: Tensor
    scale: Tensor
    weight: Tensor

    @property
    def variances(self) -> Tensor:
        """Variance of each cell, 0 where it was observed, ``(B, D)``."""
        each = self.scale.unsqueeze(-1) * self.left.diagonal(dim1=-2, dim2=-1).clamp(min=0.0)
        return torch.zeros_like(self.mean).scatter_add(-1, self.gaps.places, each)

    def covariance(self, number: int) -> Tensor:
        """The covariance of the g cells that one table hides, ``(g, g)``."""
        known = self.gaps.known[number]
        return self.scale[number] * self.left[number][known][:, known]


class _Shown(NamedTuple):
    """What is seen of tables: its cells, the factor of their covariance, whitened errors, their squares."""

    cells: Cells
    factor: Tensor
    white: Tensor  # (B, n, 1)
    quadratic: Tensor  # (B,)
    counts: Tensor  # (B,)


class TableLaw(NamedTuple):
    r"""The law of tables of one kind.

    Attributes:
        mean: ``(D,)``.
        covariance: C, ``(D, D)``, or of each table, ``(B, D, D)``.
        freedom: :math:`\nu`, above 2; infinite for a normal law.

    Example:
        >>> law = TableLaw(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
        >>> law.filled(torch.tensor([[2.0, torch.nan]])).mean
        tensor([[2., 1.]])
    """

    mean: Tensor
    covariance: Tensor
    freedom: float = math.inf

    def varying(self, freedom: float) -> TableLaw:
        """The law with scales of that freedom, and the same covariance of readings."""
        return self._replace(covariance=(freedom - 2.0) / freedom * self.covariance, freedom=freedom)

    def log_evidence(self, tables: Tensor) -> Tensor:
        r"""Log-density of what each of B tables shows.

        .. math:: \log t_\nu(x_O; \mu_O, C_{OO})

        Args:
            tables: NaN where missing, ``(B, D)``.

        Returns:
            ``(B,)``, in nats.
        """
        _, factor, _, quadratic, counts = self._shown(tables)
        return _log_density(quadratic, log_determinant(factor), counts, self.freedom)

    def filled(self, tables: Tensor) -> Filled:
        """What each of B tables says of its gaps.

        Args:
            tables: NaN where missing, ``(B, D)``.

        Returns:
            Means and covariances.

        Raises:
            NotPositiveDefiniteError: if the covariance cannot be factored.
        """
        cells, factor, white, quadratic, counts = self._shown(tables)
        gaps = Cells.of(tables.isnan())
        root = solve_lower(factor, covariance_of_cells(self.covariance, cells, gaps))
        shift = (root.mT @ white).squeeze(-1)
        mean = torch.where(tables.isnan(), self.mean, tables).scatter_add(-1, gaps.places, shift)
        left = covariance_of_cells(self.covariance, gaps, gaps) - root.mT @ root
        return Filled(mean, gaps, left, *_scales(quadratic, counts, self.freedom))

    def refined(self, centre: TableLaw, batches: tuple[Tensor, ...], weight: float, mean_weight: float) -> TableLaw:
        r"""One step of EM to the law that is most probable, given tables and a law that it is expected to be near.

        .. math:: \max_{\mu, C}\; \sum_b \log t_\nu(x_{b,O}; \mu_O, C_{OO})
            - \tfrac w2\big(\log|C| + \operatorname{tr}\Lambda C^{-1}\big)
            - \tfrac m2(\mu - \mu_0)^\top C^{-1}(\mu - \mu_0)

        Args:
            centre: :math:`\mu_0, \Lambda` of a normal and an inverse-Wishart prior.
            batches: tables with gaps, each ``(_, D)``.
            weight: w, in tables; infinite keeps the covariance.
            mean_weight: m, in tables.

        Returns:
            Another law, of the same freedom.

        Source:
            Dempster, Laird & Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm; Liu & Rubin
            (1995), ML estimation of the t distribution using EM.
        """
        parts = [self.filled(batch) for batch in batches]
        values, shares = torch.cat([part.mean for part in parts]), torch.cat([part.weight for part in parts])
        mean = (mean_weight * centre.mean + shares @ values) / (mean_weight + shares.sum())
        if weight == math.inf:
            return self._replace(mean=mean)
        errors, shift = shares.sqrt().unsqueeze(-1) * (values - mean), mean - centre.mean
        scatter = weight * centre.covariance + errors.mT @ errors + mean_weight * torch.outer(shift, shift)
        for part in parts:
            places = part.gaps.places
            scatter.index_put_((places.unsqueeze(-1), places.unsqueeze(-2)), part.left, accumulate=True)
        return self._replace(mean=mean, covariance=scatter / (weight + len(values)))

    def _shown(self, tables: Tensor) -> _Shown:
        cells = Cells.of(~tables.isnan())
        factor = cholesky(covariance_of_cells(self.covariance, cells), name="covariance of a table", jitter=0.0)
        white = solve_lower(factor, cells.values(tables - self.mean).unsqueeze(-1))
        return _Shown(cells, factor, white, white.square().sum((-2, -1)), cells.known.sum(-1).to(tables.dtype))


def _scales(quadratic: Tensor, counts: Tensor, freedom: float) -> tuple[Tensor, Tensor]:
    """Mean of each table's scale, and of its inverse."""
    if freedom == math.inf:
        return torch.ones_like(quadratic), torch.ones_like(quadratic)
    total = freedom + quadratic
    return total / (freedom + counts - 2.0), (freedom + counts) / total


def _log_density(quadratic: Tensor, log_det: Tensor, counts: Tensor, freedom: float) -> Tensor:
    """Log-density of a multivariate t, or normal, vector of n entries."""
    if freedom == math.inf:
        return log_normal(quadratic, log_det, counts, 1)
    half = 0.5 * (freedom + counts)
    constant = torch.lgamma(half) - math.lgamma(0.5 * freedom) - 0.5 * counts * math.log(math.pi * freedom)
    return constant - 0.5 * log_det - half * torch.log1p(quadratic / freedom)
