"""Tables of many columns: how many factors these share, and where a fit starts, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from cgp.functional.factor_models import FactorAnalysis, factor_analysis, factor_log_evidence
from cgp.kernels.base_kernels import base_gram
from cgp.regression.observations import paired_correlation

from .rows import principal_components

__all__ = ["WIDE", "FactorStart", "factor_start", "factors_by_scale"]

WIDE = 50  # outputs; a window of so many rows cannot have all of more
_SHORTEST, _LONGEST, _RANGE = 0.5, 0.05, 8.0  # lengthscale in rows, in units of all rows, and between the two at least
_COUNTS = (0, 1, 2, 3, 5, 8, 12, 20)
_SHARE = 4  # of the rows or outputs, in so many one factor at most
_LAGS = (0, 1, 2, 3, 5, 8, 12, 20, 32, 50)
_OWN = 2  # components of a column's own process
_LEAST = 0.02  # of a column's residual variance that its noise starts from
_ROWS = 2000  # that loadings are learned from to start with
_HIDDEN, _SEED = 0.1, 20_411  # a seed of which nobody else hides values
_WINDOWS, _WINDOW_ROWS, _WINDOW_OUTPUTS, _STRIDE = 8, 40, 100, 3

Array = NDArray[np.float64]


class FactorStart(NamedTuple):
    """Parameters of a model of factors and own processes of several lengthscales.

    Attributes:
        lengthscales: in rows, ``(C,)``.
        factors: loadings of those of each component, ``(P, R_c)``.
        own: variances of the columns' own processes, ``(C, P)``.
        noise: variances, ``(P,)``.
    """

    lengthscales: Tensor
    factors: list[Tensor]
    own: Tensor
    noise: Tensor

    def log_evidence(self, values: Tensor, rows: Tensor, kernel: Kernel) -> Tensor:
        """Of values ``(T, P)`` at some rows ``(T,)``."""
        grams = _grams(kernel, self.lengthscales, rows.to(values)[:, None])
        kinds = torch.arange(len(self.factors)).repeat_interleave(torch.tensor([f.shape[-1] for f in self.factors]))
        return factor_log_evidence(grams, (torch.cat(self.factors, dim=-1), kinds), self.own, self.noise, values)

    def of(self, outputs: Tensor) -> FactorStart:
        """That of some outputs."""
        factors = [each[outputs] for each in self.factors]
        return self._replace(factors=factors, own=self.own[:, outputs], noise=self.noise[outputs])


@torch.no_grad()
def factors_by_scale(values: Tensor, num_scales: int, kernel: Kernel) -> tuple[int, ...]:
    """The number of factors of each component, by the density of hidden values given the others, in windows.

    Args:
        values: in standardised units, rows in order, NaN where missing, ``(N, P)``.
        num_scales: number of components.
        kernel: the canonical covariance, of unit lengthscale.

    Returns:
        A number for each component.
    """
    hidden = torch.as_tensor(np.random.default_rng(_SEED).random(values.shape) < _HIDDEN)
    shown = torch.where(hidden, torch.nan, values)
    counts = [each for each in _COUNTS if each * _SHARE <= min(values.shape)]
    densities = [_density(factor_start(shown, each, num_scales, kernel), values, shown, kernel) for each in counts]
    best = counts[int(np.argmax(densities))]
    return tuple(each.shape[-1] for each in factor_start(values, best, num_scales, kernel).factors)


def _density(start: FactorStart, values: Tensor, shown: Tensor, kernel: Kernel) -> float:
    """Log-density of what is not shown, in windows."""
    generator, total, (count, outputs) = np.random.default_rng(_SEED), 0.0, values.shape
    length = min(_WINDOW_ROWS, count)
    for number in range(_WINDOWS):
        stride = _STRIDE if number % 2 and _STRIDE * length <= count else 1
        rows = int(generator.integers(count - stride * (length - 1))) + stride * torch.arange(length)
        some = torch.as_tensor(generator.permutation(outputs)[:_WINDOW_OUTPUTS])
        part = start.of(some)
        evidences = [part.log_evidence(each[rows][:, some], rows, kernel) for each in (values, shown)]
        total += float(evidences[0] - evidences[1])
    return total


@torch.no_grad()
def factor_start(values: Tensor, num_factors: int | Sequence[int], num_scales: int, kernel: Kernel) -> FactorStart:
    """Loadings by factor analysis; time scales from the autocovariances of the factors and of what they leave.

    Each factor is in the component that its autocorrelation is nearest to, each column has own processes in at most
    two components.

    Args:
        values: in standardised units, rows in order, NaN where missing, ``(N, P)``.
        num_factors: R, or the largest number of factors in each component.
        num_scales: number C of components.
        kernel: the canonical covariance, of unit lengthscale.

    Returns:
        All parameters.
    """
    rank = num_factors if isinstance(num_factors, int) else sum(num_factors)
    room = [rank] * num_scales if isinstance(num_factors, int) else list(num_factors)
    longest = max(_LONGEST * len(values), _RANGE * _SHORTEST)
    lengthscales = torch.logspace(np.log10(_SHORTEST), np.log10(longest), num_scales, dtype=torch.float64)
    lags = torch.tensor([lag for lag in _LAGS if 3 * lag < len(values)], dtype=torch.float64)
    shapes = _grams(kernel, lengthscales, lags[:, None])[:, 0].mT.numpy()  # (H, C)
    analysis = _analysis(values, rank)
    scores, _ = analysis.scores(values)
    kinds = _nearest(_autocovariances(scores, lags), shapes, room)
    left = values - scores @ analysis.loadings.mT
    own, noise = _own_processes(_autocovariances(left, lags), shapes)
    factors = [analysis.loadings[:, torch.as_tensor(kinds == c)] for c in range(num_scales)]
    return FactorStart(lengthscales, factors, torch.as_tensor(own), torch.as_tensor(noise))


def _grams(kernel: Kernel, lengthscales: Tensor, x: Tensor) -> Tensor:
    """Covariances ``(C, T, T)`` of inputs ``(T, 1)``."""
    return torch.stack([base_gram(kernel, x / each, x / each) for each in lengthscales])


def _analysis(values: Tensor, rank: int) -> FactorAnalysis:
    some = values[:: -(-len(values) // _ROWS)]
    start = principal_components(paired_correlation(some))[:, :rank]
    return factor_analysis(some, start)


def _autocovariances(values: Tensor, lags: Tensor) -> Array:
    """Mean products of each column ``(N, R)`` at lags, 0 where there are none, ``(H, R)``."""
    count = len(values)
    products = [(values[: count - lag] * values[lag:]).nanmean(0) for lag in lags.long().tolist()]
    return np.asarray(torch.stack(products).nan_to_num(0.0).numpy())


def _nearest(covariances: Array, shapes: Array, room: list[int]) -> NDArray[np.int64]:
    """The component of each factor, ``(R,)``: that whose covariance is most alike, if it has room."""
    kinds, left = np.zeros(covariances.shape[-1], dtype=np.int64), list(room)
    for number, column in enumerate(covariances.T):
        errors = np.square(shapes - column[:, None] / column[0]).sum(0)
        kinds[number] = next(kind for kind in np.argsort(errors) if left[kind])
        left[kinds[number]] -= 1
    return kinds


def _own_processes(covariances: Array, shapes: Array) -> tuple[Array, Array]:
    """Variances of the own processes ``(C, P)`` and of the noise ``(P,)``, by least squares over two components."""
    count, outputs = shapes.shape[-1], covariances.shape[-1]
    own, noise, nugget = np.zeros((count, outputs)), np.zeros(outputs), np.eye(len(shapes))[:, :1]
    for p, column in enumerate(covariances.T):
        fits = {pair: nnls(np.hstack([shapes[:, pair], nugget]), column) for pair in combinations(range(count), _OWN)}
        pair = min(fits, key=lambda each: fits[each][1])
        own[list(pair), p], noise[p] = fits[pair][0][:-1], fits[pair][0][-1]
    return own, np.maximum(noise, _LEAST * np.maximum(covariances[0], _LEAST**2))
