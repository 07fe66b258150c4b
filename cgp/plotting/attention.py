"""Inside the attention: the matrix, its asymmetry, its uncertainty, its spectrum."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_groups, as_matching
from cgp.plotting.style import DIVERGING, PALE, PALETTE, SEQUENTIAL, WIDE, line_look, new_figure, styled

__all__ = ["attention_matrix", "spectrum"]


@styled
def attention_matrix(
    matrix: Any,  # shape: (n, n)
    sd: Any = None,  # shape: (n,)
    *,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:  # shape: (2,) or (3,)
    r"""An attention matrix, its antisymmetric part :math:`(A - A^\top) / 2`, and the predictive sd in each query's row.

    Args:
        matrix: Weights of the keys (columns) for each query (rows), (n, n); cross-covariances may be negative.
        sd: Predictive standard deviation of each query's output (n,), if there is one.
        figure: Figure or subfigure to draw in; without, a new one of two columns' width.

    Returns:
        Axes of the matrix, of the antisymmetric part, and of the deviations, an inset beside the matrix, where given.

    Raises:
        ValueError: If the matrix is not square or the deviations are not n non-negative numbers.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = attention_matrix([[0.5, 0.5], [0.1, 0.9]], figure=Figure())
        >>> axes[1].images[0].get_array().tolist()
        [[0.0, 0.2], [-0.2, 0.0]]
    """
    matrix = as_array(matrix, "matrix", 2)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got shape {matrix.shape}")
    deviations = None if sd is None else as_matching(sd, "sd", (len(matrix),))
    if deviations is not None and deviations.min() < 0:
        raise ValueError(f"sd must not be negative, got a smallest value of {deviations.min():.3g}")
    figure = new_figure(figure, width=WIDE, height=3.4)
    axes = list(figure.subplots(1, 2))
    _heat(axes[0], matrix, "attention", diverging=bool(matrix.min() < 0))
    _heat(axes[1], (matrix - matrix.T) / 2, "antisymmetric part", diverging=True)
    axes[0].set_ylabel("Query")
    if deviations is not None:
        axes.append(_deviations_beside(axes[0], deviations))
    return np.asarray(axes, dtype=np.object_)


def _heat(ax: Axes, values: Array, title: str, *, diverging: bool) -> None:
    bound = float(np.abs(values).max()) or 1.0
    low, colours = (-bound, DIVERGING) if diverging else (0.0, SEQUENTIAL)
    shown = ax.imshow(values, interpolation="nearest", cmap=colours, vmin=low, vmax=bound)
    ax.set(title=title, xlabel="Key")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    bar = ax.figure.colorbar(shown, ax=ax, location="bottom", shrink=0.8, pad=0.03, aspect=30, ticks=MaxNLocator(5))
    bar.outline.set_visible(False)


def _deviations_beside(matrix: Axes, sd: Array) -> Axes:
    """Bars in the rows of the matrix, whatever the layout makes of its size."""
    ax = matrix.inset_axes((1.04, 0, 0.28, 1), sharey=matrix)
    ax.barh(np.arange(len(sd)), sd, height=0.9, color=PALETTE[0])
    ax.set(title="predictive sd", xlim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelleft=False)
    ax.xaxis.set_major_locator(MaxNLocator(2))
    return ax


@styled
def spectrum(
    singular_values: Mapping[str, Any],  # each of shape (k,)
    *,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:  # shape: (2,)
    r"""Singular values relative to the largest, and the share of the squared norm that the first ones explain.

    .. math::
        \sum_{i \le r} \sigma_i^2 \Big/ \sum_i \sigma_i^2

    Args:
        singular_values: For each matrix, its singular values (k,) in any order.
        figure: Figure or subfigure to draw in; without, a new one of two columns' width.

    Returns:
        Axes of the values and of the explained share.

    Raises:
        ValueError: If a value is negative, or all of one matrix are zero.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = spectrum({"layer 1": [1.0, 2.0, 1.0]}, figure=Figure())
        >>> axes[0].lines[0].get_ydata().tolist(), axes[1].lines[0].get_ydata().round(3).tolist()
        ([1.0, 0.5, 0.5], [0.667, 0.833, 1.0])
    """
    values = {key: np.sort(v)[::-1] for key, v in as_groups(singular_values, "singular_values").items()}
    for key, ordered in values.items():
        if ordered[-1] < 0 or ordered[0] <= 0:
            raise ValueError(f"singular_values[{key!r}] must be non-negative and not all zero")
    figure = new_figure(figure, width=WIDE, height=2.6)
    axes = np.asarray(figure.subplots(1, 2), dtype=np.object_)
    for index, (key, ordered) in enumerate(values.items()):
        rank = np.arange(1, len(ordered) + 1)
        look = line_look(index) | ({"marker": ""} if len(ordered) > 20 else {})
        axes[0].plot(rank, ordered / ordered[0], label=key, **look)
        axes[1].plot(rank, np.cumsum(ordered**2) / np.sum(ordered**2), label=key, **look)
    axes[0].set(ylabel="Singular value / largest", yscale="log")
    axes[1].set(ylabel="Explained share", ylim=(None, 1.02))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color=PALE, lw=0.6)
        ax.set_xlabel("Rank")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[1].legend(loc="lower right")
    return axes
