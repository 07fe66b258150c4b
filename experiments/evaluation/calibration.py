"""Binning, shared by all calibration errors."""

from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.evaluation.metrics import Array, as_array

__all__ = ["ReliabilityBins", "reliability_bins"]


class ReliabilityBins(NamedTuple):
    """Binned confidences; empty bins have count 0 and NaN means."""

    edges: Array  # (M + 1,)
    counts: Array  # (M,)
    confidence: Array  # (M,) mean confidence
    accuracy: Array  # (M,) fraction of outcomes that are true

    @property
    def expected_error(self) -> float:
        r"""Mean gap between confidence and accuracy, :math:`\sum_m \frac{n_m}{N} |c_m - a_m|`; 0 without samples."""
        return float(np.nansum(self._gaps * self.counts) / max(self.counts.sum(), 1))

    @property
    def maximum_error(self) -> float:
        r"""Largest gap of a bin that is not empty, :math:`\max_m |c_m - a_m|`; 0 without samples."""
        return float(np.nanmax(self._gaps, initial=0.0))

    @property
    def _gaps(self) -> Array:
        return np.abs(self.confidence - self.accuracy)


def reliability_bins(
    confidence: Any,  # shape: (N,)
    outcome: Any,  # shape: (N,)
    *,
    bins: int = 15,
    closed: Literal["right", "left"] = "right",
    ones: Literal["last", "own", "dropped"] = "last",
) -> ReliabilityBins:
    """Bins of equal width over [0, 1].

    Args:
        confidence: probabilities (N,); compared with the edges in their own precision.
        outcome: whether the event predicted with that probability occurred (N,).
        bins: number of bins M.
        closed: the edge of a bin that belongs to it; a confidence of 0 always falls in the first bin.
        ones: bin of a confidence of exactly 1: the last bin, a bin of its own as in torchmetrics (then
            there are M + 1), or none.
    """
    confidence, outcome = as_array(confidence, single=True), as_array(outcome).astype(bool)
    if confidence.shape != outcome.shape or not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError(
            f"confidence: expected numbers in [0, 1], one for each of {outcome.size} outcomes, got {confidence}"
        )
    if ones == "dropped":
        confidence, outcome = confidence[confidence < 1], outcome[confidence < 1]
    edges = np.linspace(0, 1, bins + 1).astype(confidence.dtype)
    index = np.clip(np.searchsorted(edges, confidence, side="left" if closed == "right" else "right") - 1, 0, bins - 1)
    if ones == "own":
        index, edges = np.where(confidence == 1, bins, index), np.append(edges, edges[-1])
    size = len(edges) - 1
    counts = np.bincount(index, minlength=size)
    # 0 / 0 = NaN marks an empty bin, which has no mean.
    with np.errstate(invalid="ignore"):
        means = [np.bincount(index, weights=values, minlength=size) / counts for values in (confidence, outcome)]
    return ReliabilityBins(edges, counts, *means)
