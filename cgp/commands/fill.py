"""``cgp fill``: a table with gaps in, the same table without gaps out."""

from __future__ import annotations

import argparse
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from .terminal import check_extras, check_files, check_pictures, check_places, say, write_picture

__all__ = ["EXAMPLES", "add_to", "run"]

_LONG = 10.0  # seconds from which a user is told beforehand
EXAMPLES = """  cgp fill readings.csv --out filled.csv --picture gaps.png
  cgp fill soil.csv --inputs x y --out filled.csv --std errors.csv
  cgp fill logger.csv.gz --index Date Time --every 10min --out filled.csv
  cgp fill readings.csv --out filled.csv --assess scores.png
"""


def add_to(commands: Any) -> None:
    """Add the command's parser to the others."""
    fill = commands.add_parser("fill", help="fill the gaps of a table", description="Fill the gaps of a table.")
    fill.add_argument("table", type=Path, help="csv (also .gz, .bz2, .xz) or parquet, with a header")
    fill.add_argument("--out", type=Path, required=True, help="where the filled table is written, csv or parquet")
    fill.add_argument("--std", type=Path, help="where standard deviations are written: 0 for what was observed")
    fill.add_argument("--picture", type=Path, help="where a picture of gaps and fillings is written")
    fill.add_argument(
        "--assess",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="PICTURE",
        help="compare it with lines, ridge and others on hidden values, print the scores, and fill with the best",
    )
    where = fill.add_mutually_exclusive_group()
    where.add_argument(
        "--index",
        nargs="+",
        metavar="COLUMN",
        help="column with the times (or numbers) of the rows, or two, of dates and times of day; "
        "otherwise they are looked for",
    )
    where.add_argument("--inputs", nargs="+", metavar="COLUMN", help="columns that say where a row is, such as lat lon")
    fill.add_argument(
        "--missing",
        nargs="+",
        type=float,
        default=[],
        metavar="CODE",
        help="numbers such as -200 that stand for a missing value",
    )
    fill.add_argument(
        "--every", metavar="STEP", help="distance of the rows, such as 1h: rows that are not there are added"
    )
    fill.add_argument("--seed", type=int, default=0, help="of everything random (0)")


def run(parsed: argparse.Namespace) -> None:
    """Fill the table of a parsed command line."""
    _check(parsed)
    from .columns import usable_columns
    from .files import read_file, write_file

    names = usable_columns(read_file(parsed.table), parsed.index, parsed.inputs, parsed.missing, parsed.every)
    for text in names.notes:
        say(text)
    started = time.monotonic()
    from cgp.tables.imputer import CorrelatedGPImputer
    from cgp.tables.referee.comparison import comparison_seconds

    options: dict[str, Any] = {"inputs": names.inputs or None, "missing_values": [*parsed.missing, float("nan")]}
    imputer = CorrelatedGPImputer(**options, random_state=parsed.seed)
    seconds = imputer.estimate(names.frame).seconds
    if parsed.assess is not None:
        seconds += comparison_seconds(names.frame, imputer)
    if seconds > _LONG:
        say(f"about {seconds:.0f} s on one core")
    imputer = imputer.fit(names.frame) if parsed.assess is None else _best(imputer, names.frame, parsed.assess)
    filled, std = imputer.transform(names.frame), imputer.std_
    filled = filled.assign(**{name: _as_precise(filled[name], names.frame[name]) for name in std.columns})
    for path, values in ((parsed.out, filled), (parsed.std, std)):
        if path is not None:
            write_file(names.source.assign(**{name: values[name].to_numpy() for name in std.columns}), path)
    write_picture(lambda: imputer.plot()[0].figure, parsed.picture)
    seconds = time.monotonic() - started
    say(f"filled {names.gaps} values of {len(std.columns)} columns in {seconds:.0f} s: {parsed.out}")


def _as_precise(filled: Any, observed: Any) -> Any:
    """A column whose filled values have one decimal more than the observed ones: readings of 8.344 get no 15 digits."""
    exponents = (Decimal(repr(float(value))).normalize().as_tuple().exponent for value in observed.dropna().unique())
    decimals = max(1 - int(exponent) for exponent in exponents)
    return observed.where(observed.notna(), filled.round(max(decimals, 1)))


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    check_files([parsed.table])
    pictures = [path for path in (parsed.picture, parsed.assess) if path is not None and path.name]
    check_places([parsed.out, parsed.std, *pictures])
    check_pictures(pictures)
    check_extras({"pandas": "frames"} | ({"matplotlib": "plot"} if pictures else {}))
    from .files import check_kind

    for path in filter(None, (parsed.table, parsed.out, parsed.std)):
        check_kind(path)


def _best(imputer: Any, frame: Any, picture: Path) -> Any:
    """The imputer that the referee recommends, its report on the standard output stream."""
    from cgp.tables.referee.comparison import assess_gaps

    report = assess_gaps(frame, imputer)
    sys.stdout.write(f"{report}\n")
    write_picture(report.plot, picture if picture.name else None)
    return report.best()
