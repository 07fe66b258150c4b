"""Regression of long series: many time scales, learned from windows, conditioned on in linear time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gpytorch.kernels import AdditiveKernel
from numpy.typing import NDArray
from torch import Tensor

from cgp.regression.covariances.cycles import strongest_periods
from cgp.regression.covariances.multiscale import multiscale_covariance, start_at_factors
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression
from cgp.regression.solvers.uncertain_loadings import UncertainLoadingsRegression

from .fitting import Fit, Progress
from .windows import WINDOW_OUTPUTS, fit_windows, pairwise_correlation, table_of

__all__ = [
    "LongSeries",
    "fit_long_series",
    "gross_errors",
    "is_long_series",
    "long_covariance",
    "num_windows",
    "periods_of",
]

Array = NDArray[np.float64]

_LONG = 2000  # observations
_KERNELS = ("matern12", "matern32", "matern52")
_SHORTEST = 2.0  # lengthscale of the first component, in median lags
_LONGEST = 0.05  # lengthscale of the last component, in units of the whole span
_ROWS_PER_FACTOR = 100  # with more, the uncertainty of loadings adds less than a hundredth to a variance
_TAIL = 0.005  # share on either side, outside the range that gross errors are compared with
_FAR = 20.0  # ranges


class LongSeries(NamedTuple):
    """Options of a long series.

    Attributes:
        kernel: canonical covariance, a Matérn kernel.
        num_components: number of time scales.
        num_factors: number of shared processes on each time scale.
        periods: periods of cycles, in standardised units of the input.
        num_steps: number of windows for learning, for every fifty outputs.
    """

    kernel: str = "matern32"
    num_components: int = 5
    num_factors: int = 3
    periods: Sequence[float] = ()
    num_steps: int = 500


def fit_long_series(
    rows: Tensor,
    targets: Tensor,
    num_processes: int,
    options: LongSeries,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[SeriesCorrelatedGPRegression, Fit]:
    """A model of many time scales with parameters learned from windows of the series.

    The initial lengthscales of the components range from two median lags to a twentieth of the whole span; the
    initial factors are the principal components of the outputs' correlation.

    Args:
        rows: standardised, ``(n, 2)``, the last column 0 … P-1.
        targets: standardised, ``(n,)``.
        num_processes: number P of processes.
        options: kernel, components, factors and cycles.
        seed: seed of the windows.
        progress: called with the number of the step and the loss.

    Returns:
        The model in eval mode, and the result of the fit.

    Example:
        >>> import torch
        >>> x = torch.linspace(-1.7, 1.7, 60, dtype=torch.float64)[:, None]
        >>> rows = torch.cat([x, torch.zeros_like(x)], dim=-1)
        >>> model, fit = fit_long_series(rows, (9 * x[:, 0]).sin(), 1, LongSeries(num_components=2, num_steps=20))
        >>> fit.steps
        20
    """
    table = table_of(rows, num_processes)
    covariance = long_covariance(table.inputs, num_processes, options)
    start_at_factors(covariance, pairwise_correlation(table, targets))
    is_short = len(table.inputs) < _ROWS_PER_FACTOR * _num_factors(covariance)
    kind = UncertainLoadingsRegression if is_short else SeriesCorrelatedGPRegression
    model = kind(rows, targets, num_processes, covar_module=covariance)
    fit = fit_windows(model, num_steps=num_windows(num_processes, options), seed=seed, progress=progress)
    if isinstance(model, UncertainLoadingsRegression):
        model.learn_uncertainty()
    return model, fit


def _num_factors(covariance: AdditiveKernel) -> int:
    """Number of shared processes of all components."""
    factors = (component.loadings.factors for component in covariance.kernels)
    return sum(each.shape[-1] for each in factors if each is not None)


def num_windows(num_processes: int, options: LongSeries) -> int:
    """Number of windows for learning."""
    return round(options.num_steps * max(num_processes / WINDOW_OUTPUTS, 1.0))


def long_covariance(inputs: Tensor, num_processes: int, options: LongSeries) -> AdditiveKernel:
    """The covariance over distinct standardised inputs ``(N,)`` in order, its time scales between lags and span."""
    lag, span = float(inputs.diff().median()), float(inputs[-1] - inputs[0])
    return multiscale_covariance(
        num_processes,
        _SHORTEST * lag,
        max(_LONGEST * span, _SHORTEST * lag),
        kernel=options.kernel,
        num_components=options.num_components,
        num_factors=options.num_factors if num_processes > 1 else 0,
        periods=options.periods,
    )


def is_long_series(x: Array, y: Array, arguments: Mapping[str, Any]) -> bool:
    """Whether a regressor with these arguments treats its observations as a series of many time scales.

    Args:
        x: inputs, ``(N, d)``.
        y: outputs, NaN where not observed, ``(N, P)``.
        arguments: arguments of the regressor.

    Returns:
        True if it is requested, by its name or by periods, or if there are more than 2,000 observations over one input
        and no argument requests otherwise.

    Raises:
        ValueError: if it is requested, but the data or another argument do not allow it.
        TypeError: if periods are given to another structure, which has none.
    """
    obstacles = {
        "X": _no_series(x),
        "kernel": _not_one_of(arguments["kernel"], (None, *_KERNELS)),
        "inference": _not_one_of(arguments["inference"], ("auto", "map")),
        "num_inducing": _not_one_of(arguments["num_inducing"], (None,)),
        "prior": _not_one_of(arguments.get("prior"), (None,)),
    }
    present = {name: obstacle for name, obstacle in obstacles.items() if obstacle is not None}
    structure, periods = arguments["structure"], arguments["periods"]
    has_periods = not isinstance(periods, str) and len(periods) > 0
    if has_periods and structure not in ("auto", "multiscale"):
        raise TypeError(
            f"periods: expected with structure='multiscale' or 'auto', got {periods!r} with {structure!r}, which does "
            "not use them"
        )
    if structure != "multiscale" and not has_periods:
        return structure == "auto" and not present and int((~np.isnan(y)).sum()) > _LONG
    for name, obstacle in present.items():
        raise ValueError(f"{name}: expected {obstacle}, for structure='multiscale' or periods")
    return True


def _no_series(x: Array) -> str | None:
    if x.shape[1] != 1:
        return f"one column, got {x.shape[1]}"
    return None if len(np.unique(x)) > 1 else "two distinct inputs or more, got one"


def _not_one_of(value: Any, allowed: tuple[Any, ...]) -> str | None:
    known = any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed)
    return None if known else f"one of {allowed}, got {value!r}"


def periods_of(x: Array, y: Array, periods: str | Sequence[float]) -> list[float]:
    """The given periods, or those of the strongest cycles for "auto".

    Args:
        x: inputs, ``(N, 1)``.
        y: outputs, NaN where not observed, ``(N, P)``.
        periods: periods in units of the input, or "auto".

    Returns:
        Periods in units of the input.

    Raises:
        ValueError: if they are neither.
    """
    if isinstance(periods, str):
        if periods != "auto":
            raise ValueError(f"periods: expected 'auto' or numbers, got {periods!r}")
        order = np.argsort(x[:, 0], kind="stable")
        return strongest_periods(x[order, 0], y[order])
    return [float(period) for period in periods]


def gross_errors(y: Array) -> NDArray[np.bool_]:
    """Values ``(n, P)`` whose distance from the middle 99 % of their output is twenty times the width of that range.

    Codes of failed sensors are such values. The check needs some hundred values of an output, and none of a constant
    output is flagged.

    Args:
        y: outputs, NaN for unobserved entries.

    Returns:
        Booleans in its shape.

    Warns:
        UserWarning: if there are any, with their number and the most extreme of each output.
    """
    low, high = np.nanquantile(y, [_TAIL, 1.0 - _TAIL], axis=0)
    width = np.where(high > low, high - low, np.inf)
    with np.errstate(invalid="ignore"):
        far = (y < low - _FAR * width) | (y > high + _FAR * width)
    if far.any():
        farthest = {
            int(p): float(f"{y[far[:, p], p][np.argmax(np.abs(y[far[:, p], p]))]:.6g}")
            for p in np.flatnonzero(far.any(0))
        }
        warnings.warn(
            f"y: {far.sum()} values are farther than {_FAR:g} times the width of the middle 99 % from all others and "
            f"are left out as errors of measurement; the farthest by output: {farthest}. If they are right, rescale "
            "the outputs, for example by their logarithm.",
            UserWarning,
            stacklevel=2,
        )
    return far
