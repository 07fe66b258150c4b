"""Totals of a file beside a table: which columns and periods they are of, for ``cgp fill --totals``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .terminal import say

__all__ = ["add_to", "read_totals"]

_PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
_BY_TEXT = (("%q", "Q"), ("%d", None), ("%m", "M"), ("%b", "M"), ("%B", "M"))  # the first that a form of times has


def add_to(fill: Any) -> None:
    """Add the flags of totals to those of filling."""
    group = fill.add_argument_group("what is known besides the table")
    group.add_argument(
        "--totals",
        type=Path,
        metavar="FILE",
        help="a table of sums of columns over periods, one in each row: what is filled adds up to them",
    )
    group.add_argument(
        "--totals-period",
        metavar="PERIOD",
        help=f"what a time in it stands for: {', '.join(_PERIODS)} (or frequency of pandas)",
    )
    group.add_argument("--totals-means", action="store_true", help="they are means instead of sums")


def read_totals(parsed: argparse.Namespace, table: Any) -> dict[str, Any]:
    """Totals by column, with what was understood said.

    Args:
        parsed: command line.
        table: the file that is filled.

    Returns:
        Options of ``CorrelatedGPImputer.fit``, none if there are no totals.

    Raises:
        ValueError: if the file does not fit the table.
    """
    if parsed.totals is None:
        return {}
    from cgp.tables.frames.files.options import as_flags
    from cgp.tables.frames.files.reading import read_table
    from cgp.tables.known import KnownTotals

    known = read_table(parsed.totals, dayfirst=parsed.dayfirst)
    say(f"{parsed.totals.name}\n{as_flags(known.understood.text)}")
    periods, frame = _periods(parsed, known), known.frame
    strange = [name for name in frame if name not in table.frame]
    if strange:
        raise ValueError(
            f"{parsed.totals.name}: expected columns of {parsed.table.name} that have values, {[*table.frame]}, "
            f"got {strange}"
        )
    sums = frame.set_axis(periods, axis=0)
    return {"totals": {name: KnownTotals(sums[name], mean=parsed.totals_means) for name in sums}}


def _periods(parsed: argparse.Namespace, known: Any) -> Any:
    """The periods that the times of a file stand for."""
    rows = known.pieces.rows
    if rows.times is None:
        raise ValueError(
            f"{parsed.totals.name}: expected rows with times, such as 2024-01, got {known.understood.rows}"
        )
    if parsed.totals_period is not None:
        frequency = _PERIODS.get(parsed.totals_period.lower(), parsed.totals_period)
    else:
        form = "".join(each.format for each in rows.forms)
        frequency = next((each for sign, each in _BY_TEXT if sign in form), None)
    if frequency is None:
        raise ValueError(
            f"{parsed.totals.name}: expected to know what {rows.forms[0].sample} stands for: "
            f"--totals-period {' or '.join(list(_PERIODS)[1:4])}, or another"
        )
    try:
        return known.frame.index.to_period(frequency)
    except ValueError as error:
        raise ValueError(f"--totals-period: expected one of {', '.join(_PERIODS)}, got {frequency!r}") from error
