"""Uncertainty of a filled table: standard deviations, intervals, Gaussian or conformal, and a picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from cgp.regression import CorrelatedGPRegressor

from .conformal import Conformal, gap_labels
from .frames.coordinates import Axis
from .frames.table import Table

__all__ = ["FilledMixin", "Filling", "Interval", "filling_of_rows"]

_FAR = 1e6  # ranges of the inputs


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


def filling_of_rows(regressor: CorrelatedGPRegressor, table: Table, fitted: Table) -> Filling:
    r"""The filling of rows that are at no known input, each given its own observed values only.

    .. math:: \mu_M + C_{MO} C_{OO}^{-1} (y_O - \mu_O), \qquad C_{MM} - C_{MO} C_{OO}^{-1} C_{OM}

    with the mean and the covariance of a row of readings so far from all others that they say nothing about it.

    Args:
        regressor: regressor fitted to another table of the same columns.
        table: rows to fill.
        fitted: that table.

    Returns:
        The filling.
    """
    far = fitted.inputs.max(axis=0) + _FAR * np.maximum(np.ptp(fitted.inputs, axis=0), 1.0)
    centre, covariance = (np.asarray(part) for part in regressor.predict(far[None], return_cov=True))
    centre = centre.reshape(-1)
    covariance = covariance.reshape(len(centre), -1)
    mean, sd, gaps = table.values.copy(), np.zeros_like(table.values), table.missing
    for pattern in np.unique(gaps[gaps.any(axis=1)], axis=0):
        rows, seen = (gaps == pattern).all(axis=1), ~pattern
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, pattern)])
        left = covariance[np.ix_(pattern, pattern)] - covariance[np.ix_(pattern, seen)] @ weights
        mean[np.ix_(rows, pattern)] = centre[pattern] + (table.values[np.ix_(rows, seen)] - centre[seen]) @ weights
        sd[np.ix_(rows, pattern)] = np.sqrt(left.diagonal())
    return Filling(mean, sd)


class Interval(NamedTuple):
    """Central intervals of readings.

    Attributes:
        lower: in the form of the table.
        upper: likewise.
    """

    lower: Any
    upper: Any


class FilledMixin:
    """Answers of a fitted imputer.

    Attributes:
        conformal_: errors on hidden values, which :meth:`.GapReport.calibrated` gives.
    """

    conformal_: Conformal
    _axis: Axis

    @property
    def _table(self) -> Table:
        """What was filled."""
        raise NotImplementedError

    @property
    def _filling(self) -> Filling:
        """Means and standard deviations of it."""
        raise NotImplementedError

    @property
    def std_(self) -> Any:
        """The standard deviation of every filled value, 0 for observed values."""
        check_is_fitted(self)
        return self._table.framed(self._filling.sd)

    def interval(self, level: float = 0.95, *, method: str = "gaussian") -> Interval:
        r"""Central intervals of the readings that are missing.

        .. math:: \mu_{ip} \pm q\, s_{ip}

        "gaussian" trusts the standard deviations: q is the normal quantile. "conformal" measures q on hidden blocks, by
        class of the gap's length (:class:`.Conformal`): if a gap and the hidden blocks of its class are exchangeable,
        and the fit is as good as those were, a value drawn at random from the gap is inside with at least that
        probability, however wrong the model is. That is true on average over gaps, not in each one, nor for all values
        of a gap at once. At 95 % it takes 19 blocks; with fewer the bounds are infinite, and a warning says how many
        there are.

        Args:
            level: between 0 and 1.
            method: "gaussian" or "conformal".

        Returns:
            Lower and upper ends in the form of the table; both are the value where it was observed.

        Raises:
            ValueError: if ``level`` or ``method`` is invalid, or there are no hidden blocks.

        Warns:
            UserWarning: if there are too few hidden blocks of a class of gaps.
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: expected a number between 0 and 1, got {level}")
        reach = self._factors(level, method) * self._filling.sd
        return Interval(*(self._table.framed(self._filling.mean + side * reach) for side in (-1.0, 1.0)))

    def plot(self, figure: Any = None) -> list[Any]:
        """Draw the gaps of the table, a row for each column, and each column with its filled values; places as maps.

        Args:
            figure: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes: the map of gaps, then one of each column; over two inputs, which are no times, one of each
            column. ``axes[0].figure.savefig("gaps.png")`` keeps them.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        check_is_fitted(self)
        from cgp.plotting import filled_maps, filled_table

        table, filling = self._table, self._filling
        names = [str(name) for name in table.names]
        if self._axis.is_place(table.inputs):
            east, labels, degrees = self._axis.directions()
            places = table.inputs[:, [east, 1 - east]]
            options: dict[str, Any] = {"names": names, "labels": labels, "degrees": degrees, "figure": figure}
            return filled_maps(places, filling.mean, filling.sd, table.missing, **options)
        x, label = self._axis.drawn(table.given, table.inputs)
        return filled_table(x, filling.mean, filling.sd, table.missing, names=names, xlabel=label, figure=figure)

    def _factors(self, level: float, method: str) -> NDArray[np.float64] | float:
        """Standard deviations to either side."""
        if method == "gaussian":
            return float(norm.ppf(0.5 + level / 2))
        if method != "conformal":
            raise ValueError(f"method: expected 'gaussian' or 'conformal', got {method!r}")
        if not hasattr(self, "conformal_"):
            raise ValueError(
                "method: expected 'gaussian', since no blocks were hidden: cgp.assess_gaps(table).best() has "
                "conformal intervals"
            )
        return self.conformal_.factors(gap_labels(self._table.inputs, self._table.missing), level)
