"""Our numbers that a checkout has without runs, as the pages of `docs/results/papers` state them."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.reports.papers.specification import TABLES
from experiments.reports.papers.tidy import Row
from experiments.runs.rows import label_of, row_names

__all__ = ["PAGES", "with_recorded"]

PAGES = Path(__file__).parents[3] / "docs" / "results" / "papers"


class _Line(NamedTuple):
    """One of our numbers on a page: setting, title of the metric, label of the method, and what belongs to it."""

    setting: str
    title: str
    label: str
    ours: str
    seeds: int
    notes: tuple[str, ...]


def with_recorded(name: str, measured: Sequence[Row], title: Callable[[Row], str]) -> list[Row]:
    """Put recorded numbers into the rows of a table without runs; methods that no paper has follow in each setting.

    Args:
        name: name of the table.
        measured: its rows.
        title: how a page calls the metric of a row.
    """
    protocol = measured[0].protocol
    page = PAGES / (f"{name}.md" if protocol == TABLES[name].paper.protocol else f"{name}-{protocol}.md")
    lines = list(_lines(page.read_text(encoding="utf-8"))) if page.exists() else []
    found = {(line.setting, line.title, line.label): line for line in lines}
    rows = []
    for setting, of_setting in itertools.groupby(measured, key=lambda row: row.setting):
        of_paper = list(of_setting)
        known = {row.label for row in of_paper}
        others = dict.fromkeys(line.label for line in lines if line.setting == setting and line.label not in known)
        first = [row for row in of_paper if row.method == of_paper[0].method]
        of_others = (_empty(row, label) for label in others for row in first)
        rows += [_filled(row, found.get((setting, title(row), row.label))) for row in (*of_paper, *of_others)]
    return rows


def _empty(row: Row, label: str) -> Row:
    """A row of the same metric for a method that no paper has."""
    numbers: dict[str, Any] = dict.fromkeys(("ours", "ours_sd", "printed", "printed_sd"), math.nan)
    return row._replace(method=_method(label), label=label, seeds=0, deviations=(), **numbers)


def _method(label: str) -> str:
    """The folder of a method.

    Example:
        >>> _method("Ensemble of SGPA, temperature")
        'temperature_ensemble_sgpa'
    """
    named = {label_of(method): method for method in (name.partition("/")[2] for name in row_names("*/*"))}
    if label in named:
        return named[label]
    for start, end, kind in (("", ", temperature", "temperature"), ("Ensemble of ", "", "ensemble")):
        if label.startswith(start) and label.endswith(end):
            return f"{kind}_{_method(label.removeprefix(start).removesuffix(end))}"
    raise ValueError(f"label: expected that of a method, got {label!r}")


def _lines(page: str) -> Iterator[_Line]:
    notes, setting, titles = dict(re.findall(r"^(\d+)\. (.+)$", page, re.MULTILINE)), "", list[str]()
    for text in re.findall(r"^(## .*|\| (?!---).*)$", page, re.MULTILINE):
        parts = [part.strip().strip("*") for part in text.strip("|").split("|")]
        if text.startswith("##"):
            setting, titles = text.removeprefix("## ").removesuffix(", reduced"), []
        elif not titles:
            titles = parts[1:-2]
        elif parts[-2].isdigit():
            words = tuple(notes[number] for number in _numbers(parts[-1]))
            for title, ours in zip(titles, parts[1:-2], strict=True):
                yield _Line(setting, title, parts[0].removesuffix(", ours"), ours, int(parts[-2]), words)


def _numbers(ranges: str) -> Iterator[str]:
    """The numbers of `1–3,5`."""
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("–")
        yield from map(str, range(int(first), int(last or first) + 1))


def _filled(row: Row, line: _Line | None) -> Row:
    numbers = [] if line is None else re.findall(r"[−-]?\d[\d.]*", line.ours.replace(",", ""))
    if line is None or not math.isnan(row.ours) or not (numbers or line.ours == "undefined"):
        return row
    ours, sd = ([float(number.replace("−", "-")) / row.scale for number in numbers] + [math.nan, math.nan])[:2]
    return row._replace(ours=ours, ours_sd=sd, seeds=line.seeds, deviations=line.notes)
