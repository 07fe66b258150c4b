"""What scale and tails by class of gap are worth: the default imputer with and without them, from one fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from cgp import CorrelatedGPImputer
from cgp.comparisons import Difference
from cgp.tables.frames.table import Table, read_table
from cgp.tables.masking import HiddenBlocks
from cgp.tables.tails import Tails
from cgp.tables.transforms.columns import ValueScores
from experiments.studies.regression.problems import Array
from experiments.studies.regression.report import write_results
from experiments.studies.regression.transforms import TABLES, rows_of_tables

__all__ = ["tails"]

_SHARE = 0.1


def tails(data: Path, out: Path, sets: Sequence[str] = (), maskings: int = 2, seed: int = 1) -> None:
    """NLL, CRPS and coverage of hidden values with the posterior's deviations, and with tails learned on inner blocks.

    Args:
        data: folder as for ``transforms``.
        out: folder of tables and rows.
        sets: names of its tables; none is all.
        maskings: how many times a tenth of the values is hidden.
        seed: of the places of the blocks.
    """
    rows = rows_of_tables(_row, data, out / "tails", sets, maskings, seed)
    columns = ("nll", "ahead", "crps", "coverage", "least_class", "greatest_class")
    write_results(out, "regression-tails", "Tails by class of gap", rows, ("set", "method"), columns)


def _row(data: Path, name: str, maskings: int, seed: int) -> dict[str, Any]:
    table, _ = read_table(TABLES[name](data), None)
    hidden = HiddenBlocks.of(table, maskings, _SHARE, seed)
    parts = [_scored(table, hidden, masking) for masking in range(maskings)]
    joined = {
        label: ValueScores(*(np.concatenate(each) for each in zip(*(part[label] for part in parts), strict=True)))
        for label in parts[0]
    }
    rows = [{"method": label, **_means(scores, hidden)} for label, scores in joined.items()]
    ahead = Difference.of_groups(joined["learned"].nll - joined["posterior"].nll, hidden.blocks)
    rows[-1] |= {"ahead": ahead.mean, "ahead_se": ahead.error}
    return {"methods": rows}


def _means(scores: ValueScores, hidden: HiddenBlocks) -> dict[str, float]:
    """Means over all values, and the coverage of the classes of blocks that have the least and the most."""
    inside, labels = np.abs(scores.errors) <= norm.isf(0.025), hidden.labels[hidden.blocks]
    shares = [float(inside[labels == each].mean()) for each in set(hidden.labels.tolist())]
    means = {"nll": float(scores.nll.mean()), "crps": float(scores.crps.mean()), "coverage": float(inside.mean())}
    return means | {"least_class": min(shares), "greatest_class": max(shares)}


def _scored(table: Table, hidden: HiddenBlocks, masking: int) -> Mapping[str, tuple[Array, Array, Array]]:
    """Scores of the values of a masking, in units of their columns, with and without tails."""
    cells, chosen = hidden.cells(masking, table.values.shape), hidden.maskings[hidden.blocks] == masking
    imputer = CorrelatedGPImputer(random_state=0).fit(table.hiding(cells))
    rows, columns = hidden.rows[chosen], hidden.columns[chosen]
    result = {}
    for label, laws in (("posterior", Tails({})), ("learned", imputer.tails_)):
        imputer.tails_, imputer._known = laws, None
        scores = imputer._filled.scored(table.values).in_units(table.units)
        result[label] = tuple(part[rows, columns] for part in scores)
    return result
