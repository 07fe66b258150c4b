"""What ``cgp fill`` says of a table besides its gaps: sums, intervals, what follows; and totals that it is given."""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cgp.spelling import as_share, counted, meant
from cgp.tables.frames.beside import check_heads
from cgp.tables.frames.periods import PERIODS, are_set_back, days_of, meant_period, period_of

from .terminal import say

__all__ = [
    "ASKED",
    "add_to",
    "check",
    "check_for",
    "level",
    "places",
    "read_totals",
    "write",
]

_SPANS = {name: each.removesuffix("S") for name, each in PERIODS.items() if each}
_BY_TEXT = (("%q", "Q"), ("%d", None), ("%m", "M"), ("%b", "M"), ("%B", "M"))  # the first that a form of times has
_LEADING = {
    "sums": "the period",
    "means": "the period",
    "interval": "the level",
    "draws": "the number of draws",
    "forecast": "the number of rows, or a span of time,",
}
ASKED = {name: "aggregate" if name in ("sums", "means") else name for name in _LEADING}
"""What of an imputer each flag asks."""

_WITH_ERRORS, _ENDS = ("{}", "{} std"), ("{} lower", "{} upper")  # heads of a column's parts


def add_to(fill: Any) -> None:
    """Add the flags of answers, and of totals that are known, to those of filling."""
    for name in ("sums", "means"):
        fill.add_argument(
            f"--{name}",
            nargs=2,
            metavar=("PERIOD", "FILE"),
            help=f"write {name} of each {', '.join(PERIODS)} (or frequency of pandas) with their standard errors, std; "
            "beside --interval with their ends",
        )
    for how, other in (("sum", "means"), ("mean", "sums")):
        fill.add_argument(
            f"--{how}-columns",
            nargs="+",
            metavar="COLUMN",
            help=f"columns whose {how}s are written; without --{how}s beside the {other} of the others, in one file",
        )
    fill.add_argument(
        "--interval",
        nargs="+",
        metavar=("LEVEL", "FILE"),
        help="write the ends of intervals, such as 0.95; LEVEL alone is for sums, means, a forecast and the picture",
    )
    fill.add_argument(
        "--draws",
        nargs=2,
        metavar=("N", "FILE"),
        help="write N values of each gap, drawn together: for counts of dry days",
    )
    fill.add_argument(
        "--forecast",
        nargs=2,
        metavar=("ROWS", "FILE"),
        help="write the rows that follow the table, so many or a span such as 12h or 14D, beside --interval with their "
        "ends",
    )
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
        help=f"what a time in it stands for: {', '.join(_SPANS)} (or frequency of pandas)",
    )
    group.add_argument(
        "--totals-flags",
        metavar="FLAGS",
        default="",
        help="how this file is read, where it is not found: "
        """--totals-flags="--decimal , --missing ND"; --dayfirst and --monthfirst hold for both""",
    )
    group.add_argument("--totals-means", action="store_true", help="they are means instead of sums")


def places(parsed: argparse.Namespace) -> list[Path]:
    """Where answers are written."""
    given = [getattr(parsed, flag) for flag in _LEADING]
    return [Path(each[1]) for each in given if each is not None and len(each) > 1]


def check(parsed: argparse.Namespace) -> None:
    """Refuse what no table has, before anything heavy is imported."""
    from cgp.tables.frames.files.sources import check_kind

    for flag, what in _LEADING.items():
        given = getattr(parsed, flag)
        if given is not None and len(given) == 2 and re.fullmatch(r"\.[a-z]\w*", Path(given[0]).suffix, re.IGNORECASE):
            raise ValueError(f"--{flag}: expected {what} before the file, --{flag} {given[1]} {given[0]}, got {given}")
    for path in places(parsed):
        check_kind(path)
    _check_sums(parsed)
    if parsed.interval is not None:
        _check_interval(parsed)
    if parsed.draws is not None and not (parsed.draws[0].isdigit() and int(parsed.draws[0])):
        raise ValueError(f"--draws: expected a number of draws, got {parsed.draws[0]!r}")
    if parsed.forecast is not None and not _number(parsed.forecast[0]):
        days_of(parsed.forecast[0])


def _check_sums(parsed: argparse.Namespace) -> None:
    """Refuse what is no period, and columns of sums that are not asked for."""
    import pandas as pd

    asked = {"--sums": parsed.sums, "--means": parsed.means}
    for flag, (period, _) in ((flag, given) for flag, given in asked.items() if given is not None):
        try:
            pd.tseries.frequencies.to_offset(period_of(period))
        except ValueError:
            raise ValueError(
                f"{flag}: expected {', '.join(PERIODS)}, or a frequency of pandas, got {period!r}{meant_period(period)}"
            ) from None
    if not any(asked.values()) and (parsed.sum_columns or parsed.mean_columns):
        raise ValueError("--sum-columns, --mean-columns: expected --sums PERIOD FILE or --means PERIOD FILE with them")


def _check_interval(parsed: argparse.Namespace) -> None:
    """Refuse what is no level, or a level that nothing is written at."""
    if not 0 < (number := _level(parsed.interval[0])) < 1:
        got = f"{parsed.interval[0]!r}{as_share(number)}"
        raise ValueError(f"--interval: expected a level between 0 and 1, such as 0.95, got {got}")
    if len(parsed.interval) > 2:
        raise ValueError(f"--interval: expected a level and a file, got {parsed.interval}: the table comes first")
    if len(parsed.interval) == 1 and not any(
        getattr(parsed, each) for each in ("sums", "means", "forecast", "picture")
    ):
        raise ValueError(
            "--interval: expected a file that the ends are written to, --interval LEVEL FILE, or --sums, --means, "
            "--forecast or --picture, got a level alone"
        )


def check_for(parsed: argparse.Namespace, table: Any) -> None:
    """Refuse periods and forecasts that the table cannot have, before it is fitted to."""
    import pandas as pd

    _check_columns(parsed, table)
    if parsed.sums or parsed.means or parsed.forecast or len(parsed.interval or ()) == 2:
        check_heads([head.format(name) for name in table.pieces.assembled.values for head in _WITH_ERRORS + _ENDS])
    repeated = table.frame.index[table.frame.index.duplicated()]
    count = 0 if parsed.repeats or len(table.inputs) > 1 or are_set_back(repeated) else len(repeated)
    for flag, given in (("--sums", parsed.sums), ("--means", parsed.means)):
        if given is not None and count:
            rows_repeat = counted(count, "row repeats", "rows repeat")
            say(
                f"cgp fill: warning: {flag}: {rows_repeat} a time with other values, and each value counts: "
                "take out of the file what is no reading of its own, or say --repeats"
            )
        if given is None:
            continue
        if isinstance(table.frame.index, pd.DatetimeIndex):
            _warn_of_absent_rows(given[0], "sum" if flag == "--sums" or parsed.sum_columns else "mean", table)
        elif period_of(given[0]) is not None:
            raise ValueError(f"{flag}: expected 'all', as the rows of this table have no times, got {given[0]!r}")
    _check_order(parsed, table)


def _check_order(parsed: argparse.Namespace, table: Any) -> None:
    """Refuse forecasts and cycles where rows do not follow each other, and spans of time where they have no times."""
    for flag, given in (("--forecast", parsed.forecast), ("--periods", parsed.periods)):
        if given is not None and len(table.inputs) > 1:
            raise ValueError(f"{flag}: expected rows that follow each other, got places, {', '.join(table.inputs)}")
    if parsed.forecast is not None and not _number(parsed.forecast[0]):
        _check_span(parsed.forecast[0], table)


def _warn_of_absent_rows(period: str, how: str, table: Any) -> None:
    """Say which rows sums or means will lack."""
    from cgp.tables.frames.table import read_table
    from cgp.tables.totals import bins_of, counted_absent

    numbers, axis = read_table(table.frame, None)
    times = axis.times(table.frame)
    counted_absent(numbers, bins_of(period, numbers, times), period, how, times)


def _check_span(span: str, table: Any) -> None:
    """Refuse a span of time where rows have no times, or are farther apart."""
    import numpy as np
    import pandas as pd

    from cgp.tables.filled import rows_within

    times = table.frame.index.unique().sort_values()
    if not isinstance(times, pd.DatetimeIndex):
        raise ValueError(f"--forecast: expected a number of rows, as those of this table have no times, got {span!r}")
    if len(times) > 1:
        rows_within(span, float(np.median(np.diff(times) / np.timedelta64(1, "D"))))


def _number(text: str) -> int:
    """A number of rows, or 0 for what is none."""
    return int(text) if text.isdigit() else 0


def _check_columns(parsed: argparse.Namespace, table: Any) -> None:
    """Refuse sums of columns that the table does not have."""
    names = [*table.pieces.assembled.values]
    for flag, columns in (("--sum-columns", parsed.sum_columns), ("--mean-columns", parsed.mean_columns)):
        if strange := [name for name in columns or () if name not in names]:
            raise ValueError(f"{flag}: expected columns of numbers, {names}, got {strange}{meant(strange, names)}")


def write(parsed: argparse.Namespace, imputer: Any, table: Any) -> None:
    """Write sums, means and a forecast, each with its standard errors beside it, ends of intervals, and draws."""
    asked = level(parsed)
    for how, given in (("sum", parsed.sums), ("mean", parsed.means)):
        if given is not None:
            _write_sums(imputer, given[0], asked, _columns_by_kind(parsed, how, table), table, Path(given[1]))
    if parsed.interval is not None and len(parsed.interval) > 1:
        _write_rows(imputer.interval(asked), table, Path(parsed.interval[1]), _ENDS)
    if parsed.draws is not None:
        _write_draws(imputer, int(parsed.draws[0]), parsed.seed, table, Path(parsed.draws[1]))
    if parsed.forecast is not None:
        heads = _WITH_ERRORS if asked is None else _WITH_ERRORS + _ENDS
        rows = _number(parsed.forecast[0]) or parsed.forecast[0]
        ahead = imputer.forecast(rows) if asked is None else imputer.forecast(rows, asked)
        _write_rows(ahead, table, Path(parsed.forecast[1]), heads)


def level(parsed: argparse.Namespace) -> float | None:
    """The level of intervals that is asked for, if one is."""
    return None if parsed.interval is None else _level(parsed.interval[0])


def _level(given: str) -> float:
    """A number, or 0 for what is none."""
    return float(given) if re.fullmatch(r"\d*\.?\d+", given) else 0.0


def _columns_by_kind(parsed: argparse.Namespace, how: str, table: Any) -> dict[str, list[str]]:
    """Which columns have a "sum", and which a "mean", in a file of sums, or of means."""
    other, names = "mean" if how == "sum" else "sum", [*table.pieces.assembled.values]
    asked = {"sum": parsed.sum_columns or [], "mean": parsed.mean_columns or []}
    has_others = getattr(parsed, f"{other}s") is None
    own = asked[how] or [name for name in names if name not in asked[other]]
    return {how: own} | ({other: asked[other]} if has_others and asked[other] else {})


def _write_sums(
    imputer: Any, period: str, level: float | None, columns: dict[str, list[str]], table: Any, path: Path
) -> None:
    """Write sums, or means, or both by column, and beside them how many rows their periods lack, where some do."""
    import numpy as np
    import pandas as pd

    frames, absent = [], np.zeros(0)
    for how, names in columns.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "aggregate: ")  # check_for said which rows are absent, before the fit
            found = imputer.aggregate(period, how, level=level)
        ends = [] if found.lower is None else [found.lower, found.upper]
        heads = _WITH_ERRORS + (_ENDS if ends else ())
        if len(columns) > 1:
            heads = tuple(head.replace("{}", f"{{}} {how}") for head in heads)
        more = int(how == "mean" and len(table.frame) > len(found.value))  # known better than each reading
        frames.append(_beside([part[names] for part in (*found, *ends)], heads, table, path, more))
        absent = found.absent
    frame = pd.concat(frames, axis=1)
    if absent.any():
        frame.insert(0, "absent rows", absent)
    table.write_answer(frame, path)


def _write_rows(parts: Any, table: Any, path: Path, heads: tuple[str, ...]) -> None:
    """Write the first parts of an answer that has rows of the table, or such as follow it, one for each head."""
    table.write_answer(_beside([*parts][: len(heads)], heads, table, path), path, is_of_rows=True)


def _beside(parts: list[Any], heads: tuple[str, ...], table: Any, path: Path, more: int = 0) -> Any:
    """A frame of parts by their heads, those of a column beside each other, with more digits than its readings."""
    import numpy as np
    import pandas as pd

    columns = {}
    for name in parts[0]:
        digits = table.precision(name)
        errors = np.zeros(len(parts[0])) if heads == _ENDS else np.nan_to_num(np.asarray(parts[1][name]))
        least, digits = digits.least(errors), digits.longer(more)
        for head, part in zip(heads, parts, strict=True):
            cells = _cells((digits.write(each, least) for each in part[name].fillna(0.0)), digits, path)
            columns[head.format(name)] = pd.Series(cells, part.index).mask(part[name].isna().to_numpy())
    return pd.DataFrame(columns, index=parts[0].index)


def _write_draws(imputer: Any, count: int, seed: int, table: Any, path: Path) -> None:
    """Write joint draws of what is missing, a line for each value."""
    import pandas as pd

    drawn, parts = imputer.draws(count, seed), []
    for name in table.pieces.assembled.values:
        gaps, digits = table.frame[name].isna(), table.precision(name)
        for number, each in enumerate(drawn, start=1):
            cells = _cells(map(digits.write, each.loc[gaps.to_numpy(), name]), digits, path)
            parts.append(pd.DataFrame({"draw": number, "column": name, "value": cells}, index=table.frame.index[gaps]))
    table.write_answer(pd.concat(parts), path, is_of_rows=True)


def _cells(texts: Iterable[str], digits: Any, path: Path) -> Any:
    """Texts as they are written to a file: numbers in workbooks and parquet."""
    from cgp.tables.frames.files.sources import kind_of_file

    return [*texts] if kind_of_file(path) == "text" else digits.form.numbers([*texts])


def read_totals(parsed: argparse.Namespace, table: Any, known: Any) -> dict[str, Any]:
    """Totals of a file by column, as options of ``CorrelatedGPImputer.fit``, with what was understood said."""
    if known is None:
        return {}
    from cgp.tables.frames.files.options import as_flags
    from cgp.tables.known import KnownTotals

    understood = known.understood._replace(lacking="")  # what adds rows is a flag of the other file
    say(f"{parsed.totals.name}\n{as_flags(understood.text)}")
    periods, frame = _periods(parsed, known), known.frame
    strange = [name for name in frame if name not in table.frame]
    if strange:
        raise ValueError(
            f"{parsed.totals.name}: expected columns of {parsed.table.name} that have values, {[*table.frame]}, "
            f"or none at all, got {strange}{meant(strange, table.frame)}"
        )
    sums = frame.set_axis(periods, axis=0)
    return {"totals": {name: KnownTotals(sums[name], mean=parsed.totals_means) for name in sums}}


def _periods(parsed: argparse.Namespace, known: Any) -> Any:
    """The periods that the times of a file stand for."""
    rows = known.pieces.rows
    if rows.times is None:
        raise ValueError(
            f"{parsed.totals.name}: expected a column of times, such as 2024-01, got {[*known.pieces.cells]}"
        )
    if parsed.totals_period is not None:
        frequency = _SPANS.get(parsed.totals_period.lower(), parsed.totals_period)
    else:
        form = "".join(each.format for each in rows.forms)
        frequency = next((each for sign, each in _BY_TEXT if sign in form), None)
    if frequency is None:
        raise ValueError(
            f"{parsed.totals.name}: expected to know what {rows.forms[0].sample} stands for: "
            f"--totals-period {' or '.join(list(_SPANS)[1:4])}, or another"
        )
    try:
        return known.frame.index.to_period(frequency)
    except ValueError as error:
        raise ValueError(f"--totals-period: expected one of {', '.join(_SPANS)}, got {frequency!r}") from error
