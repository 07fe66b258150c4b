"""Detectors by name: those that need logits alone, and those that look at validation predictions too."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.evaluation._checks import Array
from experiments.evaluation.ood import (
    DETECTORS,
    DetectionReport,
    detection_report,
    kl_matching_nearest,
    kl_matching_predicted,
)
from experiments.evaluation.predictive import mean_logits
from experiments.evaluation.protocols import predictive_log_probabilities, rules

__all__ = ["DETECTOR_NAMES", "detect", "detector_scores", "has_templates"]


def _nearest(logits: Any, validation_logits: Any, _: Any) -> Array:
    return kl_matching_nearest(logits, validation_logits)


_MATCHING: Mapping[str, Callable[[Any, Any, Any], Array]] = MappingProxyType(
    {"KLMatching-nearest": _nearest, "KLMatching-predicted": kl_matching_predicted}
)
DETECTOR_NAMES: tuple[str, ...] = (*DETECTORS, *_MATCHING)
"""Every detector; the last two need validation predictions, and are the two published definitions of KLMatching."""


def detector_scores(
    detector: str,
    logits: Any,  # shape: (S, N, C) or (N, C)
    *,
    validation: tuple[Any, Any] | None = None,  # shapes: (S', M, C), (M,)
    protocol: str = "pooled",
) -> Array:  # shape: (N,)
    """Scores of a detector by its name, larger = more likely OOD.

    Args:
        detector: One of ``DETECTOR_NAMES``.
        logits: Logits per draw, (S, N, C) or (N, C).
        validation: Logits and labels of validation samples, which both KLMatchings need.
        protocol: ``kep`` averages logits over the draws before anything else, the others as the detector says.

    Returns:
        Scores (N,).

    Raises:
        ValueError: If there is no such detector, or it lacks the validation predictions that it needs.

    Example:
        >>> detector_scores("MaxSoftmax", [[[0.0, 0.0]], [[1000.0, 0.0]]]).tolist()
        [-0.75]
        >>> detector_scores("MaxSoftmax", [[[0.0, 0.0]], [[1000.0, 0.0]]], protocol="kep").tolist()
        [-1.0]
    """
    if detector not in DETECTOR_NAMES:
        raise ValueError(f"detector must be one of {', '.join(DETECTOR_NAMES)}, got {detector!r}")
    # One draw is all that a protocol of mean logits leaves to be seen.
    logits = mean_logits(logits) if rules(protocol).average == "logits" else logits
    if detector in DETECTORS:
        return DETECTORS[detector](logits)
    if validation is None:
        raise ValueError(f"validation must hold logits and labels for {detector}, got None")
    typical = mean_logits(validation[0]) if rules(protocol).average == "logits" else validation[0]
    return _MATCHING[detector](logits, typical, validation[1])


def detect(
    detector: str,
    familiar: Any,  # shape: (S, N, C) or (N, C)
    ood: Any,  # shape: (S, M, C) or (M, C)
    *,
    validation: tuple[Any, Any] | None = None,  # shapes: (S', K, C), (K,)
    protocol: str = "pooled",
    allow_undefined: bool = False,
) -> DetectionReport:
    """How well a detector tells OOD inputs (positive) from familiar ones, from saved logits.

    Args:
        detector: One of ``DETECTOR_NAMES``.
        familiar: Logits of inputs like the training data.
        ood: Logits of other inputs.
        validation: Logits and labels of validation samples, which both KLMatchings need.
        protocol: As of `detector_scores`. Scores are compared in the precision of the protocol.
        allow_undefined: Give NaN where the detector has no score for some input, instead of an error.

    Returns:
        AUROC, AUPR-IN, AUPR-OUT and FPR95.

    Example:
        >>> detect("Entropy", [[9.0, 0.0], [0.0, 8.0]], [[0.1, 0.0]]).auroc
        1.0

        No validation sample is of the class that is predicted:

        >>> validation = ([[3.0, 0.0]], [0])
        >>> options = {"validation": validation, "allow_undefined": True}
        >>> detect("KLMatching-predicted", [[0.0, 1.0]], [[1.0, 0.0]], **options).auroc
        nan
    """
    if allow_undefined:
        labels = None if validation is None else validation[1]
        if not has_templates(detector, familiar, ood, validation_labels=labels, protocol=protocol):
            return DetectionReport(*[np.nan] * len(DetectionReport._fields))
    options: dict[str, Any] = {"validation": validation, "protocol": protocol}
    scores = (detector_scores(detector, logits, **options) for logits in (familiar, ood))
    return detection_report(*(np.asarray(values).astype(rules(protocol).dtype) for values in scores))


def has_templates(detector: str, *logits: Any, validation_labels: Any, protocol: str = "pooled") -> bool:
    """Say whether a detector has a score for all inputs.

    KLMatching by predicted class has none where a class is predicted that no validation sample is of.

    Args:
        detector: One of ``DETECTOR_NAMES``.
        *logits: Logits per draw of the inputs, each (S, N, C) or (N, C).
        validation_labels: Labels of the validation samples, or None.
        protocol: As of `detector_scores`.

    Example:
        >>> has_templates("KLMatching-predicted", [[0.0, 1.0]], validation_labels=[0, 0])
        False
        >>> has_templates("Entropy", [[0.0, 1.0]], validation_labels=None)
        True
    """
    if detector != "KLMatching-predicted":
        return True
    known = set() if validation_labels is None else set(np.asarray(validation_labels).tolist())
    predicted = (predictive_log_probabilities(part, protocol=protocol).argmax(-1) for part in logits)
    return all(set(classes.tolist()) <= known for classes in predicted)
