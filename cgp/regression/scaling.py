"""Standardisation to unit variance, and its inverse."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Accepted", "Scaling"]

Array = NDArray[Any]

_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # of a column's largest magnitude: a smaller spread counts as zero
_WIDER = 60.0
_LEAST_SPREAD = 0.5  # standard deviation of the logarithms of scales, at least
_MEDIAN_DEVIATION = 1.4826  # standard deviations of a normal density for each median absolute deviation
_TAIL = 0.005  # share on either side, outside the range that gross errors are compared with
_FAR = 20.0  # ranges


class Scaling(NamedTuple):
    """An affine map of each column to mean 0 and variance 1.

    Columns are divided by a power of two first, exactly, so that no square overflows or vanishes.

    Attributes:
        largest: a power of two, at least the largest magnitude, ``(d,)``.
        centre: mean in units of ``largest``, ``(d,)``.
        spread: standard deviation in the same units; 1 for a constant column.
    """

    largest: Array
    centre: Array
    spread: Array

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """The scaling of columns ``(n, d)``; NaN is ignored."""
        largest = _power_of_two(np.nanmax(np.abs(values), axis=0))
        relative = values / largest
        centre = np.nanmean(relative, axis=0)
        centre = centre + np.nanmean(relative - centre, axis=0)  # the rounding error of a mean may exceed the spread
        spread = np.sqrt(np.nanmean((relative - centre) ** 2, axis=0))
        return cls(largest, centre, np.where(spread > _ROUNDING, spread, 1.0))

    @classmethod
    def of_outputs(cls, values: Array) -> Scaling:
        r"""The scaling of outputs ``(n, P)``, which takes the scales of others where few observations do not show it.

        .. math:: \log u_p = \frac{\tau^2 \log w_p + v_p \operatorname{median} \log w}{\tau^2 + v_p}, \quad
            w_p = s_p\,(1 + 60 / k_p^3), \quad v_p = (60 / k_p^3)^2 \quad (k_p > 2), \qquad
            u_p^2 = c^2 + s_p^2 + (\bar y_p - \tilde y_{-p})^2 \quad (k_p \le 2)

        k are counts, s standard deviations (0 for a single observation); τ is how much the scales w differ between
        outputs, 1.48 median absolute deviations of their logarithms and at least 0.5; c is the median of s over outputs
        with three observations or more, and the last term the distance from the level of the other outputs. If no
        output has three, c is computed from these distances, too. A constant output gets the scale of the others; if
        all are constant, the scale is the distance from zero.

        Returns:
            The scaling.
        """
        scaling, count = cls.of(values), (~np.isnan(values)).sum(axis=0)
        varies = np.nanmax(values, axis=0) - np.nanmin(values, axis=0) > _ROUNDING * scaling.largest
        deviations = np.where(varies, scaling.unit * np.sqrt(count / np.maximum(count - 1, 1)), 0.0)
        several, middle = varies & (count > 2), scaling.undo(np.zeros(len(count)))
        level = np.where(count < 3, _from_others(middle), 0.0)
        common = (
            np.median(deviations[several])
            if several.any()
            else np.hypot(_spread_of(deviations[varies]), _spread_of(level))
        )
        few = np.hypot(np.hypot(common, deviations), level)
        few = np.where(few > 0.0, few, np.where(middle == 0.0, 1.0, np.abs(middle)))
        if several.any():
            few[several] = _pooled(scaling.unit[several], count[several])
        return scaling._replace(spread=few / scaling.largest)

    def apply(self, values: Array) -> Array:
        """Values ``(n, d)`` at unit variance."""
        return (values / self.largest - self.centre) / self.spread

    def undo(self, values: Array) -> Array:
        """Values ``(..., d)`` in the user's units."""
        return (values * self.spread + self.centre) * self.largest

    def chosen(self, columns: Array) -> Scaling:
        """The scaling of some columns, in their order."""
        return Scaling(*(field[columns] for field in self))

    @property
    def unit(self) -> Array:
        """A standard deviation of 1 in the user's units, ``(d,)``."""
        return self.spread * self.largest


def _power_of_two(magnitude: Array) -> Array:
    """The smallest power of two that is not below each magnitude, within the range of floats; 1 for 0."""
    return np.ldexp(1.0, np.clip(np.frexp(magnitude)[1], -1021, 1023) * (magnitude > 0))


def _pooled(deviations: Array, count: Array) -> Array:
    """Scales of outputs, between what their standard deviations suggest and the median of that over outputs."""
    uncertainty = _WIDER / count**3.0  # of a logarithm
    logs = np.log(deviations) + np.log1p(uncertainty)
    away = logs - np.median(logs)
    spread = max(_MEDIAN_DEVIATION * float(np.median(np.abs(away))), _LEAST_SPREAD)
    return np.asarray(np.exp(logs - away * uncertainty**2 / (spread**2 + uncertainty**2)))


def _from_others(values: Array) -> Array:
    """Distance of each value from the median of the others; 0 for a single value."""
    if len(values) == 1:
        return np.zeros(1)
    return np.abs([value - np.median(np.delete(values, index)) for index, value in enumerate(values)])


def _spread_of(sizes: Array) -> float:
    return float(np.median(sizes)) if len(sizes) else 0.0


class Accepted(NamedTuple):
    """The range of each output that readings are taken from: what is farther out is an error of measurement.

    Codes of failed sensors are such values. The range needs some hundred values of an output, and a constant output has
    none.

    Attributes:
        low: ``(P,)``.
        high: ``(P,)``.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, y: Array) -> Self:
        """Twenty times the width of the middle 99 % of each output ``(n, P)``, to either side of these."""
        low, high = np.nanquantile(y, [_TAIL, 1.0 - _TAIL], axis=0)
        width = np.where(high > low, high - low, np.inf)
        return cls(low - _FAR * width, high + _FAR * width)

    @classmethod
    def everything(cls, num_outputs: int) -> Self:
        """No limits."""
        return cls(np.full(num_outputs, -np.inf), np.full(num_outputs, np.inf))

    def errors(self, y: Array) -> NDArray[np.bool_]:
        """The values outside, in the shape of y ``(n, P)``.

        Args:
            y: outputs, NaN for unobserved entries.

        Returns:
            Booleans in its shape.

        Warns:
            UserWarning: if there are any, with their number and the most extreme of each output.
        """
        with np.errstate(invalid="ignore"):
            far = (y < self.low) | (y > self.high)
        if far.any():
            farthest = {
                int(p): float(f"{y[far[:, p], p][np.argmax(np.abs(y[far[:, p], p]))]:.6g}")
                for p in np.flatnonzero(far.any(0))
            }
            warnings.warn(
                f"y: {far.sum()} values are farther than {_FAR:g} times the width of the middle 99 % from all others "
                f"and are left out as errors of measurement; the farthest by output: {farthest}. If they are right, "
                "rescale the outputs, for example by their logarithm.",
                UserWarning,
                stacklevel=2,
            )
        return far
