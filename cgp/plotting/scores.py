"""Scores of several methods side by side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cgp.plotting._arrays import named
from cgp.plotting.style import GREY, PALE, PALETTE, WIDE, new_figure, styled

__all__ = ["method_scores"]

_ROW, _FRAME = 0.22, 0.75  # inches
_BEST: dict[str, Any] = {"lw": 0.7, "ls": (0, (4, 2))}
_LIMIT = 4.0  # of the axis beyond the best score, in distances from the best to the median


@styled
def method_scores(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    xlabel: str = "score",
    chosen: str | None = None,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:
    """Scores of methods in several settings, smaller is better: a panel for each setting, a row for each method.

    A score that is far worse than the others is an arrow at the edge of its panel, with its number.

    Args:
        panels: For each setting, for each method, its score and the standard error; two of them to either side are
            drawn.
        xlabel: Name and unit of the scores.
        chosen: Name of the method that is drawn in the second colour, as the recommended one.
        figure: Figure or subfigure to draw in; without, a new one of two columns' width.

    Returns:
        The axes, one for each setting.

    Raises:
        ValueError: If there is nothing to draw.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = method_scores({"gaps of 1": {"lines": (0.1, 0.02), "ridge": (0.3, 0.1)}}, figure=Figure())
        >>> [label.get_text() for label in axes[0].get_yticklabels()]
        ['lines', 'ridge']
    """
    methods = list(named(next(iter(named(panels, "panels").values())), "panels"))
    figure = new_figure(figure, width=WIDE, height=_FRAME + _ROW * len(methods))
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for ax, (title, scores) in zip(axes, panels.items(), strict=True):
        _panel(ax, scores, chosen)
        ax.set_title(title)
    axes[0].set_yticks(range(len(methods)), methods)
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(xlabel, fontsize=8)
    looks = {"smallest": {"color": GREY, **_BEST}}
    if chosen in methods:
        looks["recommended"] = {"color": PALETTE[1], "marker": "o"}
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=2)
    return np.asarray(axes, dtype=np.object_)


def _panel(ax: Any, scores: Mapping[str, tuple[float, float]], chosen: str | None) -> None:
    values = np.array([score for score, _ in scores.values()])
    best = float(values.min())
    limit = best + _LIMIT * max(float(np.median(values)) - best, 1e-9)
    for row, (name, (score, error)) in enumerate(scores.items()):
        colour = PALETTE[1] if name == chosen else PALETTE[0]
        if score > limit and len(values) > 2:
            ax.annotate(f"{score:.3g} →", (1, row), xycoords=("axes fraction", "data"), ha="right", va="center",
                        fontsize=7, color=colour)  # fmt: skip
            continue
        width = 2 * error if np.isfinite(error) else 0.0
        ax.errorbar(score, row, xerr=width, fmt="o", color=colour)
    ax.axvline(best, color=GREY, **_BEST)
    ax.grid(axis="y", color=PALE, lw=0.6)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(4))
