"""The tidy table: one row for each number of a paper's table, the printed one beside ours."""

import csv
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.reports.papers.measure import Measured, deviations, measure
from experiments.reports.papers.names import METRICS, ORDER
from experiments.reports.papers.specification import Block, TableSpec
from experiments.runs import Run
from experiments.runs.rows import derivation, label_of

__all__ = ["REPORTED", "Reported", "Row", "reported", "rows"]

REPORTED = Path(__file__).parent / "reported.csv"
"""The printed numbers; `README.md` beside the file names their source and doubts."""


class Reported(NamedTuple):
    """One printed number in natural units; `sd` is NaN where none is printed, `digits` are the decimals printed."""

    paper: str
    table: str
    dataset: str
    shift: str
    method: str
    detector: str
    metric: str
    mean: float
    sd: float
    scale: float
    digits: int


class Row(NamedTuple):
    """One number of a table in natural units, NaN where there is none.

    Attributes:
        setting: data set, shift and detector.
        method: name of the folder of its runs.
        label: name of the method in the table.
        metric: key of `METRICS`.
        ours: mean over seeds.
        ours_sd: standard deviation over seeds, NaN for one seed.
        seeds: how many.
        printed: the paper's mean.
        printed_sd: the paper's standard deviation.
        protocol: how ours is computed.
        scale: factor of the table.
        digits: decimals in the table.
        deviations: how our runs deviate from the paper.
    """

    setting: str
    method: str
    label: str
    metric: str
    ours: float
    ours_sd: float
    seeds: int
    printed: float
    printed_sd: float
    protocol: str
    scale: float
    digits: int
    deviations: tuple[str, ...]


def reported(paper: str, number: str) -> tuple[Reported, ...]:
    """Return the printed numbers of one table in the order of the page; none for a figure or for slides.

    Example:
        >>> first = reported("cgpt", "I")[0]
        >>> first.method, first.metric, round(first.mean, 5), round(first.sd, 5), first.scale
        ('SGPA', 'mcc', 0.28826, 0.00982, 100.0)
    """
    return tuple(one for one in _all_reported() if (one.paper, one.table) == (paper, number))


@functools.cache
def _all_reported() -> tuple[Reported, ...]:
    with REPORTED.open(newline="", encoding="utf-8") as file:
        return tuple(_number(line) for line in csv.DictReader(file))


def _number(line: dict[str, str]) -> Reported:
    scale = float(line["scale"])
    return Reported(
        *(line[key] for key in ("paper", "table", "dataset", "shift", "method", "detector", "metric")),
        mean=float(line["mean"]) / scale,
        sd=float(line["sd"]) / scale if line["sd"] else math.nan,
        scale=scale,
        digits=len(line["mean"].partition(".")[2]),
    )


def rows(spec: TableSpec, runs: Sequence[Run], protocol: str) -> list[Row]:
    """Measure a table: the paper's methods first, then those that only we have, block by block."""
    return [row for block in spec.blocks for row in _block_rows(spec, block, runs, protocol)]


def _block_rows(spec: TableSpec, block: Block, runs: Sequence[Run], protocol: str) -> list[Row]:
    printed = {
        (block.methods[one.method], one.metric): one
        for one in reported(spec.paper, spec.number.removeprefix("Table "))
        if (one.dataset, one.shift, one.detector) == (block.dataset, block.shift, block.detector)
    }
    measured = {
        method: [_answered(block, run, protocol) for run in chosen]
        for method, chosen in _block_runs(block, runs).items()
    }
    if block.question.kind == "cost":  # what is derived from another run took no training of its own
        asked = set(block.methods.values())
        measured = {
            name: found for name, found in measured.items() if name in asked or any(one.numbers for one, _ in found)
        }
    return [
        _row(block, protocol, method, metric, printed, results)
        for method, results in measured.items()
        for metric in block.metrics
    ]


def _answered(block: Block, run: Run, protocol: str) -> tuple[Measured, tuple[str, ...]]:
    """The numbers of a run, and how it deviates from the paper."""
    found = measure(run, block.question, protocol)
    return found, tuple(deviations(block, run, found)) if found.numbers else ()


def _block_runs(block: Block, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each method, the paper's first; of several settings the first that has the method."""
    known = list(ORDER)

    def position(name: str) -> tuple[bool, int, str]:
        kind, base = derivation(name)
        return kind is not None, known.index(base) if base in known else len(known), name

    # Variants stay in the tables that are about them.
    here = {run.method for run in runs if run.setting in block.folders and "-" not in run.method}
    others = sorted(here - set(block.methods.values()), key=position) if block.others else []
    return {name: _of_method(block, name, runs) for name in [*block.methods.values(), *others]}


def _of_method(block: Block, method: str, runs: Sequence[Run]) -> list[Run]:
    for folder in block.folders:
        found = [run for run in runs if (run.setting, run.method) == (folder, method)]
        if found:
            return found
    return []


def _row(
    block: Block,
    protocol: str,
    method: str,
    metric: str,
    printed: dict[tuple[str, str], Reported],
    results: Sequence[tuple[Measured, tuple[str, ...]]],
) -> Row:
    paper = printed.get((method, metric))
    styles = [one for (_, name), one in printed.items() if name == metric]
    used = [(measured, words) for measured, words in results if metric in measured.numbers]
    values = [measured.numbers[metric] for measured, _ in used]
    return Row(
        block.title,
        method,
        label_of(method),
        metric,
        ours=float(np.mean(values)) if values else math.nan,
        ours_sd=float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        seeds=len(values),
        printed=paper.mean if paper else math.nan,
        printed_sd=paper.sd if paper else math.nan,
        protocol=protocol,
        scale=styles[0].scale if styles else METRICS[metric].scale,
        digits=max((one.digits for one in styles), default=METRICS[metric].digits),
        deviations=tuple(dict.fromkeys(word for _, words in used for word in words)),
    )
