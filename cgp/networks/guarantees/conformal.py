"""By held-out labels: sets and intervals that contain the truth, and answers that keep to a risk."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from cgp.networks.model.named import Named

__all__ = [
    "LEVELS",
    "Adaptive",
    "LeastAmbiguous",
    "Regularised",
    "SetScore",
    "check_labels",
    "conformal_quantile",
    "conformal_sets",
    "label_scores",
    "labels_needed",
    "least_probability",
    "risk_threshold",
    "sets_by_label_scores",
    "values_needed",
    "why_none",
]

Array = NDArray[Any]

_WHOLE = 1e-9  # what is whole stays whole under rounding
_ROUNDING = 1e-12  # sums of the same numbers in another order


def conformal_quantile(scores: Array, error: float) -> float:
    r"""The score that a future one exceeds with probability at most :math:`\alpha`, :math:`s_{(k)}` of n scores.

    .. math:: k = \lceil (n + 1)(1 - \alpha) \rceil

    Args:
        scores: scores of held-out examples, ``(n,)``, exchangeable with future ones.
        error: :math:`\alpha`, in (0, 1).

    Returns:
        The score; infinite if k is above n.

    Note:
        Vovk, Gammerman & Shafer, Algorithmic Learning in a Random World (2005).

    Example:
        >>> conformal_quantile(np.arange(1.0, 10.0), 0.2), conformal_quantile(np.arange(3.0), 0.1)
        (8.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * (1.0 - error) - _WHOLE)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def values_needed(error: float) -> int:
    r"""Held-out scores below which :func:`conformal_quantile` is infinite, :math:`\lceil 1/\alpha \rceil - 1`.

    Args:
        error: :math:`\alpha`, in (0, 1).

    Returns:
        Their number.

    Example:
        >>> values_needed(0.1), values_needed(1 - 0.999)
        (9, 999)
    """
    return math.ceil((1.0 - error - _WHOLE) / error)


class SetScore(Named, argument="method"):
    """A score of classes, of which those up to a threshold are in the set; a subclass with a name is known by it.

    A score of your own says what it computes (:meth:`of`): ``prediction.sets(method=...)`` takes it, and
    :func:`cgp.assess` compares its sets.
    """

    @abstractmethod
    def of(self, probabilities: Array) -> Array:
        """Scores ``(N, C)`` of probabilities ``(N, C)``, larger for classes that are less likely to be the label."""

    def __call__(self, probabilities: Any) -> Array:
        """Scores ``(N, C)``, NaN of inputs whose probabilities are not finite."""
        p = np.asarray(probabilities, np.float64)
        return self.of(np.where(np.isfinite(p).all(-1, keepdims=True), p, np.nan))


class Adaptive(SetScore):
    r"""The probability of all classes that are at least as likely: adaptive sets.

    .. math:: s_c = \sum_{c' : p_{c'} \ge p_c} p_{c'}

    Source:
        Romano, Sesia & Candès, Classification with Valid and Adaptive Coverage (NeurIPS 2020).

    Example:
        >>> Adaptive()([[0.5, 0.25, 0.25]]).tolist()
        [[0.5, 0.75, 1.0]]
    """

    name = "aps"

    def of(self, probabilities: Array) -> Array:
        """Sums of ranked probabilities."""
        return self._ranked(probabilities, 0.0, 0)

    def _ranked(self, p: Array, penalty: float, free: int) -> Array:
        order = np.argsort(-p, -1, kind="stable")
        scores = np.cumsum(np.take_along_axis(p, order, -1), -1)
        scores = scores + penalty * np.maximum(np.arange(1, p.shape[-1] + 1) - free, 0)
        scores[:, 1:] = np.maximum(scores[:, 1:], np.nextafter(scores[:, :1], np.inf))  # also where the first has p = 1
        ranked = np.empty_like(scores)
        np.put_along_axis(ranked, order, scores, -1)
        return ranked


@dataclass(frozen=True)
class Regularised(Adaptive):
    r"""The adaptive score with a penalty of ranks, :math:`\gamma\,(r_c - r_0)_+`: smaller sets of many classes.

    Args:
        penalty: :math:`\gamma`, of every rank :math:`r_c` beyond the first :math:`r_0`.
        free: :math:`r_0`, ranks without a penalty.

    Note:
        Angelopoulos et al., Uncertainty Sets for Image Classifiers using Conformal Prediction (ICLR 2021).
    """

    penalty: float = 0.01
    free: int = 5

    name = "raps"

    def of(self, probabilities: Array) -> Array:
        """Sums of ranked probabilities, and the penalty."""
        return self._ranked(probabilities, self.penalty, self.free)


class LeastAmbiguous(SetScore):
    """One minus the probability: one threshold for it, and the smallest sets on average.

    Note:
        Sadinle, Lei & Wasserman, Least Ambiguous Set-Valued Classifiers with Bounded Error Levels (JASA 2019).
    """

    name = "lac"

    def of(self, probabilities: Array) -> Array:
        """One minus the probability."""
        return 1.0 - probabilities


def conformal_sets(
    scores: Array, known: Array, labels: Array, error: float, *, per_class: bool = False
) -> NDArray[np.bool_]:
    r"""Sets of classes that contain the label with probability at least :math:`1 - \alpha`, none of them empty.

    .. math:: \{c : \tilde s_c(x) \le q_c\}, \qquad P(y \in \{\dots\}) \ge 1 - \alpha, \qquad
        \tilde s_c = \begin{cases} -\infty & s_c = \min_{c'} s_{c'} \\ s_c & \text{otherwise} \end{cases}

    The class with the lowest score, which is the likeliest one, is in every set. q is the conformal quantile of the
    held-out labels' :math:`\tilde s`: of all, or of each class by itself, so that the probability holds given the
    class. A class with fewer than :math:`1/\alpha - 1` labels is then in every set.

    Args:
        scores: scores s of the inputs and every class, ``(N, C)``.
        known: scores of the held-out inputs, ``(n, C)``, exchangeable with the inputs; rows of NaN are left out.
        labels: labels of the held-out inputs, ``(n,)`` int.
        error: :math:`\alpha`.
        per_class: whether the probability holds given the class.

    Returns:
        ``(N, C)``; where scores are NaN every class is in the set.

    Note:
        Romano, Sesia & Candès (NeurIPS 2020), whose sets by "aps" may be empty; Angelopoulos et al. (ICLR 2021), whose
        sets hold the likeliest class, but by a quantile that does not know it: they cover more than is asked for.

    Example:
        >>> known = np.linspace(0.1, 0.9, 9)[:, None] + [0.0, -1.0]
        >>> conformal_sets(np.array([[0.85, 0.95, 0.1]]), known, np.zeros(9, int), 0.1).tolist()
        [[True, False, True]]
    """
    return sets_by_label_scores(scores, label_scores(known, labels), labels, error, per_class=per_class)


def label_scores(scores: Array, labels: Array) -> Array:
    r"""Scores of the labels, ``(n,)``: −∞ of those that are in the set whatever the quantile.

    Args:
        scores: scores of every class, ``(n, C)``.
        labels: ``(n,)`` int.

    Returns:
        :math:`\tilde s` of :func:`conformal_sets`; NaN where scores are.

    Example:
        >>> label_scores(np.array([[0.2, 0.7], [0.2, 0.7]]), np.array([0, 1])).tolist()
        [-inf, 0.7]
    """
    return _never_empty(scores)[np.arange(len(scores)), labels]


def sets_by_label_scores(
    scores: Array, of_labels: Array, labels: Array, error: float, *, per_class: bool = False
) -> NDArray[np.bool_]:
    """The sets of :func:`conformal_sets`, given :func:`label_scores` of the held-out inputs, ``(n,)``."""
    labels, of_labels = labels[~np.isnan(of_labels)], of_labels[~np.isnan(of_labels)]
    if per_class:
        quantiles = [conformal_quantile(of_labels[labels == c], error) for c in range(scores.shape[1])]
    else:
        quantiles = [conformal_quantile(of_labels, error)] * scores.shape[1]
    sets: NDArray[np.bool_] = _never_empty(scores) <= np.asarray(quantiles) + _ROUNDING
    return sets | np.isnan(scores)


def least_probability(probabilities: Array, labels: Array, error: float) -> float:
    r"""The smallest probability of a class in the sets of :class:`LeastAmbiguous`; the likeliest class is in them, too.

    .. math:: \min(1,\; 1 - q), \qquad s_c = 1 - p_c

    Args:
        probabilities: of the held-out inputs, ``(n, C)``.
        labels: theirs, ``(n,)`` int.
        error: :math:`\alpha` of :func:`conformal_sets`, whose q is the quantile of the labels' scores.

    Returns:
        That probability, less what rounding may take.

    Example:
        >>> p = np.linspace(0.1, 0.9, 9)
        >>> float(round(least_probability(np.stack([p, 1 - p], -1), np.zeros(9, int), 0.4), 6))
        0.4
    """
    quantile = conformal_quantile(label_scores(LeastAmbiguous()(probabilities), labels), error)
    return min(1.0, 1.0 - quantile - _ROUNDING)


def _never_empty(scores: Array) -> Array:
    return np.where(scores == scores.min(-1, keepdims=True), -np.inf, scores)


LEVELS = 20
"""Shares of the answers that are tested: 1/20, 2/20, ... and all."""

_STARTS = 4


def risk_threshold(confidence: Array, correct: Array, risk: float, level: float) -> float | None:
    r"""The lowest confidence above which at most a share r of the answers is wrong, with probability at least 1 − δ.

    For each of 20 shares of the n held-out answers, :math:`\lambda` is the order statistic of the confidence that the
    share lies above. Given it, the a answers above are independent draws of those whose confidence exceeds it, and k of
    them are wrong with a binomial distribution. From the smallest share to all, that more than r of them would be is
    rejected where

    .. math:: P(\mathrm{Bin}(a_s, r) \le k_s) \le \delta_s, \qquad
        \delta_s = w_s + \begin{cases} \delta_{s-1} & s - 1 \text{ was rejected} \\ 0 & \text{otherwise} \end{cases}

    Here w is :math:`\delta / 4` for four shares, evenly from the smallest that could be rejected, else 0 (fewer shares
    where fewer could be). That is wrong anywhere with probability at most :math:`\delta`: given how many confidences
    lie between successive values above which exactly r are wrong, it is fixed where more than r are; there k is no less
    than binomial, and the errors sum to :math:`\delta` at most. Nothing is assumed of the confidence, nor that errors
    get fewer as it grows; at a value that several answers share, nothing is handed on.

    Args:
        confidence: of held-out answers, ``(n,)``, independent draws of what is to come.
        correct: whether they are right, ``(n,)``.
        risk: r, in (0, 1).
        level: 1 − δ, in (0, 1).

    Returns:
        The threshold of the largest share that passes; answers above it are kept. −∞ keeps all, None is none.

    Source:
        Angelopoulos et al. (2021), Learn then Test; Bretz et al. (2009), A graphical approach to sequentially rejective
        multiple test procedures; Geifman & El-Yaniv (2017), Selective Classification for Deep Neural Networks.

    Example:
        >>> risk_threshold(np.linspace(0.5, 1.0, 500), np.ones(500, bool), 0.02, 0.95)
        -inf
    """
    ordered, found, handed_on = np.sort(confidence)[::-1], None, 0.0
    for place, part in zip(_places(len(ordered)), _parts(len(ordered), risk, 1.0 - level), strict=True):
        threshold = -math.inf if place == len(ordered) else float(ordered[place])
        above = confidence > threshold
        error = handed_on * (above.sum() == place) + part
        passes = error > 0.0 and binom.cdf((above & ~correct).sum(), above.sum(), risk) <= error
        found, handed_on = (threshold, error) if passes else (found, 0.0)
    return found


def _places(count: int) -> NDArray[np.int64]:
    """Answers that lie above the threshold of each share."""
    return np.array([*(count * share // LEVELS - 1 for share in range(1, LEVELS)), count]).clip(min=0)


def _parts(count: int, risk: float, error: float) -> Array:
    """The error that tests of each share begin with."""
    parts, if_all_are_right = np.zeros(LEVELS), (1.0 - risk) ** _places(count)
    for starts in range(_STARTS, 0, -1):
        (able,) = np.nonzero(if_all_are_right <= error / starts)
        if len(able) >= starts:
            parts[np.linspace(able[0], LEVELS - 1, starts).round().astype(int)] = error / starts
            break
    return parts


def labels_needed(risk: float, level: float) -> int:
    r"""Held-out labels below which no answer can be given, were all right: :math:`\log\delta / \log(1 - r)`.

    Args:
        risk: r.
        level: 1 − δ.

    Returns:
        Their number.

    Example:
        >>> labels_needed(0.02, 0.95)
        149
    """
    return math.ceil(math.log(1.0 - level) / math.log1p(-risk))


def check_labels(count: int, risk: float, level: float, name: str = "held_out") -> None:
    """Raise where there are fewer labels than :func:`labels_needed`: no answer could be given, whatever they are.

    Args:
        count: of held-out labels.
        risk: r.
        level: 1 − δ.
        name: of the argument, for the message.

    Raises:
        ValueError: if there are.

    Example:
        >>> check_labels(50, 0.05, 0.95)
        Traceback (most recent call last):
        ...
        ValueError: held_out: expected at least 59 labels to keep to a risk of 0.05 with a confidence of 0.95, got 50
    """
    if count < (needed := labels_needed(risk, level)):
        asked = f"to keep to a risk of {risk:g} with a confidence of {level:g}"
        raise ValueError(f"{name}: expected at least {needed} labels {asked}, got {count}")


def why_none(confidence: Array, correct: Array, risk: float, level: float) -> str:
    """Why :func:`risk_threshold` has no threshold, in words.

    Args:
        confidence: of held-out answers, ``(n,)``.
        correct: whether held-out answers are right, ``(n,)``.
        risk: r.
        level: 1 − δ.

    Returns:
        That too many of the answers are wrong, and from which risk on some are given, which no confidence is in, as it
        is the least that passes.

    Example:
        >>> why_none(np.ones(50), np.arange(50) > 24, 0.9, 0.95)
        'every answer is withheld: of 50 held-out answers 50.0% are wrong, and no share of the surest keeps to ...'
    """
    asked = f"a risk of {risk:g} with a confidence of {level:g}"
    wrong = f"of {len(correct)} held-out answers {1.0 - correct.mean():.1%} are wrong"
    why = f"every answer is withheld: {wrong}, and no share of the surest keeps to {asked}"
    larger = (percent / 100 for percent in range(math.floor(100 * risk) + 1, 100))
    least = next((each for each in larger if risk_threshold(confidence, correct, each, level) is not None), None)
    chosen = "these labels chose that risk, so only new ones could guarantee it"
    return why if least is None else f"{why} (some do to {least:g}, but {chosen})"
