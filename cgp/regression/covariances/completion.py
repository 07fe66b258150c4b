"""The covariance of columns with gaps, by EM, and how much it is shrunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import cholesky, log_determinant

__all__ = ["RIDGES", "Completion", "Ridge", "completed", "ridge_by_hidden_stretches"]

_ROWS, _JITTER = 500, 1e-9
_STEPS, _GROWTH, _SLACK = 200, 4.0, 1.0  # of EM, in threes
_CELLS = 10_000  # of rows by which a ridge is chosen
RIDGES = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
"""Ridges that hidden stretches choose from."""

_FOLDS, _NEAR = 4, 1.02


class Completion(NamedTuple):
    """Rows of a normal law, with its parameters.

    Attributes:
        values: with the expected ones where there were none, ``(N, P)``.
        mean: ``(P,)``.
        covariance: ``(P, P)``.
    """

    values: Tensor
    mean: Tensor
    covariance: Tensor


class Ridge(NamedTuple):
    """The ridge of a covariance by EM that is best for hidden stretches.

    Attributes:
        value: a, in units of the variances.
        left: how much of a column's variance the others leave there, a geometric mean over columns.
    """

    value: float
    left: float


@torch.no_grad()
def completed(rows: Tensor, ridge: float = 0.0, tolerance: float = 1e-5, start: Completion | None = None) -> Completion:
    r"""The most likely mean and covariance of columns with gaps, normal and independent between rows, by EM.

    .. math:: \Sigma \leftarrow \frac{1}{1 + a}\Big(\frac1N \sum_t \operatorname E\big[(y_t - m)(y_t - m)^\top
        \mid y_{t, O_t}\big] + a I\Big), \qquad m \leftarrow \frac1N\sum_t \operatorname E[y_t \mid y_{t, O_t}]

    Unlike pairs, it knows of what a column shows in some rows only how it would vary in all. The fewer values a column
    has, the shorter are EM's steps: every two of them are extrapolated.

    Args:
        rows: in standardised units, NaN where missing, ``(N, P)``; at most five hundred of them, evenly spaced.
        ridge: a, in units of the variances.
        tolerance: by how much a last step of EM may change the values, root mean square.
        start: whose mean and covariance the first step begins with; None are zeros and the identity.

    Returns:
        Of the last step.

    Source:
        Dempster, Laird & Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm, section 4.1;
        Varadhan & Roland (2008), Simple and globally convergent methods for accelerating the convergence of any EM
        algorithm, scheme S3.
    """
    rows = rows[:: -(-len(rows) // _ROWS)]
    seen, which, counts = (~rows.isnan()).unique(dim=0, return_inverse=True, return_counts=True)
    seen, eye = seen.to(rows), torch.eye(rows.shape[-1]).to(rows)
    both, y = seen.unsqueeze(-1) * seen.unsqueeze(-2), rows.nan_to_num()

    def step(at: Tensor) -> _Step:
        mean, root = _mean_and_root(at)
        covariance = root @ root.mT
        roots = cholesky(covariance * both + torch.diag_embed(1.0 - seen), name="covariance of a row", jitter=_JITTER)
        inverse = torch.cholesky_inverse(roots) * both
        residuals = (y - mean) * seen[which]
        weights = (inverse[which] @ residuals.unsqueeze(-1)).squeeze(-1)
        prior = ridge * len(rows) * (log_determinant(root) + torch.cholesky_inverse(root).trace())
        loss = (residuals * weights).sum() + counts.to(rows) @ log_determinant(roots) + prior
        filled = mean + weights @ covariance
        left = len(rows) * covariance - covariance @ (counts[:, None, None] * inverse).sum(0) @ covariance
        mean = filled.mean(0)
        covariance = ((filled - mean).mT @ (filled - mean) + left) / len(rows)
        covariance = (0.5 * (covariance + covariance.mT) + ridge * eye) / (1.0 + ridge)
        return _Step(filled, _law(mean, covariance), 0.5 * loss)

    first = _law(eye.new_zeros(len(eye)), eye) if start is None else _law(start.mean, start.covariance)
    last = _extrapolated(step, first, tolerance)
    mean, root = _mean_and_root(last.law)
    return Completion(last.values, mean, root @ root.mT)


class _Step(NamedTuple):
    """A step of EM.

    Attributes:
        values: that it expects, ``(N, P)``.
        law: the mean above the covariance's Cholesky factor with the logarithm of its diagonal, ``(1 + P, P)``.
        loss: the negative logarithm of the posterior density of the law where it began, but for a constant.
    """

    values: Tensor
    law: Tensor
    loss: Tensor


def _law(mean: Tensor, covariance: Tensor) -> Tensor:
    root = cholesky(covariance, name="covariance of columns", jitter=_JITTER)
    return torch.cat([mean.unsqueeze(0), root.tril(-1) + root.diagonal().log().diag()])


def _mean_and_root(law: Tensor) -> tuple[Tensor, Tensor]:
    mean, root = law[0], law[1:]
    return mean, root.tril(-1) + root.diagonal().exp().diag()


def _extrapolated(step: Callable[[Tensor], _Step], law: Tensor, tolerance: float) -> _Step:
    """The last of EM's steps, of which every two are extrapolated, and taken back where that is a loss of a nat."""
    reach, back = 1.0, None
    for _ in range(_STEPS):
        first = step(law)
        if back is not None and not first.loss < back.loss + _SLACK:
            law, reach, back = back.law, max(reach / _GROWTH, 1.0), None
            continue
        second = step(first.law)
        if (second.values - first.values).square().mean() < tolerance**2:
            break
        change, bend = first.law - law, second.law - 2.0 * first.law + law
        length = min(max(float(change.norm() / bend.norm()), 1.0), reach)
        reach = _GROWTH * reach if length == reach else reach
        law, back = step(law + 2.0 * length * change + length**2 * bend).law, second
    return second


@torch.no_grad()
def ridge_by_hidden_stretches(rows: Tensor, ridges: Sequence[float] = RIDGES) -> Ridge:
    r"""The ridge of a covariance by EM whose rows are nearest to a quarter of each column, one piece, that is hidden.

    .. math:: r(a) = \prod_p \bigg(\frac{\sum_{k \le 4} \sum_{t \in H_{kp}}
        \big(y_{tp} - \operatorname E_a[y_{tp} \mid y_{t, O_t \setminus H_k}]\big)^2}
        {\sum_{k \le 4} \sum_{t \in H_{kp}} (y_{tp} - \bar y_{p \setminus H_k})^2}\bigg)^{1/P}

    The quarters of successive columns follow each other, as gaps do that are filled from other columns. Columns that
    others determine count as much as those that none is near to.

    Args:
        rows: in standardised units and in order, NaN where missing, ``(N, P)``; at most five hundred, of 10,000
            cells, are used.
        ridges: those that are compared, in increasing order.

    Returns:
        The smallest whose r is within a fiftieth of the least, and the least r. Where that is not below 1, as of
        constant columns, means are as near.
    """
    rows = rows[:: max(-(-len(rows) // _ROWS), -(-rows.numel() // _CELLS))]
    errors, around_mean = rows.new_zeros(len(ridges), rows.shape[1]), rows.new_zeros(rows.shape[1])
    for fold in range(_FOLDS):
        hidden = torch.zeros_like(rows, dtype=torch.bool)
        for p, column in enumerate(rows.T):
            (known,) = (~column.isnan()).nonzero(as_tuple=True)
            hidden[known.tensor_split(_FOLDS)[(p + fold) % _FOLDS], p] = True
        shown = rows.masked_fill(hidden, torch.nan)
        around_mean += _squares(rows - shown.nanmean(0).nan_to_num(), hidden)
        found = None
        for number in reversed(range(len(ridges))):  # the larger, the fewer steps
            found = completed(shown, ridges[number], start=found)
            errors[number] += _squares(rows - found.values, hidden)
    if not (around_mean > 0.0).any():
        return Ridge(ridges[-1], 1.0)
    ratios = (errors / around_mean)[:, around_mean > 0.0].log().mean(-1)
    near = (ratios <= ratios.min() + math.log(_NEAR)).nonzero()[0]
    return Ridge(ridges[int(near)], float(ratios.min().exp()))


def _squares(errors: Tensor, hidden: Tensor) -> Tensor:
    return torch.where(hidden, errors.square(), 0.0).sum(0)
