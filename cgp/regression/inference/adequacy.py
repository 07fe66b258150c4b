"""Check that there are enough inducing inputs for the observations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.regression.covariances.correlation import spread
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.solvers.sparse import SparseCorrelatedGPRegression

__all__ = ["neighbour_noise", "unexplained_variance", "warn_of_unexplained"]

_LEAST_EXPLAINED = 0.9
_COMPARED, _AMONG = 2048, 8192
_ERRORS = 2.0  # standard errors added to the estimate from neighbours


def warn_of_unexplained(models: Sequence[RegressionModel]) -> None:
    """Warn where the inducing inputs are too few."""
    sparse = [model for model in models if isinstance(model, SparseCorrelatedGPRegression)]
    explained = min((1.0 - unexplained_variance(model) for model in sparse), default=1.0)
    if explained < _LEAST_EXPLAINED:
        warnings.warn(
            f"The {sparse[0].features.num_inducing} inducing inputs explain {max(explained, 0.0):.0%} of the variance "
            f"that is not noise (should be {_LEAST_EXPLAINED:.0%} or more): what varies faster is lost. Take more "
            "inducing inputs, or fewer rows.",
            ConvergenceWarning,
            stacklevel=2,
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


def neighbour_noise(rows: Tensor, targets: Tensor) -> Tensor:
    r"""An upper bound of the noise variance of one process by its nearest observations.

    .. math:: \gamma = \tfrac12\overline{(y_i - y_{n(i)})^2}

    plus two standard errors. Observations at different inputs differ by more than noise.

    Returns:
        The bound, a scalar.

    Source:
        Cressie (1993), Statistics for spatial data, section 2.4, on the semivariogram and its nugget.
    """
    numbers = torch.arange(len(rows), device=rows.device)
    x, y, number = spread(_COMPARED, rows, targets, numbers)
    others, values, other = spread(_AMONG, rows, targets, numbers)
    nearest = torch.cdist(x, others).masked_fill(number[:, None] == other, torch.inf).argmin(-1)
    halves = 0.5 * (y - values[nearest]).square()
    return halves.mean() + _ERRORS * halves.std() / len(halves) ** 0.5
