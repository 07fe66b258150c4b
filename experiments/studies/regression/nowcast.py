r"""A quarter's growth before it is published, from months that are: beside statsmodels' dynamic factor model.

Protocol, written before the runs of the results page. Gross domestic product of the United States by quarters, beside
employment, industrial production, retail sales and disposable income by months (the data of ``disaggregation``, as they
stood in July 2016). Asked are sixteen quarters, 2012 to 2015, each with the months of its three months and of the ten
years before, and the product until the quarter before. Scores are of its growth in per cent.

Ours takes logarithms; the product has no months, and its quarters are means of theirs. statsmodels'
``DynamicFactorMQ`` takes growth rates, one factor of one lag, and autoregressive errors, with its defaults; its
standard deviations are those of ``get_prediction``. "Mean growth" is that of the ten years, with its deviation.
"cgp, growth" was added when the others had been seen: growth rates, a quarter's as the sum of five months' in parts of
1/3, 2/3, 1, 2/3, 1/3 (Mariano & Murasawa, 2003, A new coincident index of business cycles, equation 3).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp import CorrelatedGPImputer
from cgp.comparisons import gaussian_scores
from cgp.regression.sums import Sums
from cgp.tables import KnownTotals
from cgp.tables.frames.table import read_table
from experiments.studies.regression.disaggregation import us_months
from experiments.studies.regression.problems import NORMAL
from experiments.studies.regression.report import cached_row, with_peers, write_results

__all__ = ["nowcast"]

_PRODUCT, _MONTHLY = "GDPC1", ("PAYEMS", "INDPRO", "RSAFS", "DSPIC96")
_QUARTERS = pd.period_range("2012Q1", "2015Q4", freq="Q")
_YEARS = 10
_PARTS = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 3.0


def nowcast(out: Path, methods: Sequence[str] = ()) -> None:
    """The growth of sixteen quarters, each from its months: squared error, NLL and coverage.

    Args:
        out: folder of tables and rows.
        methods: names of those to run; none is all.
    """
    rows = []
    for quarter in _QUARTERS:
        for method in methods or _METHODS:
            key = {"window": str(quarter), "method": method}
            row = cached_row(out / "nowcast", key, partial(_row, quarter, method))
            rows.append(row | {"set": "product of a quarter"})
    rows = with_peers(rows, ("set", "window"), dict.fromkeys(_METHODS, "statsmodels DynamicFactorMQ"))
    columns = ("rmse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "nowcast", "A quarter from its months", rows, ("set", "method"), columns)


def _row(quarter: pd.Period, method: str) -> dict[str, Any]:
    logs = 100.0 * np.log(us_months()[[_PRODUCT, *_MONTHLY]].astype(float))
    end = quarter.asfreq("M", "end")
    logs = logs.loc[end - 12 * _YEARS - 2 : end]
    quarters = logs[_PRODUCT].dropna()
    quarters = quarters.set_axis(quarters.index.asfreq("Q"))
    mean, sd = _METHODS[method](logs[list(_MONTHLY)], quarters.drop(quarter))
    error = np.array(mean - (quarters[quarter] - quarters[quarter - 1]))
    nll, _ = gaussian_scores(error, np.array(sd))
    inside = float(abs(error) <= NORMAL * sd)
    return {"error": float(error), "sd": float(sd), "rmse": float(abs(error)), "nll": float(nll), "coverage": inside}


def _cgp(months: pd.DataFrame, quarters: pd.Series) -> tuple[float, float]:
    """The default imputer on the logarithms, and the mean of the months of the quarter that follows."""
    table = months.set_axis(months.index.to_timestamp()).assign(**{_PRODUCT: np.nan})
    imputer = CorrelatedGPImputer(random_state=0).fit(table, totals={_PRODUCT: KnownTotals(quarters, mean=True)})
    is_asked = months.index.asfreq("Q") == quarters.index[-1] + 1
    found = imputer.aggregate(np.where(is_asked, "asked", "before"), "mean")
    return float(found.value.loc["asked", _PRODUCT] - quarters.iloc[-1]), float(found.std.loc["asked", _PRODUCT])


def _cgp_of_growth(months: pd.DataFrame, quarters: pd.Series) -> tuple[float, float]:
    """The default imputer on growth rates, and the weighted sum of the last five months."""
    growth = months.diff().iloc[1:]
    table = growth.set_axis(growth.index.to_timestamp()).assign(**{_PRODUCT: np.nan})
    numbers, _ = read_table(table, None)
    column, ends = table.columns.get_loc(_PRODUCT), {month: row for row, month in enumerate(growth.index)}
    known = {ends[quarter.asfreq("M", "end")]: value for quarter, value in quarters.diff().dropna().items()}
    known = {row: value for row, value in known.items() if row >= len(_PARTS) - 1}
    rows = np.concatenate([np.arange(row - len(_PARTS) + 1, row + 1) for row in known])
    count = len(known)
    totals = Sums(
        np.column_stack([numbers.inputs[rows, 0], np.full(len(rows), column)]),
        np.tile(_PARTS, count),
        np.repeat(np.arange(count), len(_PARTS)),
        np.array([*known.values()]),
        np.zeros(count),
        np.ones(count, dtype=bool),
        tuple(str(growth.index[row]) for row in known),
    )
    imputer = CorrelatedGPImputer(random_state=0).fit(table, totals=totals)
    is_asked = np.arange(len(table)) >= len(table) - len(_PARTS)
    weights = np.concatenate([np.zeros(len(table) - len(_PARTS)), _PARTS])
    found = imputer.aggregate(np.where(is_asked, "asked", "before"), weights=weights)
    return float(found.value.loc["asked", _PRODUCT]), float(found.std.loc["asked", _PRODUCT])


def _factors(months: pd.DataFrame, quarters: pd.Series) -> tuple[float, float]:
    """The dynamic factor model of statsmodels on growth rates."""
    api = import_module("statsmodels.tsa.api")
    growth = quarters.diff().dropna().to_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps of expectation maximisation
        fit = api.DynamicFactorMQ(months.diff().dropna(), endog_quarterly=growth).fit(disp=False)
        found = fit.get_prediction().summary_frame(endog=months.shape[1]).iloc[-1]
    return float(found["mean"]), float(found["mean_se"])


def _trend(months: pd.DataFrame, quarters: pd.Series) -> tuple[float, float]:
    growth = quarters.diff().dropna()
    return float(growth.mean()), float(growth.std())


_METHODS: Mapping[str, Callable[[pd.DataFrame, pd.Series], tuple[float, float]]] = {
    "cgp": _cgp,
    "cgp, growth": _cgp_of_growth,
    "statsmodels DynamicFactorMQ": _factors,
    "mean growth": _trend,
}
