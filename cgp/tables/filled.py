"""A filled table: means and standard deviations, intervals, Gaussian or conformal, and a picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.regression import Posterior

from .conformal import Conformal, gap_labels
from .frames.coordinates import Axis
from .frames.table import Table

__all__ = ["FilledTable", "Interval"]

_FAR = 1e6  # ranges of the inputs

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Central intervals of readings.

    Attributes:
        lower: in the form of the table.
        upper: likewise.
    """

    lower: Any
    upper: Any


class FilledTable(NamedTuple):
    """A table with the mean and the standard deviation of its readings.

    Attributes:
        table: n rows, P columns.
        mean: predictive means of missing values, and observed values, ``(n, P)``.
        sd: standard deviations of missing values, 0 for observed ones, ``(n, P)``.
    """

    table: Table
    mean: Array
    sd: Array

    @classmethod
    def of(cls, posterior: Posterior, table: Table) -> FilledTable:
        """A table filled by predictions at its rows with gaps."""
        mean, sd, gaps = table.values.copy(), np.zeros_like(table.values), table.missing
        rows = gaps.any(axis=1)
        if rows.any():
            mean[gaps], sd[gaps] = (part[gaps[rows]] for part in posterior.marginals(table.inputs[rows]))
        return cls(table, mean, sd)

    @classmethod
    def of_rows(cls, posterior: Posterior, table: Table, fitted: Table) -> FilledTable:
        r"""Rows that are at no known input, each filled from its own observed values only.

        .. math:: \mu_M + C_{MO} C_{OO}^{-1} (y_O - \mu_O), \qquad C_{MM} - C_{MO} C_{OO}^{-1} C_{OM}

        with the mean and the covariance of a row of readings so far from all others that they say nothing about it.

        Args:
            posterior: given another table of the same columns.
            table: rows to fill.
            fitted: that table.

        Returns:
            The filled table.
        """
        far = fitted.inputs.max(axis=0) + _FAR * np.maximum(np.ptp(fitted.inputs, axis=0), 1.0)
        centres, covariances = posterior.covariance(far[None])
        centre, covariance = centres[0], covariances[0, :, 0]
        mean, sd, gaps = table.values.copy(), np.zeros_like(table.values), table.missing
        for pattern in np.unique(gaps[gaps.any(axis=1)], axis=0):
            rows, seen = (gaps == pattern).all(axis=1), ~pattern
            weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, pattern)])
            left = covariance[np.ix_(pattern, pattern)] - covariance[np.ix_(pattern, seen)] @ weights
            mean[np.ix_(rows, pattern)] = centre[pattern] + (table.values[np.ix_(rows, seen)] - centre[seen]) @ weights
            sd[np.ix_(rows, pattern)] = np.sqrt(left.diagonal())
        return cls(table, mean, sd)

    def filled(self) -> Any:
        """The table with the means in its gaps, as it was given."""
        return self.table.filled(self.mean)

    def std(self) -> Any:
        """The standard deviations, in the form of the table."""
        return self.table.framed(self.sd)

    def interval(self, level: float, method: str, conformal: Conformal | None) -> Interval:
        """Central intervals, "gaussian" or "conformal"; both ends are the value where it was observed."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: expected a number between 0 and 1, got {level}")
        reach = self._factors(level, method, conformal) * self.sd
        return Interval(*(self.table.framed(self.mean + side * reach) for side in (-1.0, 1.0)))

    def plot(self, axis: Axis, figure: Any = None) -> list[Any]:
        """Draw the gaps of the table, and each column with its filled values; places as maps."""
        from cgp.plotting import filled_maps, filled_table

        table = self.table
        names = [str(name) for name in table.names]
        if axis.is_place(table.inputs):
            east, labels, degrees = axis.directions()
            places = table.inputs[:, [east, 1 - east]]
            options: dict[str, Any] = {"names": names, "labels": labels, "degrees": degrees, "figure": figure}
            return filled_maps(places, self.mean, self.sd, table.missing, **options)
        x, label = axis.drawn(table.given, table.inputs)
        return filled_table(x, self.mean, self.sd, table.missing, names=names, xlabel=label, figure=figure)

    def _factors(self, level: float, method: str, conformal: Conformal | None) -> Array | float:
        """Standard deviations to either side."""
        if method == "gaussian":
            return float(norm.ppf(0.5 + level / 2))
        if method != "conformal":
            raise ValueError(f"method: expected 'gaussian' or 'conformal', got {method!r}")
        if conformal is None:
            raise ValueError(
                "method: expected 'gaussian', since no blocks were hidden: cgp.assess_gaps(table).best() has "
                "conformal intervals"
            )
        return conformal.factors(gap_labels(self.table.inputs, self.table.missing), level)
