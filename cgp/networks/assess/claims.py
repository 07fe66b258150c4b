"""Detection of other inputs, prediction sets, and when something is recommended: by enough data, for a relevant gain.

The lower bounds of a gain hold where errors are not normal: where a few answers are wrong with full confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.comparisons import LEVEL, Difference, critical_value
from cgp.networks.detect.detector import Detector
from cgp.networks.guarantees.conformal import SetScore, label_scores, sets_by_label_scores
from cgp.networks.tasks import metrics

from .compared import Entry
from .tuning import Chunk, Outcome, Tuned

__all__ = [
    "COVERAGE",
    "FEWEST_INPUTS",
    "FEWEST_LABELS",
    "FEWEST_WRONG",
    "LEAST_AUROC",
    "LEAST_NATS",
    "Detection",
    "Sets",
    "are_enough",
    "best_detector",
    "compare_detectors",
    "compare_sets",
    "harm_seen",
    "labels_needed",
    "least_mean",
    "num_comparisons",
    "of_groups",
    "tells_nothing",
]

Array = NDArray[Any]

LEAST_NATS = 0.002
"""Smallest gain in NLL for a recommendation."""

LEAST_AUROC = 0.01
"""Smallest gain in AUROC for a recommendation."""

FEWEST_LABELS, FEWEST_WRONG = 20, 5
"""Below so many labels, or wrong answers among them, temperatures are claimed for logits that are calibrated
(docs/notes/reliability.md)."""

FEWEST_INPUTS = 20
"""Smallest number of other inputs for which detectors are compared."""


_DRAWS, _SINGLE, _TOGETHER = 4000, 100, 150


COVERAGE = 0.9
"""Probability with which sets contain the label."""


class Detection(NamedTuple):
    """Detection of out-of-distribution inputs by a score.

    Attributes:
        auroc: area under the ROC curve.
        fpr95: share of known inputs that are flagged if 95 % of the others are.
        gain: gain in AUROC over the first score, one minus the confidence, with DeLong's error.
        error: standard error of ``auroc`` (:func:`cgp.networks.tasks.metrics.auroc_error`).
        num_inputs: number of inputs of the smaller set.
    """

    auroc: float
    fpr95: float
    gain: Difference
    error: float
    num_inputs: int

    def is_right(self, z: float) -> bool:
        """Whether the score is larger outside than inside, and not the other way round, by ``z`` standard errors."""
        return Difference(self.auroc - 0.5, self.error).exceeds(LEAST_AUROC, z)


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


def num_comparisons(detection: Mapping[str, Mapping[str, Detection]]) -> int:
    """How many scores are compared with the first one, over all sets."""
    return sum(len(scores) - 1 for scores in detection.values())


def best_detector(detectors: Mapping[str, Detection], comparisons: int) -> str | None:
    """The score with the largest AUROC, above one half, of those significantly better than the first one, or None."""
    if min(d.num_inputs for d in detectors.values()) < FEWEST_INPUTS:
        return None
    z = critical_value(comparisons)
    better = [name for name, d in detectors.items() if d.gain.exceeds(LEAST_AUROC, z) and d.is_right(z)]
    return max(better, key=lambda name: detectors[name].auroc) if better else None


def compare_detectors(
    detectors: Sequence[Detector], known: dict[str, Array], others: Mapping[str, dict[str, Array]]
) -> dict[str, dict[str, Detection]]:
    """Results by the name of the set of other inputs, then of the detector, from scores ``(N,)`` of inputs by name."""
    inside = {detector.name: detector.combined(known) for detector in detectors}
    outside = {name: {each.name: each.combined(scores) for each in detectors} for name, scores in others.items()}
    return {name: _detections({n: (inside[n], scores[n]) for n in inside}) for name, scores in outside.items()}


def _detections(pairs: dict[str, tuple[Array, Array]]) -> dict[str, Detection]:
    """AUROC and FPR95 of scores inside and outside, and their gain over the first one."""
    placed = {name: metrics.placements(*pair) for name, pair in pairs.items()}
    first = next(iter(placed.values()))
    detections = {}
    for name, pair in pairs.items():
        inside, outside = (part - plain for part, plain in zip(placed[name], first, strict=True))
        gain = Difference(float(outside.mean()), metrics.delong_error(inside, outside))
        scores = metrics.auroc(*pair), metrics.fpr95(*pair)
        detections[name] = Detection(*scores, gain, metrics.auroc_error(*placed[name]), min(map(len, pair)))
    return detections


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
            known[score.name][places] = label_scores(score(p), labels[places])
    found: dict[str, list[Array]] = {score.name: [] for score in scores}
    for places, p in map(of_chunk, tuned.all_chunks(keys)):
        for score in scores:
            found[score.name].append(_of_folds(score(p), known[score.name], labels, folds, places))
    return {name: _summary(np.concatenate(parts)) for name, parts in found.items()}


def _of_folds(scores: Array, known: Array, labels: Array, folds: Array, places: Array) -> Array:
    """Whether each set has its label, and its size, ``(n, 2)``."""
    found = np.empty((len(places), 2))
    for fold in np.unique(folds[places]):
        rows = folds[places] == fold
        others = folds != fold
        sets = sets_by_label_scores(scores[rows], known[others], labels[others], 1.0 - COVERAGE)
        found[rows] = np.stack([sets[np.arange(rows.sum()), labels[places[rows]]], sets.sum(-1)], -1)
    return found


def _summary(found: Array) -> Sets:
    return Sets(float(found[:, 0].mean()), float(found[:, 1].mean()), float((found[:, 1] == 1).mean()))


def are_enough(labels: int, wrong: int | None) -> bool:
    """Whether labels, or the inputs that they belong to, are enough for any claim, of classes with wrong answers."""
    return labels >= FEWEST_LABELS and (wrong is None or wrong >= FEWEST_WRONG)


def tells_nothing(outcome: Outcome, labels: Array, columns: Array, groups: Array) -> bool:
    """Whether neither answers nor probabilities tell anything of the labels beyond chance at 5 %.

    Answers do where their agreement with the labels does (:func:`cgp.networks.tasks.metrics.agreement`), of several
    labels that of one of them; probabilities where their NLL is below that of the classes' shares, the least of any
    that know nothing else. Values do where their ranks are those of the labels, in an output
    (:func:`cgp.networks.tasks.metrics.rank_correlation`), and variances where theirs are those of the errors: a factor,
    an offset, or a constant where nothing can be predicted but the size of errors, is no chance.

    Args:
        outcome: of each label, or row of values.
        labels: classes ``(N,)``, or values ``(N, C)``.
        columns: which of the several labels of an input each is, from 0, ``(N,)``.
        groups: the input, from 0, that each belongs to, ``(N,)``.

    Returns:
        Whether.
    """
    if isinstance(outcome, metrics.ValueErrors):
        pairs = [(labels - outcome.errors, labels), (outcome.deviations, np.abs(outcome.errors))]
        found = [metrics.rank_correlation(a, b) for pair in pairs for a, b in zip(*(p.T for p in pair), strict=True)]
    else:
        asked = [columns == column for column in np.unique(columns)]
        found = [metrics.agreement(outcome.classes[rows], labels[rows]) for rows in asked]
        _, places, counts = np.unique([columns, labels], axis=1, return_inverse=True, return_counts=True)
        shares = counts[places] / np.bincount(columns)[columns]
        gain = Difference.of_groups(-np.log(shares) - outcome.losses, groups)
        if gain.exceeds(0.0, float(norm.isf(LEVEL))):
            return False
    return not any(each.exceeds(0.0, float(norm.isf(LEVEL / len(found)))) for each in found)


def least_mean(values: Array, worst: float, level: float) -> float:
    r"""A lower bound of the mean of a distribution above a known value, by independent draws from it.

    .. math:: \text{the } \delta \text{-quantile of } w_0 x_0 + \textstyle\sum_i w_i x_i, \qquad
        w \sim \operatorname{Dirichlet}(1, \dots, 1)

    with :math:`x_0` the lowest value that is possible. Nothing else is assumed: a value of probability p that N draws
    have not shown has its weight, up to :math:`\log(1/\delta) / N`, at :math:`x_0`. Of zeros and ones it is Clopper
    and Pearson's bound, and where errors are normal Student's.

    Args:
        values: x, ``(N,)``.
        worst: :math:`x_0`.
        level: δ, the probability with which the mean may be below the bound.

    Returns:
        The bound, by 4,000 draws of the weights. Of many values those in the middle are taken together.

    Source:
        Gaffke (2005), Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable; Learned-Miller & Thomas (2019), A new confidence interval for the mean of a bounded random variable.

    Example:
        >>> bound = least_mean(np.ones(100), 0.0, 0.05)
        >>> abs(bound - 0.05 ** (1 / 100)) < 0.005
        True
    """
    ordered = np.sort(values)
    low, high = ordered[:_SINGLE], ordered[_SINGLE:][-_SINGLE:]
    middle = ordered[len(low) : len(ordered) - len(high)]
    parts = [part for part in np.array_split(middle, _TOGETHER) if len(part)]
    places = np.array([min(worst, ordered[0]), *low, *(part.mean() for part in parts), *high])
    sizes = np.array([1, *[1] * len(low), *map(len, parts), *[1] * len(high)], dtype=np.float64)
    weights = np.random.default_rng(0).standard_gamma(sizes, size=(_DRAWS, len(sizes)))
    return float(np.quantile(weights @ places / weights.sum(1), level))


def labels_needed(gain: Difference, count: int, *, harm: float, z: float, level: float) -> float:
    r"""How many labels would make a gain clear, if neither the gain nor its spread changed.

    .. math:: \text{the } N' \text{ with} \quad g = z\, e \sqrt{N / N'} + h \log(1 / \delta) / N'

    as errors fall with the root of the labels, and what none of them shows has a probability up to
    :math:`\log(1/\delta) / N'` (:func:`least_mean`). Both at once are rarer: about three quarters are enough.

    Args:
        gain: g and its standard error e.
        count: N, the labels that it was measured on, or inputs, if labels of one depend on each other.
        harm: h, the most that may be added to the loss of one.
        z: standard errors that a gain needs.
        level: δ.

    Returns:
        N', infinite without a gain.

    Example:
        >>> labels_needed(Difference(0.1, 0.1), 100, harm=0.0, z=2.0, level=0.05)
        400.0
    """
    if gain.mean <= 0.0:
        return np.inf
    spread, rest = z * gain.error * count**0.5, harm * log(1.0 / level)
    return float(((spread + (spread**2 + 4.0 * gain.mean * rest) ** 0.5) / (2.0 * gain.mean)) ** 2)


def of_groups(values: Array, groups: Array) -> tuple[Array, float]:
    """Sums of values by group, such as an input's tokens, and the size of the largest, both over the average size."""
    sizes = np.bincount(groups)
    scale = len(sizes) / len(values)
    return np.bincount(groups, weights=values) * scale, float(sizes.max() * scale)


def harm_seen(gains: Array) -> float:
    """The most that a method may add to a loss, where nothing bounds it: as much as it ever changes one, at least 1."""
    return max(1.0, float(np.abs(gains).max()))
