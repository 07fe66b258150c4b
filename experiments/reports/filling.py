"""The demo's table: the air over New York, of which weeks are hidden, filled, scored on what was hidden, drawn."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, DayLocator, date2num
from matplotlib.figure import Figure

from cgp.plotting.style import GREY, INK, PALETTE, as_png, style
from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from experiments.atomic_files import write_atomically
from experiments.grids import Cell, Grid

__all__ = ["Filling", "fill_air"]

AIR = Path(__file__).parents[2] / "docs" / "data" / "air.csv"

_UNITS = {"ozone": "ppb", "sunlight": "langley", "wind": "mph", "temperature": "°F"}
_TRANSFORMS = {"ozone": "log", "sunlight": "box-cox"}  # neither is ever below 0
_DAYS = 7  # hidden at a time
_OF = 4  # one block in so many of each column, never in two columns at once
_LEVEL = 95
_NEAR = 3.0  # points from the level that some dozens of hidden weeks and days cannot tell from it
_ERRORS = 2.0  # standard errors of a mean
_LINES, _OURS = "straight lines", "cgp"
_TRUE: dict[str, Any] = {"color": INK, "ls": "", "marker": "o", "mfc": "white", "ms": 4, "zorder": 3}
_TRUE |= {"label": "true, hidden"}


class Filling(NamedTuple):
    """What a table was, how well it was filled, and its pictures."""

    what: str
    errors: Grid
    held: str
    means: Grid
    known: str
    png: bytes  # the table, filled
    weeks: bytes  # hidden values beside what was filled


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
    imputer = CorrelatedGPImputer(structure=structure, transforms=_TRANSFORMS, random_state=0, verbose=False)
    fillings = {
        _LINES: LinearInterpolation().fit_transform(table),
        "ridge on the other columns": LaggedRidge().fit_transform(table),
        _OURS: imputer.fit_transform(table),
    }
    low, high = imputer.interval(_LEVEL / 100)
    inside = 100 * float(((low <= whole) & (whole <= high)).to_numpy()[hidden].mean())
    png = _drawn(imputer, whole.where(hidden))
    write_atomically(picture, partial(Path.write_bytes, data=png))
    what = f"{len(whole)} days of {', '.join(_UNITS)} over New York, {hidden.sum()} values hidden, a week at a time"
    weeks = _weeks(hidden, {"table": table, "whole": whole, "low": low, "high": high, **fillings})
    return Filling(what, _errors(fillings, whole, hidden), _held(inside), *_means(imputer, whole), png, weeks)


def _air() -> Any:
    """Ozone, sunlight, wind, temperature, with their units."""
    import pandas as pd

    air = pd.read_csv(AIR, comment="#", index_col="date", parse_dates=True)
    air.attrs["units"] = _UNITS
    return air


def _drawn(imputer: CorrelatedGPImputer, truth: Any) -> bytes:
    """The table, filled, with what was hidden."""
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    with style():
        columns = imputer.plot(figure)[1:]
        for ax, name in zip(columns, truth, strict=True):
            ax.plot(date2num(truth.index), truth[name], **_TRUE | {"ms": 2.5, "mew": 0.7})
        columns[0].legend(handles=columns[0].lines[-1:], loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
    return as_png(figure, 120)


def _errors(fillings: Mapping[str, Any], whole: Any, hidden: Any) -> Grid:
    """Mean distance of fills from hidden values, in the units of the columns."""
    means = {name: (filled - whole).abs().where(hidden).mean() for name, filled in fillings.items()}
    least = {column: min(errors[column] for errors in means.values()) for column in whole}
    rows = [
        [Cell(name), *(Cell(f"{errors[column]:.1f}", errors[column] == least[column]) for column in whole)]
        for name, errors in means.items()
    ]
    return Grid(["filled by", *whole], rows, f"Mean distance from the hidden values ({', '.join(_UNITS.values())})")


def _means(imputer: CorrelatedGPImputer, whole: Any) -> tuple[Grid, str]:
    """Means of months with the errors that gaps leave, and the true ones of columns without gaps of their own."""
    means, true = imputer.aggregate("MS", "mean"), whole.resample("MS").mean()
    known = [name for name in whole if whole[name].notna().all()]
    shown = [(name, source) for name in ("ozone", *known) for source in ("", "true")[: 1 + (name in known)]]
    rows = [
        [
            Cell(f"{month:%B}"),
            *(
                Cell(
                    f"{true[name][month]:.1f}"
                    if source
                    else f"{means.value[name][month]:.1f} ± {means.std[name][month]:.1f}"
                )
                for name, source in shown
            ),
        ]
        for month in true.index
    ]
    near = ((means.value - true).abs() <= _ERRORS * means.std)[known].to_numpy()
    words = f"{near.sum()} of the {near.size} means whose truth is known are within two errors of it."
    units = ", ".join(_UNITS[name] for name, source in shown if not source)
    title = f"Means of months ({units}), ± the standard error that the gaps leave"
    return Grid(["", *(source or name for name, source in shown)], rows, title), words


def _weeks(hidden: Any, frames: Mapping[str, Any]) -> bytes:
    """Of each column the hidden week in the middle of the table, and the weeks beside it."""
    with style():
        figure = Figure(figsize=(9.0, 4.6), layout="constrained")
        axes = figure.subplots(2, 2).flat
        for place, (name, ax) in enumerate(zip(frames["whole"], axes, strict=True)):
            days = np.flatnonzero(hidden[:, place])
            first = days[np.abs(days - len(hidden) / 2).argmin()] // _DAYS * _DAYS
            part = slice(max(first - _DAYS, 0), first + 2 * _DAYS)
            _week(ax, {title: frame[name].iloc[part] for title, frame in frames.items()})
            ax.set_title(f"{name} ({_UNITS[name]})", loc="left")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))
    return as_png(figure, 120)


def _week(ax: Axes, parts: Mapping[str, Any]) -> None:
    """One column: what was known, what was hidden, straight lines, the fill and its band."""
    missing = parts["table"].isna()
    bridge = missing | missing.shift(fill_value=False) | missing.shift(-1, fill_value=False)
    ax.plot(parts["table"], color=INK, marker="o", ms=2.5, lw=0.8, label="known")
    ax.plot(parts["whole"].where(missing), **_TRUE)
    ax.plot(parts[_LINES].where(bridge), color=GREY, ls="--", lw=0.9, label=_LINES)
    ax.plot(parts[_OURS].where(bridge), color=PALETTE[1], lw=1.4, label=f"filled by {_OURS}")
    band: dict[str, Any] = {"color": PALETTE[1], "alpha": 0.25, "lw": 0, "label": f"its {_LEVEL} % interval"}
    ax.fill_between(missing.index, parts["low"], parts["high"], where=bridge, **band)
    ax.xaxis.set_major_locator(DayLocator(interval=_DAYS // 2))
    ax.xaxis.set_major_formatter(DateFormatter("%d %b"))
    ax.spines[["top", "right"]].set_visible(False)


def _held(inside: float) -> str:
    """What the share of hidden values inside their intervals says."""
    share = f"{inside:.0f} % of the hidden values are in their {_LEVEL} % intervals"
    if abs(inside - _LEVEL) <= _NEAR:
        return f"{share}, as they should be."
    if inside > _LEVEL:
        return f"{share}: the intervals are wider than they need be."
    return f"{share}: too narrow for these gaps. Those of cgp.assess_gaps are as wide as errors on hidden values were."
