"""Regression problems and tables with gaps, answers, and scores."""

import math
from typing import Any, NamedTuple

import numpy as np

from cgp.comparisons import gaussian_scores
from experiments.evaluation.metrics import Array

__all__ = [
    "GAPS",
    "NORMAL",
    "SITES",
    "Answer",
    "Array",
    "Gaps",
    "Problem",
    "gap_scores",
    "losses",
    "scores",
    "standardised",
    "with_gaps",
]


GAPS = ("random", "stretch", "end")
NORMAL = 1.959964
SITES = "site_losses"


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


def losses(error: Array, sd: Array) -> Array:
    """Negative log-density of each value under its normal marginal."""
    return gaussian_scores(error, sd)[0]


def scores(truth: Array, answer: Answer) -> dict[str, float]:
    """Errors of the mean, and calibration of the interval."""
    error = answer.mean - truth
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "nll": float(np.mean(losses(error, answer.sd))),
        "coverage": float(np.mean(np.abs(error) <= NORMAL * answer.sd)),
    } | ({} if math.isnan(answer.evidence) else {"evidence": answer.evidence})


def standardised(values: Array) -> tuple[Array, Array, Array]:
    """Columns ``(n, P)`` without mean and spread, and both, where NaN is not observed."""
    centre, unit = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return (values - centre) / unit, centre, unit


class Gaps(NamedTuple):
    """Outputs with hidden values.

    Attributes:
        inputs: (n, d).
        targets: (n, P), NaN where not observed or hidden.
        truth: the hidden values, (n, P), NaN elsewhere.
    """

    inputs: Array
    targets: Array
    truth: Array


def with_gaps(inputs: Array, complete: Array, gap: str, seed: int = 0) -> Gaps:
    """Hide some of the values of every output."""
    generator = np.random.default_rng(seed)
    size, outputs = complete.shape
    hidden = np.zeros((size, outputs), dtype=bool)
    if gap == "random":
        hidden = generator.random((size, outputs)) < 1 / 3
    elif gap == "stretch":
        length = size // 6
        for output, start in enumerate(generator.permutation(outputs)):
            begin = length // 2 + start * (size - 2 * length) // max(outputs - 1, 1)
            hidden[begin : begin + length, output] = True
    elif gap == "end":
        hidden[-(size // 5) :, generator.permutation(outputs)[: outputs // 2]] = True
    else:
        raise ValueError(f"gap: expected one of {GAPS}, got {gap!r}")
    hidden &= ~np.isnan(complete)
    return Gaps(inputs, np.where(hidden, np.nan, complete), np.where(hidden, complete, np.nan))


def gap_scores(problem: Gaps, mean: Array, sd: Array) -> dict[str, Any]:
    """Means over outputs of the standardised squared error, of the NLL in units of each output, and coverage.

    Also the NLL of every value, for differences between methods.
    """
    _, centre, unit = standardised(problem.targets)
    error, spread = (mean - problem.truth) / unit, sd / unit
    hidden = ~np.isnan(problem.truth).all(axis=0)
    trivial = np.nanmean(((problem.truth - centre) / unit)[:, hidden] ** 2, axis=0)
    nll = losses(error, spread)
    inside = np.where(np.isnan(error), np.nan, np.abs(error) < NORMAL * spread)
    return {
        "smse": float(np.mean(np.nanmean(error[:, hidden] ** 2, axis=0) / trivial)),
        "nll": float(np.mean(np.nanmean(nll[:, hidden], axis=0))),
        "coverage": float(np.mean(np.nanmean(inside[:, hidden], axis=0))),
        SITES: nll[~np.isnan(nll)].tolist(),
    }
