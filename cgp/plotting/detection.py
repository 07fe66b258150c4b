"""Do uncertain predictions and OOD inputs stand out?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.metrics import auc, roc_curve

from cgp.plotting._arrays import Array, as_array, as_groups, as_mask
from cgp.plotting.style import GREY, PALE, PALETTE, line_look, new_axes, place_legend, styled

__all__ = ["confidence_histograms", "risk_coverage", "roc_curves", "uncertainty_histograms"]


@styled
def uncertainty_histograms(
    groups: Mapping[str, Any],  # each of shape (N,)
    *,
    bins: int = 30,
    xlabel: str = "Epistemic uncertainty (nats)",
    ax: Axes | None = None,
) -> Axes:
    """Histograms of a score over groups of inputs, e.g. in distribution and out of it, each summing to one.

    Args:
        groups: For each group, one number an input (N,); the groups may differ in size.
        bins: Number of bins, the same for all groups.
        xlabel: Name and unit of the score.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = uncertainty_histograms({"test": [0.0, 0.1], "noise": [0.5, 0.9, 1.0]}, ax=Figure().add_subplot())
        >>> ax.get_ylabel()
        'Fraction of inputs'
    """
    values = as_groups(groups, "groups")
    low, high = min(v.min() for v in values.values()), max(v.max() for v in values.values())
    # A scale that starts near zero starts at zero.
    low = 0.0 if 0 <= low < 0.1 * high else low
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    outside = ax is None
    ax = new_axes(ax, height=2.2)
    _draw_histograms(ax, values, edges, PALETTE)
    ax.set(xlabel=xlabel, xlim=(edges[0], edges[-1]))
    place_legend(ax, outside=outside)
    return ax


@styled
def confidence_histograms(
    correct: Any,  # shape: (N,)
    wrong: Any,  # shape: (M,)
    ood: Any = None,  # shape: (K,)
    *,
    bins: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Histograms of confidence for right predictions, wrong ones and OOD inputs, each summing to one.

    Args:
        correct: Confidence of right predictions (N,), none if all are wrong.
        wrong: Confidence of wrong predictions (M,), none if all are right.
        ood: Confidence on inputs from elsewhere (K,), if any.
        bins: Number of bins over [0, 1].
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Raises:
        ValueError: If a confidence lies outside [0, 1], or there is no prediction.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = confidence_histograms([0.9, 0.99], [0.6], ax=Figure().add_subplot())
        >>> ax.get_xlabel()
        'Confidence'
    """
    groups = {"correct": correct, "misclassified": wrong}
    # All may be right, or all wrong; where there is neither, the check of the arrays says so.
    groups = {key: group for key, group in groups.items() if np.size(group)} or groups
    values = as_groups(groups | ({} if ood is None else {"ood": ood}), "confidence")
    for key, confidence in values.items():
        if confidence.min() < 0 or confidence.max() > 1:
            raise ValueError(f"confidence of {key} inputs must lie in [0, 1]")
    outside = ax is None
    ax = new_axes(ax, height=2.2)
    looks = {"correct": PALETTE[0], "misclassified": PALETTE[1], "ood": PALETTE[6]}
    _draw_histograms(ax, values, np.linspace(0, 1, bins + 1), tuple(looks[key] for key in values))
    ax.set(xlabel="Confidence", xlim=(0, 1))
    place_legend(ax, outside=outside)
    return ax


def _draw_histograms(ax: Axes, groups: Mapping[str, Array], edges: Array, colours: tuple[str, ...]) -> None:
    for index, (key, values) in enumerate(groups.items()):
        colour, dashes = colours[index % len(colours)], ("-", (0, (4, 1.5)), (0, (1, 1)))[index % 3]
        fraction = np.histogram(values, edges)[0] / len(values)
        ax.stairs(fraction, edges, fill=True, color=colour, alpha=0.2)
        ax.stairs(fraction, edges, color=colour, ls=dashes, lw=1.2, label=key)
    ax.set(ylabel="Fraction of inputs", ylim=(0, None))


@styled
def roc_curves(
    scores: Mapping[str, tuple[Any, Any]],  # each of shapes (N,), (M,)
    *,
    ax: Axes | None = None,
) -> Axes:
    """ROC curves of detectors of OOD inputs (positive), with the area under each in the legend.

    Args:
        scores: For each detector, its scores of familiar inputs (N,) and of OOD ones (M,); larger is more
            ood.
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = roc_curves({"entropy": ([0.1, 0.4], [0.3, 0.8])}, ax=Figure().add_subplot())
        >>> ax.lines[1].get_label()
        'entropy (AUROC 0.750)'
    """
    outside = ax is None
    groups = _pairs(scores, "scores")
    ax = new_axes(ax, height=3.1)
    ax.plot([0, 1], [0, 1], color=GREY, ls=(0, (4, 2)), lw=0.9)
    for index, (key, (familiar, ood)) in enumerate(groups.items()):
        familiar, ood = as_groups({"familiar": familiar, "ood": ood}, f"scores[{key!r}]").values()
        positive = np.repeat([False, True], [len(familiar), len(ood)])
        false, true, _ = roc_curve(positive, np.concatenate([familiar, ood]))
        ax.plot(false, true, label=f"{key} (AUROC {auc(false, true):.3f})", **line_look(index) | {"marker": ""})
    ax.set(xlabel="False positive rate", ylabel="True positive rate", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    place_legend(ax, outside=outside, loc="lower right")
    return ax


@styled
def risk_coverage(
    predictions: Mapping[str, tuple[Any, Any]],  # each of shapes (N,), (N,)
    *,
    ax: Axes | None = None,
) -> Axes:
    """Error rate among the most confident fraction of inputs, with the mean over coverages (AURC) in the legend.

    Args:
        predictions: For each method, confidence (N,) and whether the prediction was right (N,).
        ax: Axes to draw in; without, a new figure of one column.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = risk_coverage({"softmax": ([0.9, 0.6], [True, False])}, ax=Figure().add_subplot())
        >>> ax.lines[0].get_ydata().tolist()
        [0.0, 0.5]
    """
    outside = ax is None
    groups = _pairs(predictions, "predictions")
    ax = new_axes(ax, height=2.2)
    ax.grid(axis="y", color=PALE, lw=0.6)
    for index, (key, (confidence, correct)) in enumerate(groups.items()):
        confidence = as_array(confidence, f"predictions[{key!r}][0]", 1)
        wrong = ~as_mask(correct, f"predictions[{key!r}][1]", len(confidence))
        kept = np.arange(1, len(wrong) + 1)
        risk = np.cumsum(wrong[np.argsort(-confidence, kind="stable")]) / kept
        look = line_look(index) | {"marker": ""}
        ax.plot(kept / len(wrong), risk, label=f"{key} (AURC {risk.mean():.4f})", **look)
    ax.set(xlabel="Coverage", ylabel="Error rate", xlim=(0, 1), ylim=(0, None))
    place_legend(ax, outside=outside, loc="upper left")
    return ax


def _pairs(values: Any, name: str) -> dict[str, tuple[Any, Any]]:
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            f"{name} must be a non-empty mapping from names to pairs of arrays, got {type(values).__name__}"
        )
    for key, pair in values.items():
        if len(pair) != 2:
            raise ValueError(f"{name}[{key!r}] must be a pair of arrays, got {len(pair)} items")
    return dict(values)
