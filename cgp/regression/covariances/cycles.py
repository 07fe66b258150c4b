"""Detection of cycles in a series: lines in the periodogram of its outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from scipy.signal import find_peaks, periodogram

__all__ = ["strongest_periods"]

Array = NDArray[np.float64]

_NEIGHBOURS = 101  # frequencies whose median is the background
_HEIGHT = 20.0  # backgrounds; of white noise, one frequency in e^14 reaches this above its median
_LEAST_CYCLES = 10  # in the whole series
_LEAST_ROWS = 4  # of a cycle
_SMALLEST, _LARGEST = 2.0 * _NEIGHBOURS, 2.0e6  # length of the series in steps


def strongest_periods(inputs: Array, outputs: Array, count: int = 3) -> list[float]:
    r"""Periods of the strongest lines in the mean periodogram of all outputs.

    A line is a frequency with at least twenty times the median power of the hundred frequencies around it; a random
    walk has none. Gaps are interpolated linearly, and irregular inputs are interpolated to a grid of their median
    step.

    Args:
        inputs: inputs in increasing order, ``(N,)``.
        outputs: outputs, NaN where missing, ``(N, P)``.
        count: largest number of periods to return.

    Returns:
        In units of the inputs, the strongest first; between four steps and a tenth of the series.

    Example:
        >>> t = np.arange(600.0)
        >>> y = np.random.default_rng(0).normal(size=600).cumsum() / 30 + np.sin(2 * np.pi * t / 24)
        >>> [round(period, 1) for period in strongest_periods(t, y[:, None])]
        [24.0]
    """
    steps = np.diff(inputs)
    step = float(np.median(steps[steps > 0.0])) if (steps > 0.0).any() else 0.0
    if not _SMALLEST * step < inputs[-1] - inputs[0] < _LARGEST * step:
        return []
    grid = np.arange(inputs[0], inputs[-1], step)
    power = np.mean([_power(grid, inputs, column) for column in outputs.T], axis=0)
    height = power / median_filter(power, size=_NEIGHBOURS, mode="reflect")
    peaks, _ = find_peaks(height, height=_HEIGHT)
    peaks = peaks[(peaks >= _LEAST_CYCLES) & (len(grid) / peaks >= _LEAST_ROWS)]
    strongest = sorted(peaks, key=lambda peak: -power[peak])[:count]
    return [len(grid) * step / _refined(power, peak) for peak in strongest]


def _power(grid: Array, inputs: Array, column: Array) -> Array:
    seen = ~np.isnan(column)
    values = np.interp(grid, inputs[seen], column[seen])
    spread = values.std()
    _, power = periodogram(values / spread if spread > 0.0 else values, window="hann", detrend="linear")
    return np.asarray(power)


def _refined(power: Array, peak: int) -> float:
    """The location of a maximum between frequencies, by a parabola through three logarithms."""
    before, at, after = np.log(power[peak - 1 : peak + 2])
    return float(peak + 0.5 * (before - after) / (before - 2.0 * at + after))
