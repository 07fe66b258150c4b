"""The tidy table: one row per number of a paper's table, printed and ours."""

import csv
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.reports.papers.measure import Measured, deviations, measure
from experiments.reports.papers.specification import METRICS, ORDER, Block, TableSpec
from experiments.reports.scores import Statistic
from experiments.runs import Run
from experiments.runs.rows import derivation, label_of

__all__ = ["REPORTED", "Reported", "Row", "reported", "rows"]

REPORTED = Path(__file__).parent / "reported.csv"
"""The printed numbers; `README.md` beside the file names their source and doubts."""


class Reported(NamedTuple):
    """One printed number in natural units; `sd` is NaN if none is printed, `digits` are the printed decimals."""

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
    """One number of a table in natural units, ours and the printed one, NaN if missing.

    `method` is the folder of the runs, `label` its name in the table; `scale` and `digits` are those of the table;
    `deviations` describe how our runs deviate from the paper. A standard deviation is over seeds, NaN for one seed.
    """

    setting: str  # data set, shift and detector
    method: str
    label: str
    metric: str  # key of `METRICS`
    ours: float
    ours_sd: float
    seeds: int
    printed: float
    printed_sd: float
    protocol: str  # protocol of our number
    scale: float
    digits: int
    deviations: tuple[str, ...]


def reported(paper: str, number: str) -> tuple[Reported, ...]:
    """Return the printed numbers of a table in the order of the page; none for a figure or for slides."""
    return tuple(printed for printed in _all_reported() if (printed.paper, printed.table) == (paper, number))


@functools.cache
def _all_reported() -> tuple[Reported, ...]:
    with REPORTED.open(newline="", encoding="utf-8") as file:
        return tuple(_number(line) for line in csv.DictReader(file))


def _number(line: dict[str, str]) -> Reported:
    scale = float(line["scale"])
    words: dict[str, Any] = {
        key: line[key] for key in ("paper", "table", "dataset", "shift", "method", "detector", "metric")
    }
    return Reported(
        **words,
        mean=float(line["mean"]) / scale,
        sd=float(line["sd"]) / scale if line["sd"] else math.nan,
        scale=scale,
        digits=len(line["mean"].partition(".")[2]),
    )


def rows(spec: TableSpec, runs: Sequence[Run], protocol: str) -> list[Row]:
    """Measure a table, block by block: the paper's methods first, then other methods."""
    return [row for block in spec.blocks for row in _block_rows(spec, block, runs, protocol)]


def _block_rows(spec: TableSpec, block: Block, runs: Sequence[Run], protocol: str) -> list[Row]:
    printed = {
        (block.methods[entry.method], entry.metric): entry
        for entry in reported(spec.paper.key, spec.number)
        if (entry.dataset, entry.shift, entry.detector) == (block.dataset, block.shift, block.detector)
    }
    measured = {
        method: [_answered(block, run, protocol) for run in _of_method(block, method, runs)]
        for method in _methods(block, runs)
    }
    if block.kind == "cost":  # derived methods have no training time
        in_paper = set(block.methods.values())
        measured = {
            name: of_runs
            for name, of_runs in measured.items()
            if name in in_paper or any(entry.numbers for entry, _ in of_runs)
        }
    return [
        _row(block, protocol, method, metric, printed, results)
        for method, results in measured.items()
        for metric in block.metrics
    ]


def _answered(block: Block, run: Run, protocol: str) -> tuple[Measured, tuple[str, ...]]:
    """The numbers of a run, and how it deviates from the paper."""
    measured = measure(run, block, protocol)
    return measured, tuple(deviations(block, run, measured)) if measured.numbers else ()


def _methods(block: Block, runs: Sequence[Run]) -> list[str]:
    """The paper's methods, then others; variants appear only in the tables about them."""

    def position(name: str) -> tuple[bool, int, str]:
        kind, base = derivation(name)
        return kind is not None, ORDER.index(base) if base in ORDER else len(ORDER), name

    in_paper = list(block.methods.values())
    here = {run.method for run in runs if run.setting in block.folders and "-" not in run.method}
    return [*in_paper, *(sorted(here - set(in_paper), key=position) if block.others else [])]


def _of_method(block: Block, method: str, runs: Sequence[Run]) -> list[Run]:
    """Runs of a method in the first setting that has it."""
    by_folder = [[run for run in runs if (run.setting, run.method) == (folder, method)] for folder in block.folders]
    return next(filter(None, by_folder), [])


def _row(
    block: Block,
    protocol: str,
    method: str,
    metric: str,
    printed: dict[tuple[str, str], Reported],
    results: Sequence[tuple[Measured, tuple[str, ...]]],
) -> Row:
    paper = printed.get((method, metric))
    styles = [number for (_, name), number in printed.items() if name == metric]
    used = [(measured, words) for measured, words in results if metric in measured.numbers]
    ours = Statistic.of([measured.numbers[metric] for measured, _ in used])
    return Row(
        block.title,
        method,
        label_of(method),
        metric,
        ours=ours.mean,
        ours_sd=ours.sd,
        seeds=len(used),
        printed=paper.mean if paper else math.nan,
        printed_sd=paper.sd if paper else math.nan,
        protocol=protocol,
        scale=styles[0].scale if styles else METRICS[metric].scale,
        digits=max((number.digits for number in styles), default=METRICS[metric].digits),
        deviations=tuple(dict.fromkeys(word for _, words in used for word in words)),
    )
