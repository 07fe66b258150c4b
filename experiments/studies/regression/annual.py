r"""Annual sums of carbon dioxide with gaps: how often the true sum is in its 95 % interval.

Protocol, written before the runs of the results page. A year of half-hourly net exchange (NEE) at Tharandt beside
radiation, temperature and the deficit of vapour, which have few gaps. Of the half-hours that were measured (64 % of the
year) a share is hidden, in gaps of 1, 8, 64 and 576 half-hours with as many values in each class (Moffat et al. 2007);
the sum asked is that of the measured ones, which is known. Shares are 30, 45 and 60 %, in turns.

Ours is the default imputer without transforms. It is fitted to the first masking of a share; each other one stands
twenty years later in the same table, so far away that the year that was fitted says nothing of it, and is taken in by
``update``: its parameters were learned from another masking of the same year. Marginal distribution sampling takes the
mean of the values at similar radiation, temperature and deficit of vapour within a week, two, and so on, and its random
uncertainty is that of independent errors with the standard deviation of these values. Ridge is Bayesian regression on
the three at, before and after the half-hour; the variance of a sum is that of its coefficients and of independent
errors.

Source:
    Reichstein et al. (2005), On the separation of net ecosystem exchange, appendix A. Wutzler et al. (2018), Basic and
    extensible post-processing of eddy covariance flux data with REddyProc. Moffat et al. (2007), Comprehensive
    comparison of gap-filling techniques.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import BayesianRidge

from cgp import CorrelatedGPImputer
from experiments.studies.regression.known import fluxes
from experiments.studies.regression.problems import NORMAL, Array
from experiments.studies.regression.report import cached_row, write_results

__all__ = ["annual", "marginal_sampling", "with_flux_gaps"]

_FLUX, _DRIVERS = "NEE", ("Rg", "Tair", "VPD")
_TOLERANCES = (50.0, 2.5, 5.0)  # W/m², °C, hPa
_LEAST_RADIATION = 20.0
_LENGTHS = (1, 8, 64, 576)
_SHARES = (0.3, 0.45, 0.6)
_DAY = 48
_LATER = pd.DateOffset(years=20)
_GRAMS = 1800 * 12e-6  # of carbon in a half-hour of 1 µmol/s


class Sum(NamedTuple):
    """A sum and its standard error, in grams of carbon for a square metre."""

    total: float
    error: float


def annual(data: Path, out: Path, maskings: int = 100) -> None:
    """Annual sums of a flux with 30 to 60 % of its values hidden: error, standard error, coverage.

    Args:
        data: folder with ``flux``.
        out: folder of tables and rows.
        maskings: how many, a third of each share.
    """
    rows = []
    for masking in range(maskings):
        share = _SHARES[masking % len(_SHARES)]
        for method, sum_of in _METHODS.items():
            key = {"missing": share, "window": masking, "method": method}
            rows.append(cached_row(out / "annual", key, partial(_row, data, out / "annual" / "fits", key, sum_of)))
    rows = [row | {"missing": f"{row['missing']:.0%}"} for row in rows]
    columns = ("rmse", "error", "coverage", "processor_seconds")
    write_results(out, "regression-annual", "Annual sums of a flux", rows, ("missing", "method"), columns)


def _row(data: Path, fits: Path, key: dict[str, Any], sum_of: Callable[..., Sum]) -> dict[str, float]:
    """The error of the sum of what is hidden, its standard error, and whether it is in its interval."""
    table = fluxes(data, (_FLUX, *_DRIVERS))
    hidden = with_flux_gaps(table[_FLUX].to_numpy(), key["missing"], seed=key["window"])
    truth = float(table[_FLUX][hidden].sum())
    found = sum_of(table.assign(**{_FLUX: table[_FLUX].mask(hidden)}), hidden, fits / str(key["missing"]))
    miss, error = _GRAMS * (found.total - truth), _GRAMS * found.error
    return {"miss": miss, "error": error, "rmse": abs(miss), "coverage": float(abs(miss) <= NORMAL * error)}


def with_flux_gaps(values: Array, share: float, seed: int) -> NDArray[np.bool_]:
    """Which of the known values ``(n,)`` are hidden: gaps of four lengths that do not overlap, a quarter of each."""
    generator = np.random.default_rng(seed)
    known = ~np.isnan(values)
    hidden = np.zeros_like(known)
    for part, length in enumerate(reversed(_LENGTHS), start=1):
        while hidden.sum() < share * known.sum() * part / len(_LENGTHS):
            first = int(generator.integers(len(values) - length + 1))
            gap = slice(first, first + length)
            if not hidden[gap].any():
                hidden[gap] = known[gap]
    return hidden


def gp_sum(table: pd.DataFrame, hidden: NDArray[np.bool_], fitted: Path) -> Sum:
    """By the imputer, whose parameters are learned once and kept in a folder."""
    if not fitted.exists():
        imputer = CorrelatedGPImputer(transforms=None, random_state=0).fit(table)
        imputer.save(fitted)
        return _sum_of(imputer, hidden)
    imputer = CorrelatedGPImputer.load(fitted).update(table.set_axis(table.index + _LATER))
    return _sum_of(imputer, np.concatenate([np.zeros_like(hidden), hidden]))


def _sum_of(imputer: CorrelatedGPImputer, hidden: NDArray[np.bool_]) -> Sum:
    """The sum of what is hidden."""
    weights = np.zeros((len(hidden), 1 + len(_DRIVERS)))
    weights[hidden, 0] = 1.0
    found = imputer.aggregate(weights=weights)
    return Sum(float(found.value[_FLUX].iloc[0]), float(found.std[_FLUX].iloc[0]))


def ridge_sum(table: pd.DataFrame, hidden: NDArray[np.bool_], _: Path) -> Sum:
    """By Bayesian ridge regression on the drivers at two rows before to two rows after."""
    drivers = table[list(_DRIVERS)].interpolate(limit_direction="both")
    features = np.column_stack([drivers.shift(lag).bfill().ffill().to_numpy() for lag in range(-2, 3)])
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    flux = table[_FLUX].to_numpy()
    ridge = BayesianRidge().fit(features[~np.isnan(flux)], flux[~np.isnan(flux)])
    total = features[hidden].sum(axis=0)
    variance = total @ ridge.sigma_ @ total + hidden.sum() / ridge.alpha_
    return Sum(float(ridge.predict(features[hidden]).sum()), float(np.sqrt(variance)))


def marginal_sum(table: pd.DataFrame, hidden: NDArray[np.bool_], _: Path) -> Sum:
    """By marginal distribution sampling."""
    mean, sd = marginal_sampling(table[_FLUX].to_numpy(), table[list(_DRIVERS)].to_numpy(), np.flatnonzero(hidden))
    return Sum(float(mean.sum()), float(np.sqrt(np.square(sd).sum())))


def marginal_sampling(flux: Array, drivers: Array, rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """Marginal distribution sampling, half-hourly, in the order of REddyProc.

    Args:
        flux: ``(n,)``, NaN where missing.
        drivers: radiation, temperature and deficit of vapour, ``(n, 3)``, NaN where missing.
        rows: that are asked.

    Returns:
        Means and standard deviations of similar values, of the rows; NaN where there are fewer than two.
    """
    steps = [partial(_similar, columns=(0, 1, 2), days=days) for days in (7, 14)]
    steps += [partial(_similar, columns=(0,), days=7)]
    steps += [partial(_at_the_hour, days=days) for days in (0, 1, 2)]
    steps += [partial(_similar, columns=(0, 1, 2), days=days) for days in range(21, 71, 7)]
    steps += [partial(_similar, columns=(0,), days=days) for days in range(14, 71, 7)]
    steps += [partial(_at_the_hour, days=days) for days in range(7, 211, 7)]
    result = np.full((len(rows), 2), np.nan)
    for place, row in enumerate(rows):
        for step in steps:
            values = step(flux, drivers, row)
            if len(values) > 1:
                result[place] = values.mean(), values.std(ddof=1)
                break
    return result[:, 0], result[:, 1]


def _similar(flux: Array, drivers: Array, row: int, columns: Sequence[int], days: int) -> Array:
    """Values within some days whose drivers are similar."""
    window = slice(max(row - days * _DAY, 0), row + days * _DAY + 1)
    alike = ~np.isnan(flux[window])
    for column in columns:
        here, tolerance = drivers[row, column], _TOLERANCES[column]
        if column == 0:
            tolerance = np.clip(here, _LEAST_RADIATION, tolerance)
        alike &= np.abs(drivers[window, column] - here) < tolerance
    return flux[window][alike]


def _at_the_hour(flux: Array, drivers: Array, row: int, days: int) -> Array:
    """Values within some days and an hour of the time of day."""
    rows = (row + _DAY * np.arange(-days, days + 1)[:, None] + np.arange(-2, 3)).reshape(-1)
    values = flux[rows[(rows >= 0) & (rows < len(flux))]]
    return values[~np.isnan(values)]


_METHODS: Mapping[str, Callable[[pd.DataFrame, NDArray[np.bool_], Path], Sum]] = {
    "cgp": gp_sum,
    "marginal distribution sampling": marginal_sum,
    "ridge": ridge_sum,
}
