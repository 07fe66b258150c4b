"""A regression problem, its answer, and scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Problem", "point_losses", "scores"]

Array = NDArray[Any]


class Problem(NamedTuple):
    """Observations of one output, and test inputs.

    Attributes:
        inputs: (n, d).
        targets: (n,).
        test_inputs: (t, d).
        test_targets: (t,).
    """

    inputs: Array
    targets: Array
    test_inputs: Array
    test_targets: Array


class Answer(NamedTuple):
    """Predictive marginals of new observations, in the user's units.

    Attributes:
        mean: (t,).
        sd: (t,), noise included.
        evidence: log evidence of the fit, or its bound, in nats and in units of standardised targets; NaN if unknown.
    """

    mean: Array
    sd: Array
    evidence: float = math.nan


def scores(truth: Array, answer: Answer) -> dict[str, float]:
    """Errors of the mean, and calibration of the interval."""
    error = answer.mean - truth
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "nll": float(np.mean(point_losses(truth, answer))),
        "coverage": float(np.mean(np.abs(error) <= 1.959964 * answer.sd)),
    } | ({} if math.isnan(answer.evidence) else {"evidence": answer.evidence})


def point_losses(truth: Array, answer: Answer) -> Array:
    """Negative log-density of each value (t,) under the answer's normal marginals."""
    error = answer.mean - truth
    return 0.5 * (error / answer.sd) ** 2 + np.log(answer.sd) + 0.5 * math.log(2 * math.pi)
