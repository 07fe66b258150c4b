"""What known totals tell of what they cover: a month of half-hourly fluxes by its sum, weeks of hours by their days."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp import CorrelatedGPImputer
from cgp.tables import KnownTotals
from cgp.tables.frames.table import read_table
from cgp.tables.transforms.choice import chosen_transforms
from experiments.studies.regression.problems import NORMAL, losses
from experiments.studies.regression.report import cached_row, write_results

__all__ = ["energy", "fluxes", "known"]

_FLUXES = ["NEE", "LE"]  # that a tower without power misses; the weather comes from a station
_WEATHER = ["Rg", "Tair"]
_METHODS = ("without", "with their sums")
_CUSTOMERS, _HOURS = 6, 1_500
_HIDDEN_DAYS = 28
_MIDNIGHTS = ("1998-01-01 00:30", "1999-01-01 00:00")


def known(data: Path, out: Path, months: Sequence[int] = tuple(range(2, 12)), transformed: bool = False) -> None:
    """Squared error and coverage of half-hours and of daily sums in hidden months of fluxes.

    The known total is that of the half-hours of the month that were measured: the others have no weight in it. Both
    fits have the same transforms.

    Args:
        data: folder with ``flux``.
        out: folder of tables and rows.
        months: numbers of the hidden months, one at a time.
        transformed: whether columns have the transforms that "auto" chooses without totals, or none.
    """
    rows = []
    for month in months:
        for has_totals in (False, True):
            key = {"month": month, "totals": has_totals, "transformed": transformed}
            row = cached_row(out / "known", key, partial(_row, data, month, has_totals, transformed))
            rows += [
                {"set": f"{name}, {part}", "window": month, "method": _METHODS[has_totals], **scores}
                for name, parts in row.pop("columns", {}).items()
                for part, scores in _by_part(parts).items()
            ]
    write_results(out, "known-totals", "Known totals", rows, ("set", "method"), ("smse", "coverage"))


def energy(data: Path, out: Path, customers: Sequence[int] = tuple(range(_CUSTOMERS))) -> None:
    """Squared error, NLL and coverage of four weeks of hours of a customer, with and without the sums of their days.

    Args:
        data: folder with ``series/electricity.txt``, by the hour, whose columns are customers.
        out: folder of tables and rows.
        customers: whose weeks are hidden, one at a time, beside the hours of the others, of the first six.
    """
    rows = []
    for customer in customers:
        for has_totals in (False, True):
            key = {"customer": customer, "totals": has_totals}
            row = cached_row(out / "energy", key, partial(_energy_row, data, customer, has_totals))
            rows.append(row | {"set": "electricity", "window": customer, "method": _METHODS[has_totals]})
    columns = ("smse", "nll", "coverage", "processor_seconds")
    write_results(out, "known-days", "Hours of known days", rows, ("set", "method"), columns)


def _energy_row(data: Path, customer: int, has_totals: bool) -> dict[str, float]:
    values = np.loadtxt(data / "series" / "electricity.txt", max_rows=_HOURS)[:, :_CUSTOMERS]
    complete = pd.DataFrame(values, index=pd.date_range("2012-01-01", periods=len(values), freq="h"))
    first = complete.index[0] + pd.Timedelta(days=10 + customer)
    gap = slice(first, first + pd.Timedelta(days=_HIDDEN_DAYS, hours=-1))
    truth, table = complete.loc[gap, customer], complete.copy()
    table.loc[gap, customer] = np.nan
    totals = {customer: truth.groupby(truth.index.to_period("D")).sum()} if has_totals else None
    imputer = CorrelatedGPImputer(random_state=0).fit(table, totals=totals)
    unit = complete[customer].std()
    error = (imputer.transform(table).loc[gap, customer] - truth).to_numpy() / unit
    sd = imputer.std_.loc[gap, customer].to_numpy() / unit
    inside = float(np.mean(np.abs(error) <= NORMAL * sd))
    return {"smse": float(np.mean(error**2)), "nll": float(losses(error, sd).mean()), "coverage": inside}


def _by_part(scores: dict[str, float]) -> dict[str, dict[str, float]]:
    """Scores of half-hours and of days."""
    return {
        "half-hours": {"smse": scores["squared_error"], "coverage": scores["coverage"]},
        "days": {"smse": scores["squared_error_of_days"], "coverage": scores["coverage_of_days"]},
    }


def fluxes(data: Path, columns: Sequence[str] = (*_FLUXES, *_WEATHER)) -> pd.DataFrame:
    """A year of fluxes and weather at Tharandt, by the half-hour that ends at its time."""
    path = data / "flux" / "Example_DETha98.txt.xz"
    table = pd.read_csv(path, sep="\t", lineterminator="\r", skiprows=[1], na_values=[-9999, -9999.0])
    times = pd.date_range(*_MIDNIGHTS, freq="30min")
    return table[list(columns)].iloc[: len(times)].set_index(times).astype(float)


def _row(data: Path, month: int, has_totals: bool, transformed: bool) -> dict[str, Any]:
    complete = fluxes(data)
    first = pd.Timestamp(1998, month, 1)
    span = pd.Interval(first, first + pd.offsets.MonthBegin(), closed="right")
    inside = np.array([time in span for time in complete.index])
    table = complete.copy()
    table.loc[inside, _FLUXES] = np.nan
    totals = None
    if has_totals:
        index = pd.IntervalIndex([span])
        sums = complete[inside][_FLUXES].sum()
        totals = {
            name: KnownTotals(pd.Series([sums[name]], index=index), weights=complete[name].notna().to_numpy() * 1.0)
            for name in _FLUXES
        }
    transforms = None
    if transformed:
        chosen = chosen_transforms("auto", read_table(table, None)[0])
        transforms = {table.columns[p]: chosen.kinds[p] for p in chosen.changed}
    imputer = CorrelatedGPImputer(transforms=transforms, random_state=0)
    filled, std = imputer.fit(table, totals=totals).transform(table), imputer.std_
    return {"columns": {name: _scores(imputer, name, complete, filled, std, inside) for name in _FLUXES}}


def _scores(
    imputer: CorrelatedGPImputer,
    name: str,
    complete: pd.DataFrame,
    filled: pd.DataFrame,
    std: pd.DataFrame,
    inside: Any,
) -> dict[str, float]:
    """Errors in units of the flux's variance: half-hours, and sums of days over the half-hours that were measured."""
    measured, unit = complete[name].notna(), complete[name].std()
    error = ((filled[name] - complete[name]) / unit)[inside & measured]
    days = (complete.index - pd.Timedelta("15min")).normalize()
    weights = measured.to_numpy(dtype=float)
    found = imputer.aggregate(pd.Series(days, index=complete.index), weights=weights)
    true, count = (each.groupby(days).sum() for each in (complete[name].fillna(0.0), measured))
    some = (count > 0) & pd.Series(inside, index=days).groupby(level=0).all()
    misses, errors = (
        (found.value[name].to_numpy() - true)[some],
        pd.Series(found.std[name].to_numpy(), true.index)[some],
    )
    whole = imputer.aggregate(np.where(inside, "hidden", "rest"), weights=weights)
    total = float(complete[name][inside].sum())
    spread = float(whole.std[name].iloc[0])
    return {
        "squared_error": float((error**2).mean()),
        "coverage": float((error.abs() * unit <= NORMAL * std[name][inside & measured]).mean()),
        "squared_error_of_days": float(((misses / count[some] / unit) ** 2).mean()),
        "coverage_of_days": float((misses.abs() <= NORMAL * errors).mean()),
        "sum_z": (float(whole.value[name].iloc[0]) - total) / spread if spread > 0 else 0.0,
    }
