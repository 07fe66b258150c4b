"""Are intervals honest?"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cgp.plotting._arrays import Array, as_array
from cgp.plotting.style import GREY, PALE, PALETTE, line_look, new_axes, place_legend, styled

__all__ = ["interval_coverage", "pit_histogram"]


@styled
def interval_coverage(
    cumulative: dict[str, Any],  # each of shape (N,)
    *,
    ax: Axes | None = None,
) -> Axes:
    r"""Share of observations inside central intervals against the share that was promised.

    .. math:: c(q) = \frac1N \sum_i [\,|2F_i(y_i) - 1| \le q\,]

    Above the diagonal intervals are too wide, below it too narrow.

    Args:
        cumulative: For each method, the predictive distribution function at the observation, F(y), (N,).
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no method, or a value lies outside [0, 1].

    Source:
        Kuleshov, Fenner & Ermon (2018), Accurate uncertainties for deep learning using calibrated regression.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = interval_coverage({"gp": [0.1, 0.4, 0.6, 0.9]}, ax=Figure().add_subplot())
        >>> ax.lines[1].get_ydata()[-1].item()
        1.0
    """
    if not cumulative:
        raise ValueError("cumulative must be a non-empty mapping from names to arrays")
    values = {name: _probabilities(given, f"cumulative[{name!r}]") for name, given in cumulative.items()}
    outside = ax is None
    ax = new_axes(ax, height=2.8)
    promised = np.linspace(0, 1, 101)
    ax.plot([0, 1], [0, 1], color=GREY, ls=(0, (4, 2)), lw=0.9)
    for index, (name, one) in enumerate(values.items()):
        inside = np.sort(np.abs(2 * one - 1))
        covered = np.searchsorted(inside, promised + 1e-12, side="right") / len(inside)
        ax.plot(promised, covered, label=name, **(line_look(index) | {"marker": ""}))
    ax.set(xlabel="Promised share", ylabel="Share inside the interval", xlim=(0, 1), ylim=(0, 1.005))
    place_legend(ax, outside=outside)
    return ax


@styled
def pit_histogram(
    cumulative: Any,  # shape: (N,)
    *,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of the probability-integral transform: flat if the predictive distribution is right.

    A hump means too wide, a valley too narrow, a slope a bias. The shade holds 95 % of the bars of a flat one.

    Args:
        cumulative: The predictive distribution function at the observation, F(y), (N,).
        bins: Number of bars.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no bar, or a value lies outside [0, 1].

    Source:
        Gneiting, Balabdaoui & Raftery (2007), Probabilistic forecasts, calibration and sharpness, section 3.1.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = pit_histogram([0.1, 0.4, 0.6, 0.9], bins=2, ax=Figure().add_subplot())
        >>> [bar.get_height().item() for bar in ax.patches[-2:]]
        [1.0, 1.0]
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    cumulative = _probabilities(cumulative, "cumulative")
    ax = new_axes(ax)
    density = np.histogram(cumulative, bins, (0, 1))[0] * bins / len(cumulative)
    # Two standard deviations of a binomial count, the normal approximation of its central 95 %.
    spread = 1.96 * np.sqrt((1 - 1 / bins) * bins / len(cumulative))
    ax.axhspan(max(0.0, 1 - spread), 1 + spread, color=PALE, lw=0, zorder=0)
    ax.axhline(1, color=GREY, ls=(0, (4, 2)), lw=0.9)
    ax.bar((np.arange(bins) + 0.5) / bins, density, 1 / bins, color=PALETTE[0], edgecolor="white", lw=0.6, zorder=2)
    ax.set(xlabel="F(y)", ylabel="Density", xlim=(0, 1))
    return ax


def _probabilities(values: Any, name: str) -> Array:
    array = as_array(values, name, 1)
    if array.min() < 0 or array.max() > 1:
        raise ValueError(f"{name} must lie in [0, 1], got [{array.min():.3g}, {array.max():.3g}]")
    return array
