r"""Months from quarters: a series that is known by quarters, beside an indicator that is known by months.

Protocol, written before the runs of the results page. Ten pairs of series of the United States, seasonally adjusted,
from the data of the Federal Reserve Bank of New York's nowcast that statsmodels has among its tests (July 2016, each
from its first month, whole quarters). The months of the first of a pair are hidden, their sums by quarters known.

Lines are lines between the sums of all quarters before, that is a third of its quarter for every month. Denton and
Cholette's months are the most even multiples of the indicator. Chow and Lin's are regression on the indicator and a
constant with errors

.. math:: u_t = \rho u_{t-1} + e_t, \qquad \hat y = X\hat\beta + V C^\top (C V C^\top)^{-1} (y_q - C X\hat\beta)

and Litterman's and Fernández's with :math:`\Delta u_t` in place of u and :math:`\rho = 0`; :math:`\rho` is that of
highest likelihood, the variance of what is not explained has the degrees of freedom of the coefficients taken off, and
the prediction variance is that of the best linear unbiased predictor. Ours is the default imputer, on the series as
they are.

Errors are in units of the standard deviation of months about the mean of their quarter: the squared error of lines
is 1.

Source:
    Chow & Lin (1971), Best linear unbiased interpolation, distribution and extrapolation of time series by related
    series, equations 2 to 12. Litterman (1983), A random walk, Markov model for the distribution of time series.
    Dagum & Cholette (2006), Benchmarking, temporal distribution, and reconciliation methods for time series, chapter 6.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, toeplitz
from scipy.optimize import minimize_scalar

from cgp import CorrelatedGPImputer
from cgp.comparisons import gaussian_scores
from experiments.studies.regression.problems import NORMAL, SITES, Array
from experiments.studies.regression.report import cached_row, with_peers, write_results

__all__ = ["DISAGGREGATORS", "PAIRS", "chow_lin", "denton", "disaggregation", "litterman", "quarterly_problem"]

_Months = tuple[Array, Array | None]  # means, and of some methods standard deviations
_OURS, _PEER = "cgp", "Chow-Lin"
_OF_A_QUARTER = 3
_LARGEST = 0.999  # correlation of neighbouring errors, as in tempdisagg of R
_FILE = "tsa/statespace/tests/results/frbny_nowcast/Nowcasting/data/US/2016-07-29.csv"

PAIRS: Mapping[str, tuple[str, str]] = {
    "industrial production by capacity utilisation": ("INDPRO", "TCU"),
    "retail sales by consumption": ("RSAFS", "PCEC96"),
    "housing starts by permits": ("HOUST", "PERMIT"),
    "new houses sold by housing starts": ("HSN1F", "HOUST"),
    "orders of durables by industrial production": ("DGORDER", "INDPRO"),
    "inventories by those of wholesale": ("BUSINV", "WHLSLRIMSA"),
    "exports by imports": ("BOPTEXP", "BOPTIMP"),
    "job openings by unemployment": ("JTSJOL", "UNRATE"),
    "construction by housing starts": ("TTLCONS", "HOUST"),
    "income by employment": ("DSPIC96", "PAYEMS"),
}
"""Name: series that is known by quarters, and its indicator."""


def disaggregation(out: Path, sets: Sequence[str] = (), methods: Sequence[str] = ()) -> None:
    """Months of ten series that are known by quarters: squared error, NLL, CRPS, coverage.

    Args:
        out: folder of tables and rows.
        sets: names of :data:`PAIRS`; none is all.
        methods: names of those to run; none is all.
    """
    rows = []
    for name in sets or PAIRS:
        truth, indicator = quarterly_problem(us_months(), *PAIRS[name])
        for method in methods or DISAGGREGATORS:
            key = {"set": name, "method": method}
            rows.append(cached_row(out / "disaggregation", key, partial(_row, truth, indicator, method)))
    rows = with_peers(rows, ("set",), dict.fromkeys(DISAGGREGATORS, _PEER))
    columns = ("smse", "nll", "ahead", "crps", "coverage", "processor_seconds")
    write_results(out, "regression-disaggregation", "Months from quarters", rows, ("set", "method"), columns)


def us_months() -> pd.DataFrame:
    """Monthly series of the United States, 1985 to 2016, of statsmodels' tests."""
    found = find_spec("statsmodels")
    if found is None or found.origin is None:
        raise ValueError("statsmodels: expected the package, whose tests have the series: pip install statsmodels")
    table = pd.read_csv(Path(found.origin).parent / _FILE, index_col=0)
    return table.set_axis(pd.to_datetime(table.index, format="%m/%d/%y").to_period("M"))


def quarterly_problem(table: pd.DataFrame, name: str, indicator: str) -> tuple[pd.Series, pd.Series]:
    """Months of a series and of its indicator, in the whole quarters in which both are known throughout."""
    both = table[[name, indicator]].dropna()
    quarters = both.index.asfreq("Q")
    whole = both.groupby(quarters)[name].transform("size").to_numpy() == _OF_A_QUARTER
    return both[name][whole], both[indicator][whole]


def _row(truth: pd.Series, indicator: pd.Series, method: str) -> dict[str, Any]:
    mean, sd = DISAGGREGATORS[method](truth.groupby(truth.index.asfreq("Q")).sum(), indicator)
    months = truth.to_numpy()
    unit = np.sqrt(np.mean((months.reshape(-1, _OF_A_QUARTER) - _thirds(months)) ** 2))
    error = (mean - months) / unit
    scores: dict[str, Any] = {"smse": float(np.mean(error**2))}
    if sd is None:
        return scores
    nll, crps = gaussian_scores(error, sd / unit)
    inside = float(np.mean(np.abs(error) <= NORMAL * sd / unit))
    return scores | {"nll": float(nll.mean()), "crps": float(crps.mean()), "coverage": inside, SITES: nll.tolist()}


def _thirds(months: Array) -> Array:
    return months.reshape(-1, _OF_A_QUARTER).mean(axis=1, keepdims=True)


def chow_lin(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """Regression on the indicator with errors of an autoregression."""
    return _best_unbiased(quarters, indicator, _autoregression)


def litterman(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """Regression on the indicator with errors that are the sum of an autoregression."""
    return _best_unbiased(quarters, indicator, _integrated)


def fernandez(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """Regression on the indicator with errors that are a random walk."""
    return _best_unbiased(quarters, indicator, lambda _, count: _integrated(0.0, count), chosen=0.0)


def denton(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """The most even multiples of the indicator."""
    count = len(indicator)
    weights = np.kron(np.eye(len(quarters)), np.ones(_OF_A_QUARTER)) * indicator.to_numpy()
    steps = np.diff(np.eye(count), axis=0)
    system = np.block([[steps.T @ steps, weights.T], [weights, np.zeros((len(weights),) * 2)]])
    right = np.concatenate([np.zeros(count), quarters.to_numpy()])
    return np.linalg.solve(system, right)[:count] * indicator.to_numpy(), None


def lines(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """Lines between the sums of all quarters before."""
    return np.repeat(quarters.to_numpy() / _OF_A_QUARTER, _OF_A_QUARTER), None


def cgp(quarters: pd.Series, indicator: pd.Series) -> _Months:
    """The default imputer."""
    table = pd.DataFrame({"series": np.nan, "indicator": indicator.to_numpy()}, index=indicator.index.to_timestamp())
    imputer = CorrelatedGPImputer(random_state=0).fit(table, totals={"series": quarters})
    return imputer.transform(table)["series"].to_numpy(), imputer.std_["series"].to_numpy()


def _autoregression(rho: float, count: int) -> Array:
    """Covariance of errors whose innovations have variance 1."""
    return toeplitz(rho ** np.arange(count)) / (1.0 - rho**2)


def _integrated(rho: float, count: int) -> Array:
    """Covariance of sums, from 0, of an autoregression that starts at 0."""
    lags = np.subtract.outer(np.arange(count), np.arange(count))
    root = np.cumsum(np.tril(float(rho) ** np.maximum(lags, 0)), axis=0)
    return root @ root.T


def _best_unbiased(
    quarters: pd.Series,
    indicator: pd.Series,
    covariance: Callable[[float, int], Array],
    chosen: float | None = None,
) -> _Months:
    """Means and standard deviations of months, with the correlation of highest likelihood, or a given one."""
    known, count = quarters.to_numpy(dtype=float), len(indicator)
    sums = np.kron(np.eye(len(known)), np.ones(_OF_A_QUARTER))
    features = np.column_stack([np.ones(count), indicator.to_numpy(dtype=float) / indicator.abs().mean()])

    def solved(rho: float) -> tuple[float, _Months]:
        errors = covariance(rho, count)
        across = errors @ sums.T
        factor = cho_factor(sums @ across, lower=True)
        summed = sums @ features
        weighted = cho_solve(factor, summed)
        precision = summed.T @ weighted
        coefficients = np.linalg.solve(precision, weighted.T @ known)
        rest = known - summed @ coefficients
        squares = float(rest @ cho_solve(factor, rest))
        loss = len(known) * np.log(squares / len(known)) + 2.0 * np.log(np.diag(factor[0])).sum()
        gains = cho_solve(factor, across.T).T
        free = features - gains @ summed
        variance = np.diag(errors) - np.sum(gains * across, axis=1)
        variance = variance + np.sum(free * np.linalg.solve(precision, free.T).T, axis=1)
        scale = squares / (len(known) - features.shape[1])
        return loss, (features @ coefficients + gains @ rest, np.sqrt(scale * variance.clip(0.0)))

    if chosen is None:
        found = minimize_scalar(lambda rho: solved(rho)[0], bounds=(0.0, _LARGEST), method="bounded")
        chosen = float(found.x)
    return solved(chosen)[1]


DISAGGREGATORS: Mapping[str, Callable[[pd.Series, pd.Series], _Months]] = {
    _OURS: cgp,
    _PEER: chow_lin,
    "Litterman": litterman,
    "Fernández": fernandez,
    "Denton-Cholette": denton,
    "lines": lines,
}
"""Months, with standard deviations if a method has them, from sums of quarters and an indicator."""
