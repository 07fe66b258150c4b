"""Prediction sets of several scores, compared by their size and coverage on held-out folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.networks.guarantees.conformal import SetScore, conformal_sets

from .compared import Entry
from .tuning import Chunk, Tuned

__all__ = ["COVERAGE", "Sets", "compare_sets"]

Array = NDArray[Any]

COVERAGE = 0.9
"""Probability with which sets contain the label."""


class Sets(NamedTuple):
    """Prediction sets of held-out inputs.

    Attributes:
        coverage: share of the sets that contain the label.
        size: classes of a set, on average.
        singles: share of the sets with one class.
    """

    coverage: float
    size: float
    singles: float


def compare_sets(tuned: Tuned, entry: Entry, scores: Sequence[SetScore]) -> dict[str, Sets]:
    """Sets of each score by its name, by an entry's probabilities and with thresholds of the other folds' labels."""
    if not scores:
        return {}
    plan, folds = tuned.plan(entry), tuned.fold_of.numpy()
    labels = tuned.labels.cpu().numpy()

    def of_chunk(chunk: Chunk) -> tuple[Array, Array]:
        """Places, and probabilities by the choice of the other folds."""
        places = chunk.places.cpu().numpy()
        p = np.stack([chunk.rows[key].probabilities(t).double().cpu().numpy() for key, t in plan.values()])
        fold_number = np.searchsorted(sorted(plan), folds[places])
        return places, p[fold_number, np.arange(len(places))]

    keys = sorted({key for key, _ in plan.values()}, key=str)
    known: dict[str, Array] = {score.name: np.empty(len(labels)) for score in scores}
    for places, p in map(of_chunk, tuned.all_chunks(keys)):
        for score in scores:
            known[score.name][places] = score(p)[np.arange(len(places)), labels[places]]
    found: dict[str, list[Array]] = {score.name: [] for score in scores}
    for places, p in map(of_chunk, tuned.all_chunks(keys)):
        for score in scores:
            found[score.name].append(_of_folds(score(p), known[score.name], labels[places], folds, places))
    return {name: _summary(np.concatenate(parts)) for name, parts in found.items()}


def _of_folds(scores: Array, known: Array, labels: Array, folds: Array, places: Array) -> Array:
    """Whether each set has its label, and its size, ``(n, 2)``."""
    found = np.empty((len(places), 2))
    for fold in np.unique(folds[places]):
        rows = folds[places] == fold
        of_others = known[folds != fold][:, None]
        sets = conformal_sets(scores[rows], of_others, np.zeros(len(of_others), int), 1.0 - COVERAGE)
        found[rows] = np.stack([sets[np.arange(rows.sum()), labels[rows]], sets.sum(-1)], -1)
    return found


def _summary(found: Array) -> Sets:
    return Sets(float(found[:, 0].mean()), float(found[:, 1].mean()), float((found[:, 1] == 1).mean()))
