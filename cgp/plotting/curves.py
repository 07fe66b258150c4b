"""Curves over strength of shift, epochs or layers: mean and standard deviation over runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cgp.plotting._arrays import Array, as_array, as_curves
from cgp.plotting.style import GREY, PALE, line_look, new_axes, place_legend, styled

__all__ = ["shift_curves", "similarity_by_layer", "training_curves"]


@styled
def shift_curves(
    strengths: Any,  # shape: (K,)
    curves: Mapping[str, Any],  # each of shape (K,) or (R, K)
    *,
    confidence: Mapping[str, Any] | None = None,  # each of shape (K,) or (R, K)
    ylabel: str = "Accuracy",
    ax: Axes | None = None,
) -> Axes:
    """A metric against the strength of a shift, a line a method, with a band of one standard deviation over runs.

    With ``confidence``, each method gets a second, dashed line of its colour: honest confidence falls with accuracy.

    Args:
        strengths: Strengths of the shift (K,), e.g. 0 for clean inputs, then 1 to 5.
        curves: For each method, values (K,), or (R, K) over R runs.
        confidence: For the same methods, mean confidence in the same shapes.
        ylabel: Name of the metric.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If shapes disagree, or ``confidence`` names a method that ``curves`` does not.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = shift_curves([0, 1, 2], {"softmax": [0.9, 0.8, 0.5]}, ax=Figure().add_subplot())
        >>> ax.lines[0].get_ydata().tolist()
        [0.9, 0.8, 0.5]
    """
    strengths = as_array(strengths, "strengths", 1)
    solid = as_curves(curves, "curves", len(strengths))
    dashed = {} if confidence is None else as_curves(confidence, "confidence", len(strengths))
    if not set(dashed) <= set(solid):
        raise ValueError(f"confidence must name methods of curves, got {sorted(set(dashed) - set(solid))} besides")
    outside = ax is None
    ax = new_axes(ax, height=2.4)
    _draw(ax, strengths, solid)
    for index, key in enumerate(solid):
        if key in dashed:
            look = line_look(index) | {"ls": (0, (3, 2)), "marker": "", "lw": 1.1}
            ax.plot(strengths, np.nanmean(dashed[key], axis=0), **look)
    if dashed:
        ax.add_line(Line2D([], [], color=GREY, ls=(0, (3, 2)), lw=1.1, label="mean confidence"))
    ax.set(xlabel="Strength of shift", ylabel=ylabel)
    ax.set_xticks(strengths)
    place_legend(ax, outside=outside)
    return ax


@styled
def training_curves(
    steps: Any,  # shape: (K,)
    parts: Mapping[str, Any],  # each of shape (K,) or (R, K)
    *,
    xlabel: str = "Epoch",
    ylabel: str = "Nats per sample",
    yscale: str = "linear",
    ax: Axes | None = None,
) -> Axes:
    """Parts of the objective during training: expected log-likelihood, divergences, validation loss.

    Args:
        steps: Epochs or steps (K,).
        parts: For each part, values (K,), or (R, K) over R runs. NaN, as of a run that broke off, leaves a gap.
        xlabel: Name of the steps.
        ylabel: Name and unit of the parts.
        yscale: A scale of matplotlib, ``"linear"``, ``"log"`` or ``"symlog"``.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = training_curves([1, 2], {"NLL": [2.0, 1.0], "KL": [0.1, 0.3]}, ax=Figure().add_subplot())
        >>> [line.get_label() for line in ax.lines]
        ['NLL', 'KL']
    """
    steps = as_array(steps, "steps", 1)
    values = as_curves(parts, "parts", len(steps))
    outside = ax is None
    ax = new_axes(ax, height=2.4)
    _draw(ax, steps, values, markers=len(steps) <= 12)
    ax.set(xlabel=xlabel, ylabel=ylabel, yscale=yscale)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    place_legend(ax, outside=outside)
    return ax


@styled
def similarity_by_layer(
    curves: Mapping[str, Any],  # each of shape (L,) or (R, L)
    *,
    ylabel: str = "Mean cosine similarity of tokens",
    ax: Axes | None = None,
) -> Axes:
    """How alike the tokens of an input have become after each layer: at 1 they are all one (over-smoothing).

    Args:
        curves: For each method, the mean similarity after each of L layers, (L,) or (R, L) over R runs.
        ylabel: Name of the measure.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If the curves differ in the number of layers.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = similarity_by_layer({"softmax": [0.4, 0.7, 0.95]}, ax=Figure().add_subplot())
        >>> ax.lines[0].get_xdata().tolist()
        [1, 2, 3]
    """
    if not curves:
        raise ValueError("curves must be a non-empty mapping from names to arrays")
    layers = np.arange(1, as_array(next(iter(curves.values())), "curves", (1, 2), finite=False).shape[-1] + 1)
    values = as_curves(curves, "curves", len(layers))
    outside = ax is None
    ax = new_axes(ax, height=2.4)
    _draw(ax, layers, values)
    ax.set(xlabel="Layer", ylabel=ylabel, xticks=layers)
    ax.set_ylim(top=max(1.0, ax.get_ylim()[1]) if max(v.max() for v in values.values()) > 0.5 else None)
    place_legend(ax, outside=outside)
    return ax


def _draw(ax: Axes, x: Array, curves: Mapping[str, Array], *, markers: bool = True) -> None:
    """One line a curve through the mean over its runs, in a band of one standard deviation where there are several."""
    ax.grid(axis="y", color=PALE, lw=0.6)
    for index, (key, values) in enumerate(curves.items()):
        look = line_look(index) | ({} if markers else {"marker": ""})
        mean = np.where(np.isnan(values).all(axis=0), np.nan, np.ma.masked_invalid(values).mean(axis=0).filled(np.nan))
        ax.plot(x, mean, label=key, **look)
        if len(values) > 1:
            sd = np.ma.masked_invalid(values).std(axis=0, ddof=1).filled(np.nan)
            ax.fill_between(x, mean - sd, mean + sd, color=look["color"], alpha=0.18, lw=0)
