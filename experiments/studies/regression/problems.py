"""A regression to solve and the answer to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Problem", "interval_scores", "point_losses", "scores"]

Array = NDArray[Any]


class Problem(NamedTuple):
    """Observations of several processes, and what is asked of one of them.

    Attributes:
        inputs: (n, d).
        targets: (n, P), NaN where not observed.
        test_inputs: (t, d).
        test_targets: (t,), of process 0.
    """

    inputs: Array
    targets: Array
    test_inputs: Array
    test_targets: Array

    @property
    def alone(self) -> Problem:
        """The same without the other processes."""
        seen = ~np.isnan(self.targets[:, 0])
        return self._replace(inputs=self.inputs[seen], targets=self.targets[seen, :1])


class Answer(NamedTuple):
    """Predictive marginals of new observations, in the user's units.

    Attributes:
        mean: (t,).
        sd: (t,), noise included.
        notes: what else is to be in the row.
    """

    mean: Array
    sd: Array
    notes: Mapping[str, float] = MappingProxyType({})


def scores(problem: Problem, answer: Answer) -> dict[str, float]:
    """Errors of the mean, and how honest the interval is.

    Args:
        problem: what was asked.
        answer: what was answered.
    """
    error = answer.mean - problem.test_targets
    nll = point_losses(problem, answer)
    return dict(answer.notes) | {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "nll": float(np.mean(nll)),
        "coverage": interval_scores(error, answer.sd),
    }


def point_losses(problem: Problem, answer: Answer) -> Array:
    """Negative log-density of each test target under the answer's normal marginals, (t,).

    Args:
        problem: what was asked.
        answer: what was answered.
    """
    error = answer.mean - problem.test_targets
    return 0.5 * (error / answer.sd) ** 2 + np.log(answer.sd) + 0.5 * math.log(2 * math.pi)


def interval_scores(error: Array, sd: Array) -> float:
    """Share of errors inside the central 95 % interval.

    Args:
        error: (t,).
        sd: (t,).
    """
    return float(np.mean(np.abs(error) <= 1.959964 * sd))
