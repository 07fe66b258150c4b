"""Conformal prediction: sets and intervals that hold the truth with a given probability, by held-out labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["conformal_quantile"]

Array = NDArray[Any]


def conformal_quantile(scores: Array, error: float) -> float:
    r"""The score that a further one exceeds with probability at most :math:`\alpha`, :math:`s_{(k)}` of n scores.

    .. math:: k = \lceil (n + 1)(1 - \alpha) \rceil

    Args:
        scores: of held-out examples, ``(n,)``, exchangeable with those to come.
        error: :math:`\alpha`, in (0, 1).

    Returns:
        The score; infinite where k is above n.

    Note:
        Vovk, Gammerman & Shafer, Algorithmic Learning in a Random World (2005).

    Example:
        >>> conformal_quantile(np.arange(1.0, 10.0), 0.2), conformal_quantile(np.arange(3.0), 0.1)
        (8.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * (1.0 - error) - 1e-9)  # what is whole stays whole under rounding
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf
