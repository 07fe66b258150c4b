"""Pictures of an attention matrix, its asymmetry and its uncertainty."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_matching
from cgp.plotting.style import DIVERGING, PALETTE, SEQUENTIAL, WIDE, new_figure, styled

__all__ = ["attention_matrix"]


@styled
def attention_matrix(matrix: Any, sd: Any = None, *, figure: FigureBase | None = None) -> NDArray[np.object_]:
    r"""An attention matrix, its antisymmetric part :math:`(A - A^\top) / 2`, and the predictive sd in each query's row.

    Args:
        matrix: Weights of the keys (columns) for each query (rows), (n, n); cross-covariances may be negative.
        sd: Predictive standard deviation of each query's output (n,), or None.
        figure: Figure or subfigure to draw in; by default a new one of two columns' width.

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
    """Bars beside the rows of the matrix, aligned with them for any layout."""
    ax = matrix.inset_axes((1.04, 0, 0.28, 1), sharey=matrix)
    ax.barh(np.arange(len(sd)), sd, height=0.9, color=PALETTE[0])
    ax.set(title="predictive sd", xlim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelleft=False)
    ax.xaxis.set_major_locator(MaxNLocator(2))
    return ax
