r"""A start for minibatches: what the closed form finds on some of the rows."""

from __future__ import annotations

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from .fitting import fit_lbfgs
from .sparse import SparseCorrelatedGPRegression
from .sparse_posteriors import SparseStatistics, sparse_condition
from .variational import StochasticCorrelatedGPRegression

__all__ = ["optimal_values", "warm_start"]

_ROWS = 2048


def warm_start(
    model: StochasticCorrelatedGPRegression,
    inputs: Tensor,
    targets: Tensor,
    *,
    num_rows: int = _ROWS,
    max_steps: int = 40,
    seed: int = 0,
) -> None:
    r"""Fit the bound in closed form to a random part of the rows, and start q where it would be best for all of them.

    .. math:: q(v) = N\big(B^{-1}A\Sigma^{-1}r,\; B^{-1}\big), \qquad B = I + A\Sigma^{-1}A^\top

    The sums over rows are those of the part, times n over its size. With all rows it is the optimum of q.

    Args:
        model: changed in place, left in train mode.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        num_rows: how many rows.
        max_steps: of L-BFGS.
        seed: which rows.

    Raises:
        ValueError: if ``num_rows`` is below one.

    Source:
        Titsias (2009), equation (10), for the optimum; Hensman, Fusi & Lawrence (2013), section 3.
    """
    if num_rows < 1:
        raise ValueError(f"num_rows: expected at least 1, got {num_rows}")
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:num_rows].to(inputs.device)
    closed = _closed_form(model, inputs[order], targets[order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start is cut off on purpose; the fit that follows warns
        fit_lbfgs(closed, max_steps=max_steps, seed=seed)
    with torch.no_grad():
        share = len(order) / len(inputs)
        statistics = SparseStatistics(*(field / share for field in closed.statistics()))
        mean, root = optimal_values(statistics)
        model.variational_strategy.variational_mean.copy_(mean)
        model.variational_strategy.raw_root.copy_(root)
    model.train()


def optimal_values(statistics: SparseStatistics) -> tuple[Tensor, Tensor]:
    """The best Gaussian over whitened inducing values.

    Args:
        statistics: sums over the observations.

    Returns:
        Its mean ``(m,)``, and the lower triangular root of its covariance ``(m, m)``.
    """
    covariance = torch.cholesky_inverse(sparse_condition(statistics).factor)
    return covariance @ statistics.projection, torch.linalg.cholesky(covariance)


def _closed_form(
    model: StochasticCorrelatedGPRegression, inputs: Tensor, targets: Tensor
) -> SparseCorrelatedGPRegression:
    """The sparse model of the same modules, so that what it learns the other has learned."""
    closed = SparseCorrelatedGPRegression(inputs, targets, model.num_processes, num_inducing=1, objective="vfe")
    closed.likelihood, closed.mean_module = model.likelihood, model.mean_module
    closed.covar_module, closed.features = model.covar_module, model.features
    return closed
