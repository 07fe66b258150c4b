"""Is a probability of 0.8 right eight times in ten?"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_mask
from cgp.plotting.style import GREY, INK, OVER, PALETTE, UNDER, new_axes, styled

__all__ = ["reliability_diagram"]


@styled
def reliability_diagram(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
    *,
    bins: int = 15,
    ax: Axes | None = None,
) -> Axes:
    r"""Accuracy against confidence in bins, their counts beneath, and the expected calibration error.

    .. math::
        \mathrm{ECE} = \sum_m \frac{n_m}{N} |c_m - a_m|

    with mean confidence c and accuracy a of bin m. Bins are (lo, hi] of equal width. The counts are on a logarithmic
    axis: a large gap of a bin with few samples says little.

    Args:
        confidence: Probability of the predicted class (N,), in [0, 1].
        correct: Whether the prediction was right (N,).
        bins: Number of bins.
        ax: Axes to draw in; without, a new figure of one column. The counts are an inset beneath, ``ax.child_axes[0]``.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree or a confidence lies outside [0, 1].

    Source:
        Guo et al. (2017), On Calibration of Modern Neural Networks, figure 1.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = reliability_diagram([0.9, 0.8, 0.6, 0.7], [1, 1, 0, 1], bins=2, ax=Figure().add_subplot())
        >>> ax.texts[0].get_text()
        'ECE 0.000'
    """
    confidence = as_array(confidence, "confidence", 1)
    correct = as_mask(correct, "correct", len(confidence))
    if confidence.min() < 0 or confidence.max() > 1:
        raise ValueError(f"confidence must lie in [0, 1], got [{confidence.min():.3g}, {confidence.max():.3g}]")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    ax = new_axes(ax, height=3.6)
    centres, counts, mean, accuracy = _binned(confidence, correct, bins)
    ece = float(np.average(np.abs(mean - accuracy), weights=counts))
    _gaps(ax, centres, mean, accuracy, 1 / bins)
    ax.plot([0, 1], [0, 1], color=GREY, ls=(0, (4, 2)), lw=0.9)
    ax.text(0.03, 0.68, f"ECE {ece:.3f}", transform=ax.transAxes, weight="bold")
    ax.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", borderaxespad=0.1)
    _counts_beneath(ax, centres, counts, 1 / bins)
    return ax


def _binned(confidence: Array, correct: NDArray[np.bool_], bins: int) -> tuple[Array, Array, Array, Array]:
    """Centres, counts, mean confidence and accuracy of the bins that are not empty."""
    index = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence) - 1, 0, bins - 1)
    counts = np.bincount(index, minlength=bins)
    filled = counts > 0
    sums = [np.bincount(index, weights=values, minlength=bins)[filled] for values in (confidence, correct)]
    centres = (np.arange(bins)[filled] + 0.5) / bins
    return centres, counts[filled], sums[0] / counts[filled], sums[1] / counts[filled]


def _gaps(ax: Axes, centres: Array, mean: Array, accuracy: Array, width: float) -> None:
    """Accuracy as bars, and between them and the confidence the gap, coloured by its sign."""
    ax.bar(centres, accuracy, width, color=PALETTE[0], edgecolor="white", lw=0.6, label="accuracy")
    for name, chosen, colour in (
        ("over-confident", mean > accuracy, OVER),
        ("under-confident", mean < accuracy, UNDER),
    ):
        if chosen.any():
            gap = (mean - accuracy)[chosen]
            bars: dict[str, Any] = {"color": colour, "edgecolor": "white", "lw": 0.6}
            ax.bar(centres[chosen], gap, width, accuracy[chosen], label=name, **bars)
    ax.hlines(accuracy, centres - width / 2, centres + width / 2, color=INK, lw=1)


def _counts_beneath(ax: Axes, centres: Array, counts: Array, width: float) -> None:
    ax.tick_params(labelbottom=False)
    strip = ax.inset_axes((0, -0.3, 1, 0.24), sharex=ax)
    strip.spines[["top", "right"]].set_visible(False)
    strip.bar(centres, counts, width, color=GREY, edgecolor="white", lw=0.6)
    strip.set(xlabel="Confidence", ylabel="Count", yscale="log", ylim=(0.5, 2 * counts.max()))
