"""Rows of a table: the paper's number beside ours."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from experiments.reports.papers.deviations import deviations
from experiments.reports.papers.measure import Measured, Meter
from experiments.reports.papers.names import LABELS, METRICS, method_label
from experiments.reports.papers.reported import Reported, reported
from experiments.reports.papers.runs import Run
from experiments.reports.papers.specification import Block, TableSpec
from experiments.runs.derived import derivation

__all__ = ["Row", "block_runs", "rows"]


class Row(NamedTuple):
    """One number of a table, in natural units.

    Attributes:
        group: data set, shift and detector.
        metric: key of `METRICS`.
        method: name of the folder of its runs.
        label: name of the method in the table.
        paper: the printed mean, NaN where none is printed.
        paper_sd: the printed standard deviation.
        ours: mean over seeds, NaN where nothing was measured.
        ours_sd: standard deviation over seeds, NaN for one seed.
        seeds: how many.
        protocol: how ours is computed.
        scale: what values are multiplied by for printing.
        digits: decimals then.
        missing: input sets that were to be predicted and were not.
        deviations: in words, what departs from the paper.
    """

    group: str
    metric: str
    method: str
    label: str
    paper: float
    paper_sd: float
    ours: float
    ours_sd: float
    seeds: int
    protocol: str
    scale: float
    digits: int
    missing: tuple[str, ...]
    deviations: tuple[str, ...]

    @property
    def difference(self) -> float:
        """Ours minus the paper's, NaN where either is not there."""
        return self.ours - self.paper


def rows(spec: TableSpec, runs: Sequence[Run], meter: Meter) -> list[Row]:
    """Measure a table.

    Args:
        spec: which.
        runs: all runs.
        meter: how.

    Returns:
        A row a number: the paper's rows first, then methods that only we have, block by block.
    """
    return [row for block in spec.blocks for row in _block_rows(spec, block, runs, meter)]


def block_runs(block: Block, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each method of a block, the paper's methods first; of several settings the first that has the method."""
    names = [*block.methods.values(), *_others(block, runs)]
    return {name: _of_method(block, name, runs) for name in names}


def _others(block: Block, runs: Sequence[Run]) -> list[str]:
    """Methods that only we have; variants stay in the tables that are about them."""
    if not block.others:
        return []
    known = list(LABELS)
    folders = (*block.folders, *block.substitutes)
    names = {run.method for run in runs if run.data in folders and "-" not in run.method}
    return sorted(names - set(block.methods.values()), key=lambda name: (_position(known, name), name))


def _position(known: list[str], name: str) -> tuple[bool, int]:
    kind, base = derivation(name)
    return kind is not None, known.index(base) if base in known else len(known)


def _of_method(block: Block, method: str, runs: Sequence[Run]) -> list[Run]:
    for folder in (*block.folders, *block.substitutes):
        found = [run for run in runs if (run.data, run.method) == (folder, method)]
        if found:
            return found
    return []


def _block_rows(spec: TableSpec, block: Block, runs: Sequence[Run], meter: Meter) -> Iterator[Row]:
    number = spec.number.removeprefix("Table ")
    printed = {
        (block.methods[one.method], one.metric): one
        for one in reported(spec.paper, number)
        if (one.dataset, one.shift, one.detector) == (block.dataset, block.shift, block.detector)
    }
    measured = {
        method: [(run, meter.measure(run, block.question)) for run in chosen]
        for method, chosen in block_runs(block, runs).items()
    }
    if block.question.kind == "cost":  # what is derived from another run took no training of its own
        asked = set(block.methods.values())
        measured = {
            name: found for name, found in measured.items() if name in asked or any(one.numbers for _, one in found)
        }
    for metric in block.metrics:
        styles = [one for (_, name), one in printed.items() if name == metric]
        for method, results in measured.items():
            yield _row(block, meter.protocol, metric, method, printed.get((method, metric)), styles, results)


def _row(
    block: Block,
    protocol: str,
    metric: str,
    method: str,
    paper: Reported | None,
    styles: Sequence[Reported],
    results: Sequence[tuple[Run, Measured]],
) -> Row:
    values = [measured.numbers[metric] for _, measured in results if metric in measured.numbers]
    used = [(run, measured) for run, measured in results if metric in measured.numbers]
    return Row(
        group=block.title,
        metric=metric,
        method=method,
        label=method_label(method),
        paper=paper.mean if paper else math.nan,
        paper_sd=paper.sd if paper else math.nan,
        ours=float(np.mean(values)) if values else math.nan,
        ours_sd=float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        seeds=len(values),
        protocol=protocol,
        scale=styles[0].scale if styles else METRICS[metric].scale,
        digits=max((one.digits for one in styles), default=METRICS[metric].digits),
        missing=tuple(dict.fromkeys(name for _, measured in results for name in measured.missing)),
        deviations=deviations(block, used),
    )
