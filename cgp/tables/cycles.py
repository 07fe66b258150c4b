"""What a user is told of cycles that are visible in a table which is not searched for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cgp.regression.covariances import MultiScale
from cgp.regression.covariances.multiscale import stands_out
from cgp.regression.inference.setting import chosen
from cgp.regression.observations import Observations
from cgp.warning import warn_user

from .frames.coordinates import PERIOD_NAMES, YEAR, offered_periods

__all__ = ["spelled", "warn_of_cycles"]

_FEWEST = 14.0  # cycles in the table: one random walk of 25 seems to have ten to thirteen
_OF_A_DAY = tuple(hours / 24.0 for hours in (12.0, 8.0, 6.0, 4.0, 3.0))  # harmonics, which tides are not near
_NEAR = 0.02  # of a period of the calendar, which a found one is then taken for, or of a harmonic
_UNITS = ((1.0, "D"), (1.0 / 24.0, "h"), (1.0 / 1440.0, "min"), (1.0 / 86400.0, "s"))


def warn_of_cycles(inputs: NDArray[np.float64], values: NDArray[np.float64], *, is_time: bool) -> None:
    """Warn of cycles that are visible in a series so short that a fit does not look for them.

    Args:
        inputs: of the rows, days where they are times, ``(n, d)``.
        values: NaN where missing, ``(n, P)``.
        is_time: whether the input is a time.

    Warns:
        UserWarning: if there are such cycles, but for a year that the fit tries.
    """
    given = Observations(inputs, values)
    if inputs.shape[1] != 1 or isinstance(chosen(given, "auto", "auto", None, None)[0], MultiScale):
        return
    span = float(np.ptp(inputs))
    periods = [
        float(each) for each in MultiScale(num_factors=0).resolved(given).periods if span >= _FEWEST * float(each)
    ]
    order = np.argsort(inputs[:, 0], kind="stable")
    lines = [period for period in periods if stands_out(inputs[order, 0], values[order], period)]
    found = [period for period in periods if any(_are_harmonics(period, line) for line in lines)]
    if is_time:
        tried = YEAR in offered_periods(inputs[:, 0], int(given.observed.sum()))
        found = [each for each in dict.fromkeys(map(_nearest, found)) if each != YEAR or not tried]
    if found:
        said, spans = zip(*(spelled(period, is_time=is_time) for period in found), strict=True)
        they_are = f"cycles of {' and '.join(said)} are" if len(said) > 1 else f"a cycle of {said[0]} is"
        warn_user(
            f"table: {they_are} visible, and a table this short is not searched for any: "
            f"structure=MultiScale(periods={[*spans]}) names {'them' if len(said) > 1 else 'it'}"
        )


def spelled(period: float, *, is_time: bool) -> tuple[str, str | float]:
    """A period in words, and as the argument of :class:`.MultiScale`.

    Args:
        period: in units of the input, days where it is a time.
        is_time: whether it is.

    Returns:
        Both.

    Example:
        >>> spelled(1.0, is_time=True), spelled(0.5175, is_time=True), spelled(24.02, is_time=False)
        (('1 d', '1D'), ('12.4 h', '12.4h'), ('24', 24.0))
    """
    if not is_time:
        return f"{period:.3g}", float(f"{period:.3g}")
    size, unit = next(((size, unit) for size, unit in _UNITS if period >= size), _UNITS[-1])
    number = f"{period:g}" if period in PERIOD_NAMES else f"{period / size:.3g}"
    return f"{number} {unit.replace('D', 'd')}", f"{number}{unit}"


def _are_harmonics(period: float, other: float) -> bool:
    """Whether one is a whole number of times the other, or the same."""
    ratio = max(period / other, other / period)
    return abs(ratio / round(ratio) - 1.0) <= _NEAR


def _nearest(period: float) -> float:
    """The period of the calendar, or harmonic of a day, that this one is nearly, or itself."""
    return next((known for known in (*PERIOD_NAMES, *_OF_A_DAY) if abs(period / known - 1.0) <= _NEAR), period)
