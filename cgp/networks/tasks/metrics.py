r"""Scores of predicted probabilities: proper scores, calibration, selection, detection.

Probabilities are ``(N, C)``, labels ``(N,)`` int; a confidence is the probability of the predicted class, ``(N,)``, and
``correct`` whether the prediction is right. Calibration errors: Guo et al., On Calibration of Modern Neural Networks
(ICML 2017). Selection: Geifman, Uziel & El-Yaniv, Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers
(ICLR 2019).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from torch import Tensor

from cgp.comparisons import Difference, gaussian_scores
from cgp.networks.model.labels import class_indices

__all__ = [
    "LabelledScores",
    "ValueErrors",
    "agreement",
    "aurc",
    "auroc",
    "auroc_error",
    "brier_scores",
    "calibration_error",
    "chance_calibration_error",
    "classification_scores",
    "decomposed",
    "delong_error",
    "entropy",
    "fpr95",
    "log_losses",
    "placements",
    "rank_correlation",
    "risk_at_coverage",
    "uncertainties",
]

Array = NDArray[Any]


def classification_scores(probabilities: Any, labels: Any) -> dict[str, float]:
    """All scores of a classifier on a set.

    Args:
        probabilities: ``(N, C)``.
        labels: ``(N,)`` int.

    Returns:
        "accuracy", "nll" (nats), "brier", "ece", "ece_chance" (what "ece" is on average if the probabilities are
        right), "aurc", "risk80" and "risk90" (error rates at 80 and 90 % coverage).

    Raises:
        ValueError: if the labels are no class indices, or a probability is not finite.

    Example:
        >>> classification_scores([[0.8, 0.2], [0.4, 0.6]], [0, 0])["accuracy"]
        0.5
    """
    p = np.asarray(probabilities, dtype=np.float64)
    y = class_indices(torch.as_tensor(labels), p.shape, every=True).numpy()
    if not np.isfinite(p).all():
        raise ValueError(f"probabilities: expected finite numbers, got {p[~np.isfinite(p)][0]}")
    return LabelledScores.of(p, y).summary()


class LabelledScores(NamedTuple):
    """Scores of each labelled example, from which those of a set follow.

    Attributes:
        losses: negative log-likelihoods in nats, ``(N,)``.
        briers: Brier scores, ``(N,)``.
        confidence: largest probabilities, ``(N,)``.
        correct: whether predictions are right, ``(N,)``.
        classes: the predictions, ``(N,)``.
        order: what answers are ranked by where the least sure are withheld, ``(N,)``: the confidence, by one choice for
            all examples where folds have choices of their own, as ranks by several temperatures do not compare.
    """

    losses: Array
    briers: Array
    confidence: Array
    correct: Array
    classes: Array
    order: Array

    @classmethod
    def of(cls, probabilities: Array, labels: Array) -> LabelledScores:
        """Scores of probabilities ``(N, C)`` on labels ``(N,)``."""
        p, classes = probabilities, probabilities.argmax(-1)
        confidence = p.max(-1)
        return cls(log_losses(p, labels), brier_scores(p, labels), confidence, classes == labels, classes, confidence)

    def summary(self) -> dict[str, float]:
        """Scores of the set, those of :func:`classification_scores`."""
        top, order, right = self.confidence.astype(np.float64), self.order.astype(np.float64), self.correct
        return {
            "accuracy": float(right.mean()),
            "nll": float(self.losses.mean()),
            "brier": float(self.briers.mean()),
            "ece": calibration_error(top, right),
            "ece_chance": chance_calibration_error(top),
            "aurc": aurc(order, right),
            "risk80": risk_at_coverage(order, right, 0.8),
            "risk90": risk_at_coverage(order, right, 0.9),
        }

    def differences(self, reference: Any, groups: Array) -> dict[str, Difference]:
        """Paired differences to the scores of another method; labels of one group, an input, depend on each other."""
        pairs = {
            "nll": self.losses - reference.losses,
            "brier": self.briers - reference.briers,
            "accuracy": 1.0 * self.correct - reference.correct,
        }
        return {name: Difference.of_groups(values, groups) for name, values in pairs.items()}


def agreement(classes: Array, labels: Array) -> Difference:
    r"""Cohen's kappa of predictions and labels: how much more often they agree than in any order of the labels.

    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e}, \quad p_e = \sum_c p_c q_c, \quad
        \mathrm{SE}_0 = \frac{\sqrt{p_e + p_e^2 - \sum_c p_c q_c (p_c + q_c)}}{(1 - p_e) \sqrt{N - 1}}

    with :math:`p_o` the share of right predictions, p and q the shares of the classes among predictions and labels.

    Args:
        classes: predictions, ``(N,)`` int from 0.
        labels: ``(N,)``, likewise.

    Returns:
        Kappa, at most 1, and its standard deviation over all orders of the labels, where its mean is 0; zeros where
        either is one class throughout, which tells nothing of the other.

    Source:
        Fleiss, Cohen & Everitt, Large sample standard errors of kappa and weighted kappa (Psychological Bulletin 1969),
        with N in place of N - 1, which is exact.

    Example:
        >>> kappa, error = agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
        >>> round(kappa, 3), round(error, 3)
        (0.5, 0.5)
    """
    count, size = len(labels), 1 + max(classes.max(), labels.max())
    p, q = (np.bincount(each, minlength=size) / count for each in (classes, labels))
    if max(p.max(), q.max()) == 1.0:
        return Difference(0.0, 0.0)
    expected = float(p @ q)
    variance = expected + expected**2 - float((p * q) @ (p + q))
    kappa = (float((classes == labels).mean()) - expected) / (1.0 - expected)
    return Difference(kappa, (max(variance, 0.0) / (count - 1)) ** 0.5 / (1.0 - expected))


def rank_correlation(first: Array, second: Array) -> Difference:
    r"""Spearman's rank correlation, ties with the average of their ranks.

    Args:
        first: values, ``(N,)``, N at least 2.
        second: values, ``(N,)``.

    Returns:
        The correlation, and its standard deviation :math:`(N - 1)^{-1/2}` over all orders of one of them, where its
        mean is 0; zeros where either is constant, which tells nothing of the other.

    Example:
        >>> correlation, error = rank_correlation(np.array([1.0, 2.0, 9.0, 3.0]), np.array([0.0, 1.0, 8.0, 64.0]))
        >>> round(correlation, 3), round(error, 3)
        (0.8, 0.577)
    """
    ranks = np.stack([rankdata(first), rankdata(second)])
    if (ranks == ranks[:, :1]).all(1).any():
        return Difference(0.0, 0.0)
    return Difference(float(np.corrcoef(ranks)[0, 1]), float((len(first) - 1) ** -0.5))


class ValueErrors(NamedTuple):
    """Errors of values with their standard deviations, from which the scores of a set follow.

    Attributes:
        errors: ``(N, C)``.
        deviations: of the predictive normal distributions, ``(N, C)``.
    """

    errors: Array
    deviations: Array

    @property
    def losses(self) -> Array:
        """Negative log-densities in nats, mean over outputs, ``(N,)``."""
        losses: Array = gaussian_scores(*self)[0].mean(1)
        return losses

    def summary(self) -> dict[str, float]:
        """Scores of the set, averaged over rows and outputs: of the central 90 % interval coverage and width."""
        nll, crps = gaussian_scores(self.errors, self.deviations)
        half = float(norm.isf(0.05)) * self.deviations
        means = {"nll": nll, "crps": crps, "coverage90": np.abs(self.errors) <= half, "width90": 2 * half}
        scores = {name: float(values.mean()) for name, values in means.items()}
        return scores | {"rmse": float(np.square(self.errors).mean()) ** 0.5}

    def differences(self, reference: Any, groups: Array) -> dict[str, Difference]:
        """Paired differences to the scores of another method."""
        pairs = zip(gaussian_scores(*self), gaussian_scores(*reference), strict=True)
        changes = [(mine - theirs).mean(1) for mine, theirs in pairs]
        return {name: Difference.of_groups(v, groups) for name, v in zip(("nll", "crps"), changes, strict=True)}

    @property
    def cumulative(self) -> Array:
        """The predictive distribution function at each value, ``(N C,)``."""
        return norm.cdf(self.errors / self.deviations).ravel()


def uncertainties(draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Total, aleatoric and epistemic uncertainty of probabilities under several draws.

    .. math:: H\big[\tfrac1S\textstyle\sum_s p_s\big], \qquad \tfrac1S\sum_s H[p_s], \qquad \text{their difference}

    Args:
        draws: ``(S, ..., C)``.

    Returns:
        Each ``(...)``, in nats.

    Example:
        >>> total, aleatoric, epistemic = uncertainties(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> round(total.item(), 4), aleatoric.item(), round(epistemic.item(), 4)
        (0.6931, 0.0, 0.6931)
    """
    return decomposed(draws.mean(0), entropy(draws).mean(0))


def entropy(p: Tensor, *, binary: bool = False) -> Tensor:
    """Entropy in nats of class probabilities ``(..., C)``, or of each of C labels that are probable or not."""
    parts = torch.special.entr(p)
    return parts + torch.special.entr(1.0 - p) if binary else parts.sum(-1)


def decomposed(mean: Tensor, aleatoric: Tensor, *, binary: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Total, aleatoric and epistemic uncertainty from the draws' mean probabilities and their mean entropy."""
    total = entropy(mean, binary=binary)
    return total, aleatoric, (total - aleatoric).clamp(min=0.0)  # below zero by rounding alone: entropy is concave


def log_losses(probabilities: Any, labels: Any) -> Array:
    r"""Negative log-likelihood of each example, :math:`-\log p_{y}`, in nats; at most 87, single precision's."""
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    return -np.log(np.maximum(p[np.arange(len(p)), y], np.finfo(np.float32).tiny))


def brier_scores(probabilities: Any, labels: Any) -> Array:
    r"""Brier score of each example, :math:`\sum_c (p_c - [y = c])^2`, in [0, 2]."""
    p = np.asarray(probabilities, dtype=np.float64)
    return np.square(p - np.eye(p.shape[1])[np.asarray(labels)]).sum(-1)


def calibration_error(confidence: Any, correct: Any, bins: int = 15) -> float:
    r"""Expected calibration error in M bins (lo, hi] of equal width, :math:`\sum_m \frac{n_m}{N} |c_m - a_m|`."""
    c, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    return _calibration_error(_bin_of(c, bins), c - right)


def _bin_of(confidence: Array, bins: int) -> NDArray[np.int64]:
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def _calibration_error(bin_of: NDArray[np.int64], gaps: Array) -> float:
    return float(np.abs(np.bincount(bin_of, weights=gaps)).sum() / len(gaps))


def chance_calibration_error(confidence: Any, bins: int = 15, repeats: int = 200, seed: int = 0) -> float:
    """Average calibration error of simulated outcomes under which the confidences are perfectly calibrated."""
    c = np.asarray(confidence, dtype=np.float64)
    random, bin_of = np.random.default_rng(seed), _bin_of(c, bins)
    return float(np.mean([_calibration_error(bin_of, c - (random.random(len(c)) < c)) for _ in range(repeats)]))


def aurc(confidence: Any, correct: Any) -> float:
    r"""Area under the risk-coverage curve, :math:`\frac1N\sum_k \frac1k\sum_{i \le k}[\hat y_{(i)} \ne y_{(i)}]`."""
    return float(_risks(confidence, correct).mean())


def risk_at_coverage(confidence: Any, correct: Any, coverage: float) -> float:
    """Error rate among the most confident examples, a share ``coverage`` in (0, 1] of all."""
    risks = _risks(confidence, correct)
    return float(risks[max(round(coverage * len(risks)), 1) - 1])


def auroc(inside: Any, outside: Any) -> float:
    """Probability that a score is larger outside than inside the distribution; ties count half."""
    return float(placements(inside, outside)[0].mean())


def placements(inside: Any, outside: Any) -> tuple[Array, Array]:
    """Contribution of each score to the AUROC, which is the average of both arrays.

    Args:
        inside: scores of inputs of the known kind, ``(N,)``.
        outside: scores of the others, ``(M,)``.

    Returns:
        For each score inside the share of those outside that exceed it, ``(N,)``; for each score outside the share of
        those inside that it exceeds, ``(M,)``. Ties count half.

    Example:
        >>> [part.tolist() for part in placements([0.0, 1.0], [1.0, 2.0])]
        [[1.0, 0.75], [0.75, 1.0]]
    """
    known, others = _scores(inside, outside)
    return 1 - _exceeded(known, others), _exceeded(others, known)


def delong_error(inside: Array, outside: Array) -> float:
    r"""Standard error of an AUROC from its placements :math:`v`, of a paired difference from their differences.

    .. math:: \Big[\tfrac1N s^2(v_{in}) + \tfrac1M s^2(v_{out})\Big]^{1/2}

    Args:
        inside: ``(N,)``, of :func:`placements`.
        outside: ``(M,)``, likewise.

    Returns:
        The error; infinite if one of the sets has a single input.

    Note:
        DeLong, DeLong & Clarke-Pearson, Comparing the Areas under Two or More Correlated Receiver Operating
        Characteristic Curves: A Nonparametric Approach (Biometrics 1988).

    Example:
        >>> round(delong_error(*placements([0.0, 1.0], [1.0, 2.0])), 4)
        0.1768
    """
    sides = (np.asarray(inside), np.asarray(outside))
    return float(np.sqrt(sum(v.var(ddof=1) / len(v) if len(v) > 1 else np.inf for v in sides)))


def auroc_error(inside: Array, outside: Array) -> float:
    r"""Standard error of an AUROC by its placements: DeLong's; of scores without an overlap, which has none, a bound's.

    .. math:: \tfrac12 \big(1 - .025^{1/k}\big), \quad k = \min(N, M)

    Two such errors reach Clopper and Pearson's bound at 97.5 %: an AUROC below it would have put one of k pairs, with
    no input in common, out of order.

    Args:
        inside: ``(N,)``, of :func:`placements`.
        outside: ``(M,)``, likewise.

    Returns:
        The error; infinite if one of the sets has a single input.

    Example:
        >>> round(auroc_error(*placements(range(100), range(100, 300))), 4)
        0.0181
    """
    error, pairs = delong_error(inside, outside), min(len(inside), len(outside))
    is_apart = error == 0.0 and float(np.mean(inside)) in (0.0, 1.0)
    return 0.5 * (1.0 - 0.025 ** (1.0 / pairs)) if is_apart else error


def fpr95(inside: Any, outside: Any) -> float:
    """Share of the inputs inside that are flagged if 95 % of those outside are."""
    known, others = _scores(inside, outside)
    threshold = np.sort(others)[-((95 * len(others) + 99) // 100)]  # that share, rounded up
    return float((known >= threshold).mean())


def _risks(confidence: Any, correct: Any) -> Array:
    wrong = ~np.asarray(correct, dtype=bool)[np.argsort(-np.asarray(confidence), kind="stable")]
    return np.cumsum(wrong) / np.arange(1, len(wrong) + 1)


def _exceeded(scores: Array, others: Array) -> Array:
    others = np.sort(others)
    return (np.searchsorted(others, scores, "left") + np.searchsorted(others, scores, "right")) / (2 * len(others))


def _scores(inside: Any, outside: Any) -> tuple[Array, Array]:
    groups = {"inside": np.asarray(inside, np.float64), "outside": np.asarray(outside, np.float64)}
    for name, scores in groups.items():
        if not len(scores) or np.isnan(scores).any():
            raise ValueError(f"{name}: expected scores that are numbers, got {'NaN' if len(scores) else 'none'}")
    return groups["inside"], groups["outside"]
