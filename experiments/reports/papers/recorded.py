"""Our numbers that a checkout has without runs, as the pages of `docs/results/papers` state them."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.reports.papers.tidy import Row

__all__ = ["with_recorded"]

_PAGES = Path(__file__).parents[3] / "docs" / "results" / "papers"


class _Line(NamedTuple):
    """A line of a page: data set and metric, label of the method, our number and what belongs to it."""

    quantity: str
    label: str
    ours: str
    seeds: str
    protocol: str
    notes: tuple[str, ...]


def with_recorded(name: str, measured: Sequence[Row], title: Callable[[Row], str]) -> list[Row]:
    """Put recorded numbers into the rows of a table that have none.

    Args:
        name: name of the table.
        measured: its rows.
        title: how a page calls the metric of a row.
    """
    protocol = measured[0].protocol
    pages = [_PAGES / f"{name}.md", _PAGES / f"{name}-{protocol}.md"]
    lines = [line for page in pages if page.exists() for line in _lines(page.read_text(encoding="utf-8"))]
    found = {(line.quantity, line.label): line for line in lines if line.protocol == protocol}
    return [_filled(row, found.get((f"{row.setting} · {title(row)}", row.label))) for row in measured]


def _lines(page: str) -> Iterator[_Line]:
    notes, quantity = dict(re.findall(r"^(\d+)\. (.+)$", page, re.MULTILINE)), ""
    for text in re.findall(r"^\|(.*)\|$", page, re.MULTILINE):
        parts = [part.strip().strip("*") for part in text.split("|")]
        if len(parts) != 8:
            continue
        quantity = parts[0].replace(", reduced", "") or quantity
        if parts[5].isdigit():
            numbers = tuple(notes[number] for number in _numbers(parts[7]))
            yield _Line(quantity, parts[1], parts[3], parts[5], parts[6], numbers)


def _numbers(ranges: str) -> Iterator[str]:
    """The numbers of `1–3,5`."""
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("–")
        yield from map(str, range(int(first), int(last or first) + 1))


def _filled(row: Row, line: _Line | None) -> Row:
    numbers = [] if line is None else re.findall(r"[−-]?\d[\d.]*", line.ours.replace(",", ""))
    if line is None or not math.isnan(row.ours) or not numbers:
        return row
    ours, sd = ([float(number.replace("−", "-")) / row.scale for number in numbers] + [math.nan])[:2]
    return row._replace(ours=ours, ours_sd=sd, seeds=int(line.seeds), deviations=line.notes)
