"""``cgp fill``: a table with gaps in, the same table without gaps out."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from cgp.spelling import counted, meant

from . import answers
from .terminal import (
    check_extras,
    check_files,
    check_pictures,
    check_places,
    folded,
    in_flags,
    said_seconds,
    said_together,
    say,
    write_picture,
)

__all__ = ["EXAMPLES", "add_to", "run"]

_LONG = 5.0  # seconds from which a user is told beforehand
_PICTURE = 1.5  # seconds, of importing what draws one for the most part
EXAMPLES = """  cgp fill readings.csv --check
  cgp fill readings.csv --out filled.csv --picture gaps.png
  cgp fill soil.csv --inputs x y --out filled.csv --std errors.csv
  cgp fill logger.csv.gz --index Date Time --dayfirst --every 10min --missing ND -999 --out filled.csv
  cgp fill gauges.csv --long station,date,flow --out filled.csv --sums month totals.csv
  cgp fill air.csv --transforms ozone=log rain=rectified --out filled.csv
  cgp fill readings.csv --out filled.csv --assess scores.png
  cgp fill hours.csv --periods 1D --totals months.csv --out filled.csv
"""


def add_to(commands: Any) -> None:
    """Add the command's parser to the others."""
    fill = commands.add_parser(
        "fill",
        help="fill the gaps of a table",
        usage="cgp fill table --out OUT [options], or cgp fill table --check [options]",
        description="Fill the gaps of a table.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    fill.add_argument("table", type=Path, help="csv (also .gz, .bz2, .xz), xlsx or parquet")
    fill.add_argument("--out", type=Path, help="where the filled table is written: only gaps change")
    fill.add_argument(
        "--check", action="store_true", help="only say what was understood and how long a fit takes: nothing is written"
    )
    fill.add_argument("--std", type=Path, help="where standard deviations are written: above 0 where it was filled")
    fill.add_argument("--picture", type=Path, help="where a picture of gaps and fillings is written")
    fill.add_argument(
        "--assess",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="PICTURE",
        help="compare it with lines, ridge and others on hidden values, print the scores, and fill with the best",
    )
    fill.add_argument("--maskings", type=int, metavar="N", help="how often --assess hides values (3): more show more")
    fill.add_argument(
        "--transforms",
        nargs="+",
        metavar="[COLUMN=]KIND",
        help="of a column, or of all that are not named (auto): log, box-cox (never below 0), logit (shares), "
        "yeo-johnson (tails), rectified (many zeros, as rain), none",
    )
    fill.add_argument(
        "--periods",
        nargs="+",
        metavar="PERIOD",
        help="cycles: day, week, year, or such as 12.42h; numbers where rows have no times",
    )
    answers.add_to(fill)
    fill.add_argument("--seed", type=int, default=0, help="of everything random (0)")
    _add_rows(fill.add_argument_group("what rows are known by, where it is not found or found wrongly"))
    _add_file(fill.add_argument_group("how the file is written, where that can be read in two ways"))


def _add_rows(group: Any) -> None:
    """ReadOptions of what rows are known by."""
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--index", nargs="+", metavar="COLUMN", help="times or numbers of the rows, or dates and times of day"
    )
    where.add_argument("--no-index", dest="index", action="store_false", help="rows are taken in their order")
    where.add_argument("--inputs", nargs="+", metavar="COLUMN", help="columns that say where a row is, such as lat lon")
    where.add_argument(
        "--long",
        metavar="SERIES,TIME,VALUE",
        type=_listed,
        help="each row is one value of one of several series; DATE,TIME where times of day are apart",
    )
    group.add_argument("--repeats", action="store_true", help="rows of the same time are readings of the same thing")
    group.add_argument("--every", metavar="STEP", help="distance of the rows, such as 1h: absent rows are added")
    days = group.add_mutually_exclusive_group()
    days.add_argument("--dayfirst", action="store_true", default=None, help="03/04 is in April")
    days.add_argument("--monthfirst", dest="dayfirst", action="store_false", help="03/04 is in March")
    group.add_argument("--time-format", metavar="FORMAT", help="of the times, such as %%d.%%m.%%Y %%H:%%M")
    group.set_defaults(index=None)


def _add_file(group: Any) -> None:
    """ReadOptions of how a file is written."""
    group.add_argument(
        "--missing",
        nargs="+",
        action="extend",
        default=[],
        metavar="CODE",
        help="what stands for a missing value: -999, ND; < for all that begin with it; none: no other code",
    )
    group.add_argument("--half-limits", action="store_true", help="values below a limit, such as <0.5, are half of it")
    group.add_argument(
        "--leave", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns that are left alone"
    )
    group.add_argument(
        "--numbers", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns of numbers such as 007"
    )
    group.add_argument("--decimal", help="sign of decimals")
    group.add_argument("--thousands", help="sign between groups of thousands; '' for none")
    group.add_argument("--delimiter", help="between fields: , ; tab | or space")
    group.add_argument("--encoding", help="of the text, such as cp1252")
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help="the first line holds names")
    group.add_argument("--units-row", action=argparse.BooleanOptionalAction, help="the line below it holds units")
    group.add_argument("--skip-rows", type=int, metavar="N", help="lines before the header")
    group.add_argument("--skip-footer", type=int, metavar="N", help="lines below the table")
    group.add_argument("--comment", metavar="SIGN", help="what remarks begin with (#); '' for nothing")
    group.add_argument("--sheet", help="of a workbook")


def _listed(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 3:
        raise argparse.ArgumentTypeError(f"expected SERIES,TIME,VALUE, or SERIES,DATE,TIME,VALUE, got {text!r}")
    return parts


def run(parsed: argparse.Namespace) -> None:
    """Fill the table of a parsed command line."""
    started = time.monotonic()
    _check(parsed)
    known = _totals_file(parsed)
    table = _read(parsed, () if known is None else [*known.frame])
    with said_together():
        answers.check_for(parsed, table)
    totals = answers.read_totals(parsed, table, known)
    from cgp.tables import CorrelatedGPImputer
    from cgp.tables.frames.files.options import as_flags

    transforms = _transforms(parsed.transforms, [name for name in table.frame if name not in table.inputs])
    options = {"transforms": transforms, **_cycles(parsed.periods), "random_state": parsed.seed}
    options["verbose"] = None if sys.stderr.isatty() else False  # what it takes is said once, below
    imputer = CorrelatedGPImputer(inputs=table.inputs or None, **options)
    if parsed.check and not table.gaps and not _asks_for_more(parsed):
        say("no gaps: nothing is to be filled")
        return
    if (is_long := (seconds := _seconds(parsed, imputer, table.frame, totals)) > _LONG) or parsed.check:
        say(said_seconds(seconds))
    if parsed.check:
        return
    if parsed.assess is None:
        imputer = imputer.fit(table.frame, **totals)
    else:
        imputer = _best(parsed, imputer, table.frame, totals, is_long=is_long)
    if hasattr(imputer, "transforms_") and imputer.transforms_.changed:
        say(f"transformed: {imputer.transforms_}")
    _write(parsed, imputer, table, totals)
    said = f"filled {counted(table.gaps, 'value')} in {time.monotonic() - started:.0f} s: {parsed.out}"
    say("; ".join(filter(None, [said, as_flags(table.understood.lacking)])))


def _write(parsed: argparse.Namespace, imputer: Any, table: Any, totals: dict[str, Any]) -> None:
    """Write all that is asked for, with each warning once."""
    from cgp.tables import adding_up

    with said_together():
        filled = imputer.transform(table.frame)
        table.write(adding_up(filled, table, **totals), parsed.out)
        if parsed.std is not None:
            table.write_errors(imputer.std_, parsed.std)
        write_picture(lambda: imputer.plot(level=answers.level(parsed) or 0.95)[0].figure, parsed.picture)
        answers.write(parsed, imputer, table)


def _seconds(parsed: argparse.Namespace, imputer: Any, frame: Any, totals: dict[str, Any]) -> float:
    """Seconds of one core that what is asked for is expected to take."""
    from cgp.tables.referee.comparison import comparison_seconds

    compared = 0.0 if parsed.assess is None else comparison_seconds(frame, imputer, **_hidden(parsed), **totals)
    return float(imputer.estimate(frame, **totals).seconds + compared + _PICTURE * len(_pictures(parsed)))


def _transforms(given: list[str] | None, columns: list[str]) -> Any:
    """The transforms argument: by name, and of all columns that are not named."""
    pairs = [text.rpartition("=") for text in given or ()]
    rest, named = [kind for _, sign, kind in pairs if not sign], {name: kind for name, sign, kind in pairs if sign}
    odd = [name for name in named if name not in columns]
    if odd or len(rest) > 1:
        raise ValueError(
            f"--transforms: expected at most one KIND, and COLUMN=KIND of columns to fill, {columns}, got "
            f"{odd or rest}{meant(odd, columns)}"
        )
    if not named:
        return rest[0] if rest else "auto"
    return dict.fromkeys(columns, rest[0]) | named if rest else named


def _cycles(given: list[str] | None) -> dict[str, Any]:
    """The structure argument, where cycles are named: by durations, or numbers."""
    if given is None:
        return {}
    from cgp.regression import MultiScale

    numbers = [float(text) if re.fullmatch(r"\d*\.?\d+", text) else text for text in given]
    return {"structure": MultiScale(periods=numbers)}


def _read(parsed: argparse.Namespace, summed: Sequence[str]) -> Any:
    """The table, with what was understood said; columns whose totals are known may have no value."""
    from cgp.tables.frames.files.columns import EMPTY
    from cgp.tables.frames.files.options import as_flags
    from cgp.tables.frames.files.reading import read_table

    given = _of_reading(parsed)
    table = read_table(parsed.table, **given)
    left = table.pieces.columns.left
    if silent := [name for name in summed if left.get(name) == EMPTY]:
        table = read_table(parsed.table, **given | {"numbers": [*parsed.numbers, *silent]})
    say(f"{parsed.table.name}\n{as_flags(table.understood.text)}")
    warnings.filterwarnings("ignore", r"table: \d+ rows? repeats? ")  # said in flags
    for path in filter(None, (parsed.out, parsed.std)):
        table.check_place(path)
    if not (table.gaps or parsed.check or _asks_for_more(parsed)):
        step = table.pieces.assembled.absent
        adds = f"--every {step} adds rows that are not there, and " if step else ""
        raise ValueError(
            f"{parsed.table.name}: expected gaps in columns of numbers, {[*table.frame]}, got none; "
            f"{adds}--missing CODE names what stands for a missing value"
        )
    return table


class _Flags(argparse.ArgumentParser):
    """A parser of flags within a flag."""

    def error(self, message: str) -> NoReturn:
        """As the command has it."""
        raise ValueError(f"--totals-flags: {message}")


def _totals_file(parsed: argparse.Namespace) -> Any:
    """The file of totals, or None, read by flags of its own."""
    if parsed.totals is None:
        return None
    from cgp.tables.frames.files.options import UnclearError, as_flags
    from cgp.tables.frames.files.reading import read_table

    flags = _Flags(add_help=False)
    _add_rows(flags.add_argument_group())
    _add_file(flags.add_argument_group())
    own = _of_reading(flags.parse_args(shlex.split(parsed.totals_flags)))
    try:
        return read_table(parsed.totals, **{"dayfirst": parsed.dayfirst} | own)
    except UnclearError as error:
        if as_flags(error.text) == error.text:
            raise
        raise UnclearError(f'{error.text} (flags for this file: --totals-flags="...")') from error


def _of_reading(parsed: argparse.Namespace) -> dict[str, Any]:
    """The options of reading that were given."""
    from dataclasses import fields

    from cgp.tables.frames.files.options import ReadOptions

    return {each.name: value for each in fields(ReadOptions) if (value := getattr(parsed, each.name)) is not None}


def _asks_for_more(parsed: argparse.Namespace) -> bool:
    """Whether something is wanted that a table without gaps has, too."""
    return bool(answers.places(parsed)) or parsed.picture is not None or parsed.assess is not None


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    read = [path for path in (parsed.table, parsed.totals) if path is not None]
    if parsed.out is None and not parsed.check:
        raise ValueError("--out: expected where the filled table is written, got none; --check only reads the file")
    check_files(read)
    if parsed.totals is None and (parsed.totals_period is not None or parsed.totals_means or parsed.totals_flags):
        raise ValueError("--totals-period, --totals-flags, --totals-means: expected --totals FILE with them")
    if parsed.maskings is not None and (parsed.assess is None or parsed.maskings < 2):
        raise ValueError(
            f"--maskings: expected 2 or more, beside --assess, got {parsed.maskings}"
            f"{' without it' if parsed.assess is None else ''}"
        )
    pictures = _pictures(parsed)
    tables = [path for path in (parsed.out, parsed.std) if path is not None]
    check_places([*tables, *answers.places(parsed), *pictures], read)
    check_pictures(pictures)
    check_extras({"pandas": "frames"} | ({"matplotlib": "plot"} if pictures else {}))
    from cgp.tables.frames.files.sources import check_kind
    from cgp.tables.transforms.names import NAMES, check_name

    for path in (*read, *tables):
        check_kind(path)
    for text in parsed.transforms or ():
        name, sign, kind = text.rpartition(":")
        if sign and kind in NAMES:
            raise ValueError(f"--transforms: expected COLUMN=KIND, got {text!r}; did you mean {f'{name}={kind}'!r}?")
        check_name(text.rpartition("=")[2])
    answers.check(parsed)


def _pictures(parsed: argparse.Namespace) -> list[Path]:
    """Where pictures are written."""
    return [path for path in (parsed.picture, parsed.assess) if path is not None and path.name]


def _hidden(parsed: argparse.Namespace) -> dict[str, Any]:
    """How often values are hidden, where that is given."""
    return {} if parsed.maskings is None else {"maskings": parsed.maskings}


def _best(parsed: argparse.Namespace, imputer: Any, frame: Any, totals: dict[str, Any], *, is_long: bool) -> Any:
    """The imputer that the referee recommends, its report on the standard output stream."""
    from cgp.tables.referee.comparison import assess_gaps

    report = assess_gaps(frame, imputer, verbose=is_long, **_hidden(parsed), **totals)
    sys.stdout.write(f"{folded(in_flags(report.sentence))}\n\n{report.to_text()}\n")
    write_picture(report.plot, parsed.assess if parsed.assess.name else None)
    for line in _other_ways(report):
        say(line)
    asked = [flag for flag in answers.ASKED if getattr(parsed, flag) is not None]
    best = report.best()
    if lacking := [f"--{flag}" for flag in asked if not hasattr(best, answers.ASKED[flag])]:
        has = "has no answers for" if len(lacking) > 1 else "has no answer for"
        say(f"cgp fill: {report.method} {has} {' '.join(lacking)}: what is written is by {report.default}")
        return report.fitted(report.default)
    return best


def _other_ways(report: Any) -> list[str]:
    """The flags of cycles that the report speaks of and does not recommend."""
    from cgp.regression import MultiScale

    structures = {name: getattr(each, "structure", None) for name, each in report.methods.items()}
    return [
        f"cgp fill: {name} is --periods {' '.join(f'{each:g}D' for each in structure.periods)}"
        for name, structure in structures.items()
        if isinstance(structure, MultiScale) and name != report.method and name in report.sentence
    ]
