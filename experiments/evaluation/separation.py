"""How well one score separates two groups: areas under curves, and the false positive rate at a true positive rate."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from experiments.evaluation._checks import Array, as_mask, as_vector

__all__ = ["aupr", "auroc", "average_precision", "false_positive_rate"]


def auroc(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
) -> float:
    r"""Probability that a positive scores higher than a negative, ties counting half.

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).

    Returns:
        A number in [0, 1].

    Example:
        >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
        0.75
    """
    scores, positive = _groups(scores, positive)
    return float(roc_auc_score(positive, scores))


def aupr(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
) -> float:
    """Area under the precision-recall curve by the trapezoidal rule.

    This is what pytorch-ood and KEP-SVGP's ``AUPR success`` compute; `average_precision` is the step-wise area.

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).

    Returns:
        A number in [0, 1].

    Example:
        >>> round(aupr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]), 4)
        0.7917
    """
    scores, positive = _groups(scores, positive)
    precision, recall, _ = precision_recall_curve(positive, scores)
    return float(auc(recall, precision))


def average_precision(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
) -> float:
    r"""Step-wise area under the precision-recall curve, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).

    Returns:
        A number in [0, 1].

    Example:
        >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [False, False, True, True]), 4)
        0.8333
    """
    scores, positive = _groups(scores, positive)
    return float(average_precision_score(positive, scores))


def false_positive_rate(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
    *,
    level: float = 0.95,
    rule: Literal["first", "nearest"] = "first",
) -> float:
    """False positive rate where the true positive rate reaches a level (FPR95).

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).
        level: True positive rate in (0, 1].
        rule: ``"first"``: the first threshold that reaches the level. ``"nearest"``: the corner of the ROC curve
            nearest to it, above or below, as KEP-SVGP's tables do.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the level or the rule is not one of these, or one group is empty.

    Example:
        >>> false_positive_rate([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
        0.5
    """
    scores, positive = _groups(scores, positive)
    if rule not in ("first", "nearest"):
        raise ValueError(f"rule must be 'first' or 'nearest', got {rule!r}")
    if not 0 < level <= 1:
        raise ValueError(f"level must lie in (0, 1], got {level}")
    # The published rule looks among the corners of the curve only; the standard one at every threshold.
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=rule == "nearest")
    index = np.abs(tpr - level).argmin() if rule == "nearest" else np.flatnonzero(tpr >= level)[0]
    return float(fpr[index])


def _groups(scores: Any, positive: Any) -> tuple[Array, NDArray[np.bool_]]:
    scores = as_vector(scores, "scores")
    positive = as_mask(positive, len(scores), "positive")
    if positive.all() or not positive.any():
        raise ValueError(f"positive must name samples of both groups, got {int(positive.sum())} of {len(positive)}")
    return scores, positive
