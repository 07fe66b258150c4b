"""Do the chains of a sampler agree?"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cgp.plotting._arrays import as_array
from cgp.plotting.style import GREY, line_look, new_axes, place_legend, styled

__all__ = ["rank_plot", "trace_plot"]


@styled
def trace_plot(
    chains: Any,  # shape: (C, S)
    *,
    name: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Samples of one parameter in the order they came, a line a chain: they should look like one band.

    Args:
        chains: Samples (C, S).
        name: Of the parameter, with its unit.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = trace_plot([[1.0, 2.0], [1.5, 1.7]], ax=Figure().add_subplot())
        >>> len(ax.lines)
        2
    """
    chains = as_array(chains, "chains", 2)
    outside = ax is None
    ax = new_axes(ax, height=2.0)
    for number, chain in enumerate(chains):
        look = line_look(number) | {"marker": "", "lw": 0.7, "alpha": 0.85}
        ax.plot(np.arange(1, len(chain) + 1), chain, label=f"chain {number + 1}", **look)
    ax.set(xlabel="Sample", ylabel=name)
    ax.margins(x=0)
    place_legend(ax, outside=outside)
    return ax


@styled
def rank_plot(
    chains: Any,  # shape: (C, S)
    *,
    bins: int = 20,
    name: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Where the samples of each chain rank among all: flat lines if the chains agree.

    Args:
        chains: Samples (C, S).
        bins: Number of steps.
        name: Of the parameter.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no step.

    Source:
        Vehtari et al. (2021), Rank-normalization, folding, and localization, section 5.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = rank_plot([[1.0, 4.0], [2.0, 3.0]], bins=2, ax=Figure().add_subplot())
        >>> len(ax.patches)
        2
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    chains = as_array(chains, "chains", 2)
    outside = ax is None
    ax = new_axes(ax, height=2.0)
    ranks = chains.ravel().argsort(kind="stable").argsort(kind="stable").reshape(chains.shape)
    edges = np.linspace(0, chains.size, bins + 1)
    ax.axhline(chains.shape[1] / bins, color=GREY, ls=(0, (4, 2)), lw=0.9)
    for number, chain in enumerate(ranks):
        counts = np.histogram(chain, edges)[0]
        ax.stairs(counts, edges, baseline=None, color=line_look(number)["color"], lw=1.4, label=f"chain {number + 1}")
    ax.set(xlabel=f"Rank of {name}", ylabel="Samples", xlim=(0, chains.size))
    ax.set_ylim(bottom=0)
    place_legend(ax, outside=outside)
    return ax
