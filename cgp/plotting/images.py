"""Uncertainty shown on images."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import FigureBase
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from cgp.plotting._arrays import Array, as_array, as_image
from cgp.plotting.style import GREY, INK, PALETTE, SEQUENTIAL, WIDE, log_ticks, new_axes, new_figure, styled

__all__ = ["example_gallery", "variance_map", "variance_maps"]

SCALES = ("linear", "log")
_EXAMPLES, _FITTING = 6, 14  # images of a row, and letters of a title that leave a gap to the next
_MOST_LINED = 16  # patches to a side, between which lines leave something of the image
_SAID, _LETTER = 0.18, 0.068  # inches, of a line of words, and of a letter of a bar's name
_BESIDE = 1.06  # of an image's width: from its left edge to that of the map beside it


@styled
def variance_map(image: Any, variance: Any, *, label: str = "Predictive variance", ax: Axes | None = None) -> Axes:
    """An image, and the predictive variance of each of its patches beside it.

    Args:
        image: Grey (H, W) or (1, H, W), or colour (H, W, 3) or (3, H, W) in [0, 1], or of integers up to 255.
        variance: Variance of each patch (h, w), in the patches' places.
        label: Name of the colour bar.
        ax: Axes to draw in; by default a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If the variance is not a grid or is negative.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = variance_map([[0.0, 1.0], [1.0, 0.0]], [[0.5]], ax=Figure().add_subplot())
        >>> ax.images[-1].get_array().tolist()
        [[0.5]]
    """
    image, grid = as_image(image), _as_variance(variance, 2)
    ax = new_axes(ax, height=1.8)
    _show_input(ax, image, grid)
    shown = _show_variance(ax, image, grid, _norm(grid, "linear"), beside=_BESIDE)
    _finish_bar(ax.figure.colorbar(shown, ax=ax, shrink=0.85, pad=0.03), label)
    return ax


@styled
def variance_maps(
    images: Any,
    variance: Any,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    relative: bool = True,
    scale: str | None = None,
    label: str | None = None,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:
    """A table of variance maps, each column in units of its own, the inputs in the first column.

    Columns can be heads or layers, whose variances have no common unit: each is divided by its median over the images;
    where one image has several rows, such as layers with their heads, each map by its own. So units and colours are of
    the images that are passed. To compare figures, divide all by the medians of one, and pass ``relative=False`` and
    ``scale="log"``; ``axes[0, 1].images[0].set_clim(low, high)`` then sets the colours of all maps of a figure.

    Args:
        images: One image, shown in the first row, or R images, one per row; each as in `variance_map`.
        variance: Variances of the patches, (K, h, w) for one row or (R, K, h, w).
        rows: Names of the rows.
        columns: Names of the K columns after the first; by default heads, as `Prediction.patch_variance` has them, of
            whatever layer: ``[f"layer 2, head {head}" for head in range(1, 5)]`` says which.
        relative: Whether variances are divided by medians; False shows them as they are, on one scale.
        scale: Scale of the colours, "linear" or "log"; by default logarithmic of ratios to medians, so that a single
            patch far above them leaves the others apart, and otherwise linear. A logarithmic one spans four decades at
            most.
        label: Name of the colour bar; by default what is shown. Of a logarithmic scale it ends in "(log scale)".
        figure: Figure or subfigure to draw in; by default a new one of two columns' width.

    Returns:
        Axes (R, K + 1).

    Raises:
        ValueError: If shapes or the numbers of names disagree, a variance is negative, or the scale is unknown.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = variance_maps(np.eye(8), np.ones((3, 2, 2)), figure=Figure())
        >>> axes.shape, axes[0, 1].get_title()
        ((1, 4), 'head 1')
    """
    grids = _as_variance(variance, (3, 4))
    grids = grids[None] if grids.ndim == 3 else grids
    num_rows, num_columns = grids.shape[:2]
    pictures = _as_images(images, num_rows)
    several = len(pictures) == num_rows > 1
    if relative:
        grids = grids / _units(grids, (0, 2, 3) if several else (2, 3))
    if label is None:
        of = "column" if several else "map"
        label = f"Variance / median of its {of}" if relative else "Predictive variance"
    columns = _names(columns, num_columns, "columns") or [f"head {index + 1}" for index in range(num_columns)]
    rows = _names(rows, num_rows, "rows")
    cell = min(WIDE / (num_columns + 1.6), 1.6)
    figure = new_figure(figure, width=cell * (num_columns + 1.6), height=(cell + 0.06) * num_rows + 0.3)
    axes = np.asarray(figure.subplots(num_rows, num_columns + 1, squeeze=False), dtype=np.object_)
    norm = _norm(grids, scale or ("log" if relative else "linear"))
    for row, grid_row in enumerate(grids):
        picture = pictures[min(row, len(pictures) - 1)]
        _show_input(axes[row, 0], picture if row < len(pictures) else None, grid_row[0])
        for ax, grid in zip(axes[row, 1:], grid_row, strict=True):
            shown = _show_variance(ax, picture, grid, norm)
    # Next to the images that they name: one image for all rows is shown only in the first row.
    for ax, name in zip(axes[:, 0 if len(pictures) == num_rows else 1], rows, strict=False):
        ax.set_ylabel(name)
    for ax, title in zip(axes[0], ["input", *columns], strict=True):
        ax.set_title(title)
    bar = figure.colorbar(shown, ax=axes.ravel().tolist(), pad=0.02, fraction=0.04, aspect=12 * num_rows)
    _finish_bar(bar, label, round((cell + 0.06) * num_rows / _LETTER))
    return axes


@styled
def example_gallery(
    images: Any,
    uncertainty: Any,
    predictions: Any,
    *,
    labels: Any = None,
    probabilities: Any = None,
    figure: FigureBase | None = None,
) -> NDArray[np.object_]:
    """The six most and the six least certain examples, with predictions and true classes; errors in orange.

    Args:
        images: Images (N, ...), each as in `variance_map`.
        uncertainty: One number per image (N,), by which they are sorted.
        predictions: Predicted classes (N,), as numbers or names: ``[names[c] for c in prediction.classes]``.
        labels: True classes (N,), likewise, if known.
        probabilities: Probability of the predicted class (N,), shown in brackets.
        figure: Figure or subfigure to draw in; by default a new one of two columns' width.

    Returns:
        Axes (2, min(N, 6)): most certain above, least certain below, the extremes first.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = example_gallery(np.zeros((3, 8, 8)), [0.3, 0.1, 0.2], [7, 8, 9], figure=Figure())
        >>> [ax.get_title() for ax in axes.flat]
        ['8', '9', '7', '7', '9', '8']
    """
    uncertainty = as_array(uncertainty, "uncertainty", 1)
    samples = len(uncertainty)
    given = {"images": images, "predictions": predictions, "labels": labels, "probabilities": probabilities}
    for name, values in given.items():
        if values is not None and len(values) != samples:
            raise ValueError(f"{name} must hold {samples} entries, one for each uncertainty, got {len(values)}")
    count = min(_EXAMPLES, samples)
    order = np.argsort(uncertainty, kind="stable")
    cell = min(WIDE / (count + 0.3), 1.4)
    figure = new_figure(
        figure, width=cell * (count + 0.3), height=2 * (cell + 0.3) + _SAID * (probabilities is not None)
    )
    axes = np.asarray(figure.subplots(2, count, squeeze=False), dtype=np.object_)
    ends = {"most certain": order[:count].tolist(), "least certain": order[::-1][:count].tolist()}
    titles = dict[int, str]()
    for index in (*ends["most certain"], *ends["least certain"]):
        sure = "" if probabilities is None else f" ({float(probabilities[index]):.2f})"
        true = "" if labels is None else f"\ntrue: {_name(labels[index])}"
        titles[index] = f"{_name(predictions[index])}{sure}{true}"
    longest = max((len(line) for title in titles.values() for line in title.split("\n")), default=1)
    size = min(8.0, 8.0 * _FITTING / max(1, longest))  # one for all, such as beside "automobile (0.16)"
    for row, (name, indices) in enumerate(ends.items()):
        for ax, index in zip(axes[row], indices, strict=True):
            _show_input(ax, as_image(images[index], f"images[{index}]"))
            wrong = labels is not None and bool(labels[index] != predictions[index])
            look: dict[str, Any] = {"color": PALETTE[1] if wrong else INK, "fontsize": size}
            ax.set_title(titles[index], pad=3, parse_math=False, **look)
        axes[row, 0].set_ylabel(name)
    if probabilities is not None:
        figure.supxlabel("in brackets: probability of the predicted class", fontsize=7)
    return axes


def _name(label: Any) -> str:
    return str(label.item() if hasattr(label, "item") else label)


def _as_variance(values: Any, ndim: int | tuple[int, ...]) -> Array:
    grid = as_array(values, "variance", ndim)
    if grid.min() < 0:
        raise ValueError(f"variance must not be negative, got a smallest value of {grid.min():.3g}")
    return grid


def _units(variance: Array, axes: tuple[int, ...]) -> Array:
    """The medians over some axes, one where there is no variance."""
    medians = np.median(variance, axis=axes, keepdims=True)
    return np.where(medians > 0, medians, 1.0)


def _as_images(images: Any, rows: int) -> list[Array]:
    """One image, or one per row; (3, H, W) with three rows means three grey images."""
    shape = tuple(np.shape(images))
    channels_first = len(shape) == 3 and shape[0] in (1, 3) and (rows == 1 or shape[0] != rows)
    if len(shape) == 2 or channels_first or (len(shape) == 3 and shape[-1] in (1, 3)):
        return [as_image(images, "images")]
    if len(shape) not in (3, 4) or shape[0] != rows:
        raise ValueError(f"images must be one image or {rows} of them, one per row, got shape {shape}")
    return [as_image(image, f"images[{index}]") for index, image in enumerate(images)]


def _names(names: Sequence[str] | None, number: int, argument: str) -> list[str]:
    if names is not None and len(names) != number:
        raise ValueError(f"{argument} must hold {number} names, got {len(names)}")
    return list(names or [])


def _bare(ax: Axes) -> None:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _show_input(ax: Axes, image: Array | None, grid: Array | None = None) -> None:
    """An image, with thin lines between its patches, unless they are small."""
    _bare(ax)
    if image is None:
        return
    ax.imshow(image, cmap="gray", interpolation="nearest")
    if grid is not None and max(grid.shape) <= _MOST_LINED:
        (height, width), (rows, columns) = image.shape[:2], grid.shape
        look: dict[str, Any] = {"color": GREY, "lw": 0.4}
        ax.hlines(np.arange(1, rows) * height / rows - 0.5, -0.5, width - 0.5, **look)
        ax.vlines(np.arange(1, columns) * width / columns - 0.5, -0.5, height - 0.5, **look)


def _norm(values: Array, scale: str) -> Normalize:
    """Colours from the smallest to the largest value; on a logarithmic scale over four decades at most."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {SCALES}, got {scale!r}")
    if scale == "linear":
        return Normalize(float(values.min()), float(values.max()))
    positive = values[values > 0]
    high = float(positive.max()) if positive.size else 1.0
    low = max(float(positive.min()), 1e-4 * high) if positive.size else 0.1
    return LogNorm(low, high, clip=True)


def _show_variance(ax: Axes, image: Array, grid: Array, norm: Normalize, beside: float = 0.0) -> AxesImage:
    """Opaque patches, so that a colour is one value, where the image is or so many of its widths to the right."""
    _bare(ax)
    height, width = image.shape[:2]
    extent = (beside * width - 0.5, (1 + beside) * width - 0.5, height - 0.5, -0.5)
    shown = ax.imshow(grid, cmap=SEQUENTIAL, interpolation="nearest", extent=extent, norm=norm)
    ax.set_xlim(-0.5, extent[1])
    return shown


def _finish_bar(bar: Any, label: str, letters: int | None = None) -> None:
    """The name of a bar, in lines of so many letters."""
    is_log = isinstance(bar.norm, LogNorm)
    named = f"{label} (log scale)" if is_log else label
    bar.set_label(named if letters is None else "\n".join(wrap(named, letters)))
    if is_log:
        log_ticks(bar.ax.yaxis, *bar.ax.get_ylim())
    bar.outline.set_visible(False)
