"""The binning core of every calibration error, and temperature scaling."""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from experiments.evaluation.metrics import Array, as_array, as_labels, as_logits

__all__ = ["LARGEST_TEMPERATURE", "ReliabilityBins", "fit_temperature", "reliability_bins"]

LARGEST_TEMPERATURE = 1e4
_LOG_BOUND = float(np.log(LARGEST_TEMPERATURE))


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
        outcome: whether what was predicted with that probability came true (N,).
        bins: number of bins M.
        closed: which edge of a bin belongs to it; a confidence of 0 always falls in the first bin.
        ones: where a confidence of exactly 1 goes: in the last bin, in a bin of its own as torchmetrics puts it (then
            there are M + 1), or nowhere.
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
    # 0 / 0 = NaN marks an empty bin: it has no mean, and a picture must not draw one.
    with np.errstate(invalid="ignore"):
        means = [np.bincount(index, weights=values, minlength=size) / counts for values in (confidence, outcome)]
    return ReliabilityBins(edges, counts, *means)


def fit_temperature(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Temperature that minimises the negative log-likelihood of validation predictions; divide logits by it.

    .. math::
        \min_T -\frac1N \sum_i \log \frac1S \sum_s \mathrm{softmax}(l_{si} / T)_{y_i}

    Solved for :math:`\log T` by L-BFGS with the exact gradient, so T is positive; it is kept in [1e-4, 1e4], where it
    ends if the likelihood has no optimum: small if all are right, large if confidence says nothing.

    Source:
        Guo et al. (2017), On Calibration of Modern Neural Networks, section 4.2.
    """
    values = as_logits(logits)
    target = as_labels(labels, *values.shape[1:])
    bounds = [(-_LOG_BOUND, _LOG_BOUND)]
    options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 500}
    result = minimize(_loss, np.zeros(1), (values, target), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # The line search may stop at rounding before the gradient's tolerance: what counts is the gradient that is left.
    outward = abs(result.x[0]) >= _LOG_BOUND and result.jac[0] * result.x[0] <= 0
    if not outward and abs(result.jac[0]) > 1e-6:
        raise RuntimeError(
            f"temperature did not converge: gradient {result.jac[0]:.2e} at T = {np.exp(result.x[0]):.4g}"
        )
    return float(np.exp(result.x[0]))


def _loss(
    log_temperature: Array,  # shape: (1,)
    logits: Array,  # shape: (S, N, C)
    labels: Array,  # shape: (N,)
) -> tuple[float, Array]:
    scaled = logits * np.exp(-log_temperature)
    index = labels[None, :, None]
    log_p = np.take_along_axis(log_softmax(scaled, axis=-1), index, -1)[..., 0]  # (S, N)
    mean_logit = (softmax(scaled, axis=-1) * scaled).sum(-1)
    slope = np.take_along_axis(scaled, index, -1)[..., 0] - mean_logit  # -d log_p / d log T
    weights = softmax(log_p, axis=0)  # how much each draw contributes to the mean probability of the label
    mean_log_p = np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))
    return float(-mean_log_p.mean()), np.array([(weights * slope).sum(0).mean()])
