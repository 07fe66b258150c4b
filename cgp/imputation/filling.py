"""What a fitted regressor says of the gaps of a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.regression import CorrelatedGPRegressor

from .tables import Table

__all__ = ["Filling"]


class Filling(NamedTuple):
    """Mean and standard deviation of readings.

    Attributes:
        mean: of what is missing, and what was observed, ``(n, P)``.
        sd: of what is missing, 0 for what was observed, ``(n, P)``.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, regressor: CorrelatedGPRegressor, table: Table) -> Filling:
        """That of a table, in whose rows with gaps the regressor is asked."""
        mean, sd, gaps = table.values.copy(), np.zeros_like(table.values), table.missing
        rows = gaps.any(axis=1)
        if rows.any():
            predicted = [np.asarray(part) for part in regressor.predict(table.inputs[rows], return_std=True)]
            mean[gaps], sd[gaps] = (part.reshape(-1, gaps.shape[1])[gaps[rows]] for part in predicted)
        return cls(mean, sd)
