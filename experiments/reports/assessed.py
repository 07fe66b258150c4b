"""What :func:`cgp.assess` says of a trained network: its sentence, tables and picture."""

from itertools import islice
from typing import NamedTuple

import cgp
from cgp.networks.assess.words import meanings
from cgp.plotting.style import as_png
from experiments.data import input_sets, load
from experiments.data.examples import Batches, batch
from experiments.runs import Run

__all__ = ["Assessed", "assess_run"]

_OOD = "ood-"


class Assessed(NamedTuple):
    """What was assessed, the report's sentence and tables, what columns mean, and its picture."""

    what: str
    sentence: str
    tables: str
    meanings: dict[str, str]
    png: bytes


def assess_run(run: Run) -> Assessed:
    """Assess the network of a run on its test inputs, with its training data and the first of its OOD sets.

    Args:
        run: a complete run that has trained a network.
    """
    data, size = run.config.data, run.config.evaluation.batch_size
    splits = load(data, run.seed)
    known, held_out = (
        [batch(part, indices) for indices in Batches(part, size).order.split(size)]
        for part in (splits.train, splits.test)
    )
    sets = (each for each in input_sets(data, splits, run.seed) if each.name.startswith(_OOD))
    strange = {each.name.removeprefix(_OOD): Batches(each, size) for each in islice(sets, 1)}
    report = cgp.assess(run.model().cpu(), held_out, train=known, ood=strange)
    what = (
        f"cgp.assess on {run.label}, seed {run.seed}, and the {len(splits.test)} labels of its test inputs "
        "(NLL, the surprise at the true answers, in nats: less is better)"
    )
    return Assessed(what, report.sentence, report.table(), meanings(report), as_png(report.plot()))
