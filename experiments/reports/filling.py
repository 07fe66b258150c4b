"""The table of the demo: share prices of which half-years are hidden, filled, scored on what was hidden, and drawn."""

import io
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import cbook
from matplotlib.figure import Figure

from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from experiments.atomic_files import write_atomically

__all__ = ["fill_prices"]

_COLUMNS = ["^GSPC", "^IXIC", "MSFT", "IBM"]
_MONTHS = 6  # hidden at a time
_OF = 4  # one block in so many of each column, never in two columns at once


def fill_prices(picture: Path, *, structure: str = "auto") -> list[str]:
    """Fill the table that comes with matplotlib, and draw it.

    Args:
        picture: file that is written.
        structure: of :class:`cgp.CorrelatedGPImputer`.

    Returns:
        Sentences: what was filled, how well, and what the imputer warns of.
    """
    whole = _prices()
    hidden = (np.arange(len(whole))[:, None] // _MONTHS + np.arange(len(_COLUMNS))) % _OF == _OF // 2
    table = whole.mask(hidden)
    imputer = CorrelatedGPImputer(structure=structure, random_state=0, verbose=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        filled = imputer.fit_transform(table)
    low, high = imputer.interval(0.95)
    inside = 100 * float(((low <= whole) & (whole <= high)).to_numpy()[hidden].mean())
    errors = {
        "cgp": _error(filled, whole, hidden),
        "ridge on the other columns": _error(LaggedRidge().fit_transform(table), whole, hidden),
        "straight lines": _error(LinearInterpolation().fit_transform(table), whole, hidden),
    }
    buffer = io.BytesIO()
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    imputer.plot(figure)
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(picture, partial(Path.write_bytes, data=buffer.getvalue()))
    numbers = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
    what = f"{len(whole)} months of {len(_COLUMNS)} share prices, {hidden.sum()} values hidden"
    return [
        f"A table, {what}, is filled: {picture}",
        f"Mean squared error over the variance: {numbers}; {inside:.0f} % of what was hidden is in the 95 % intervals.",
        *(f"The imputer warns: {each.message}" for each in caught if issubclass(each.category, UserWarning)),
    ]


def _prices() -> Any:
    """Logarithms of monthly prices, 2004 to 2011."""
    import pandas as pd

    path = str(cbook.get_sample_data("Stocks.csv", asfileobj=False))
    prices = pd.read_csv(path, comment="#", index_col="Date", parse_dates=True)
    return np.log(prices.loc["2004":"2011", _COLUMNS].dropna())


def _error(filled: Any, whole: Any, hidden: Any) -> float:
    """Mean squared error of hidden values, over the variance of their columns."""
    squared = (filled - whole).to_numpy() ** 2 / whole.to_numpy().var(axis=0)
    return float(squared[hidden].mean())
