"""The demo's table: the air over New York, of which weeks are hidden, filled, scored on what was hidden, drawn."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from experiments.atomic_files import write_atomically
from experiments.grids import Cell, Grid
from experiments.reports.figures import as_png

__all__ = ["Filling", "fill_air"]

AIR = Path(__file__).parents[2] / "docs" / "data" / "air.csv"

_DAYS = 7  # hidden at a time
_OF = 4  # one block in so many of each column, never in two columns at once
_LEVEL = 95
_NEAR = 3.0  # points from the level that some dozens of hidden weeks and days cannot tell from it


class Filling(NamedTuple):
    """What a table was, how well it was filled, and its picture."""

    what: str
    grid: Grid
    sentences: list[str]
    png: bytes


def fill_air(picture: Path, *, structure: str = "auto") -> Filling:
    """Fill the table that the README begins with, after hiding weeks of it, and draw it.

    Args:
        picture: file that is written.
        structure: of :class:`cgp.CorrelatedGPImputer`.
    """
    whole = _air()
    hidden = (np.arange(len(whole))[:, None] // _DAYS + np.arange(whole.shape[1])) % _OF == _OF // 2
    hidden &= whole.notna().to_numpy()
    table = whole.mask(hidden)
    imputer = CorrelatedGPImputer(structure=structure, random_state=0, verbose=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        filled = imputer.fit_transform(table)
    low, high = imputer.interval(_LEVEL / 100)
    inside = 100 * float(((low <= whole) & (whole <= high)).to_numpy()[hidden].mean())
    fillings = {
        "straight lines": LinearInterpolation().fit_transform(table),
        "ridge on the other columns": LaggedRidge().fit_transform(table),
        "cgp": filled,
    }
    png = _drawn(imputer)
    write_atomically(picture, partial(Path.write_bytes, data=png))
    sentences = [_held(inside), *(f"It warns: {each.message}" for each in caught)]
    what = f"{len(whole)} days of {whole.shape[1]} measurements of the air over New York, {hidden.sum()} values hidden"
    return Filling(what, _grid(fillings, whole, hidden, inside), sentences, png)


def _air() -> Any:
    """Ozone as a logarithm, sunlight, wind, temperature."""
    import pandas as pd

    air = pd.read_csv(AIR, comment="#", index_col="date", parse_dates=True)
    return air.assign(ozone=np.log(air["ozone"])).rename(columns={"ozone": "logarithm of ozone"})


def _drawn(imputer: CorrelatedGPImputer) -> bytes:
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    imputer.plot(figure)
    return as_png(figure, dpi=120)


def _grid(fillings: dict[str, Any], whole: Any, hidden: Any, inside: float) -> Grid:
    errors = {name: _error(filled, whole, hidden) for name, filled in fillings.items()}
    rows = [
        [
            Cell(name),
            Cell(f"{error:.3f}", error == min(errors.values())),
            Cell(f"{inside:.0f} %" if name == "cgp" else "–"),
        ]
        for name, error in errors.items()
    ]
    return Grid(["", "squared error / variance ↓", f"inside the {_LEVEL} % intervals"], rows)


def _held(inside: float) -> str:
    """What the share of hidden values inside their intervals says."""
    share = f"{inside:.0f} % of the hidden values are in their {_LEVEL} % intervals"
    if abs(inside - _LEVEL) <= _NEAR:
        return f"{share}, as they should be."
    if inside > _LEVEL:
        return f"{share}: the intervals are wider than they need be."
    return f"{share}: too narrow for these gaps. Those of cgp.assess_gaps are as wide as errors on hidden values were."


def _error(filled: Any, whole: Any, hidden: Any) -> float:
    """Mean squared error of hidden values, over the variance of their columns."""
    squared = (filled - whole).to_numpy() ** 2 / np.nanvar(whole.to_numpy(), axis=0)
    return float(squared[hidden].mean())
