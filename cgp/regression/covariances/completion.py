"""The covariance of columns with gaps, by EM, and how much it is shrunk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import cholesky

__all__ = ["RIDGES", "Completion", "Ridge", "completed", "ridge_by_hidden_stretches"]

_ROWS, _JITTER = 500, 1e-9
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
def completed(rows: Tensor, ridge: float = 0.0, num_steps: int = 40) -> Completion:
    r"""The most likely mean and covariance of columns with gaps, normal and independent between rows, by EM.

    .. math:: \Sigma \leftarrow \frac{1}{1 + a}\Big(\frac1N \sum_t \operatorname E\big[(y_t - m)(y_t - m)^\top
        \mid y_{t, O_t}\big] + a I\Big), \qquad m \leftarrow \frac1N\sum_t \operatorname E[y_t \mid y_{t, O_t}]

    Unlike pairs, it knows of what a column shows in some rows only how it would vary in all.

    Args:
        rows: in standardised units, NaN where missing, ``(N, P)``; at most five hundred of them, evenly spaced.
        ridge: a, in units of the variances.
        num_steps: of EM.

    Returns:
        Of the last step.

    Source:
        Dempster, Laird & Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm, section 4.1.
    """
    rows = rows[:: -(-len(rows) // _ROWS)]
    seen, which, counts = (~rows.isnan()).unique(dim=0, return_inverse=True, return_counts=True)
    seen, eye = seen.to(rows), torch.eye(rows.shape[-1]).to(rows)
    both, y = seen.unsqueeze(-1) * seen.unsqueeze(-2), rows.nan_to_num()
    mean, covariance = rows.new_zeros(rows.shape[-1]), eye
    for _ in range(num_steps):
        root = cholesky(covariance * both + torch.diag_embed(1.0 - seen), name="covariance of a row", jitter=_JITTER)
        inverse = torch.cholesky_inverse(root) * both
        filled = mean + (inverse[which] @ ((y - mean) * seen[which]).unsqueeze(-1)).squeeze(-1) @ covariance
        left = len(rows) * covariance - covariance @ (counts[:, None, None] * inverse).sum(0) @ covariance
        mean = filled.mean(0)
        covariance = ((filled - mean).mT @ (filled - mean) + left) / len(rows)
        covariance = (0.5 * (covariance + covariance.mT) + ridge * eye) / (1.0 + ridge)
    return Completion(filled, mean, covariance)


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
        for number, ridge in enumerate(ridges):
            errors[number] += _squares(rows - completed(shown, ridge).values, hidden)
    if not (around_mean > 0.0).any():
        return Ridge(ridges[-1], 1.0)
    ratios = (errors / around_mean)[:, around_mean > 0.0].log().mean(-1)
    near = (ratios <= ratios.min() + math.log(_NEAR)).nonzero()[0]
    return Ridge(ridges[int(near)], float(ratios.min().exp()))


def _squares(errors: Tensor, hidden: Tensor) -> Tensor:
    return torch.where(hidden, errors.square(), 0.0).sum(0)
