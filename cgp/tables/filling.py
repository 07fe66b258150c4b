"""Predictions of a fitted regressor for the gaps of a table."""

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
        mean: predictive means of missing values, and observed values, ``(n, P)``.
        sd: standard deviations of missing values, 0 for observed ones, ``(n, P)``.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, regressor: CorrelatedGPRegressor, table: Table) -> Filling:
        """The filling of a table, by predictions at its rows with gaps."""
        mean, sd, gaps = table.values.copy(), np.zeros_like(table.values), table.missing
        rows = gaps.any(axis=1)
        if rows.any():
            predicted = [np.asarray(part) for part in regressor.predict(table.inputs[rows], return_std=True)]
            mean[gaps], sd[gaps] = (part.reshape(-1, gaps.shape[1])[gaps[rows]] for part in predicted)
        return cls(mean, sd)
