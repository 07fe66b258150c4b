"""The four ways in which the literature turns the same predictions into a table.

Only ``pooled`` is ours; the others reproduce what the papers' published code does, so that our numbers can stand
beside theirs.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import log_softmax

from experiments.evaluation._checks import Array
from experiments.evaluation.predictive import mean_log_probabilities, mean_logits

__all__ = ["PROTOCOLS", "Protocol", "Rules", "batches", "predictive_log_probabilities", "rules"]

Protocol = Literal["pooled", "cgpt", "kep", "sgpa"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)


class Rules(NamedTuple):
    """What a protocol fixes beside its calibration error."""

    average: Literal["probabilities", "logits"]  # what is averaged over the draws
    dtype: type[np.floating[Any]]  # precision in which confidences are compared: ties and exact ones differ
    fpr_rule: Literal["first", "nearest"]  # threshold of FPR95
    mcc_batch: int | None  # Matthews correlation averaged over batches of this size


_RULES = {
    "pooled": Rules("probabilities", np.float64, "first", None),
    "cgpt": Rules("probabilities", np.float32, "first", None),
    "kep": Rules("logits", np.float32, "nearest", 32),
    "sgpa": Rules("probabilities", np.float32, "first", None),
}


def rules(protocol: str) -> Rules:
    """The rules of a protocol by its name.

    Args:
        protocol: One of ``PROTOCOLS``.

    Returns:
        Its rules.

    Raises:
        ValueError: If there is no such protocol.
    """
    if protocol not in _RULES:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    return _RULES[protocol]


def predictive_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
    *,
    protocol: str = "pooled",
) -> Array:  # shape: (N, C)
    """Log-probabilities of the prediction that a protocol scores.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).
        protocol: ``kep`` averages logits, the others probabilities.

    Returns:
        Log-probabilities (N, C).
    """
    if rules(protocol).average == "logits":
        return np.asarray(log_softmax(mean_logits(logits), axis=-1))
    return mean_log_probabilities(logits)


def batches(samples: int, size: int) -> list[slice]:
    """Consecutive batches in the saved order, the last one possibly smaller.

    Args:
        samples: Number of samples.
        size: Size of a batch.

    Returns:
        Slices that cover all samples.

    Example:
        >>> batches(5, 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
