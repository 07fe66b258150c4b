"""Temperature scaling."""

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from experiments.evaluation._checks import Array, as_labels, as_logits

__all__ = ["fit_temperature"]

_LOG_BOUND = float(np.log(1e4))


def fit_temperature(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Temperature that minimises the negative log-likelihood of validation predictions.

    .. math::
        \min_T -\frac1N \sum_i \log \frac1S \sum_s \mathrm{softmax}(l_{si} / T)_{y_i}

    Solved for :math:`\log T` by L-BFGS with the exact gradient, so T is positive; it is kept in [1e-4, 1e4], where it
    ends if the likelihood has no optimum: small if all are right, large if confidence says nothing.

    Args:
        logits: Validation logits per draw, (S, N, C) or (N, C).
        labels: Classes (N,).

    Returns:
        T; divide logits by it.

    Raises:
        RuntimeError: If the gradient at the solution is not zero.

    Source:
        Guo et al. (2017), On Calibration of Modern Neural Networks, section 4.2.

    Example:
        Half of the confident predictions are wrong: they should say one half.

        >>> fit_temperature([[3.0, 0.0], [3.0, 0.0]], [0, 1]) > 100
        True
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
    slope = np.take_along_axis(scaled, index, -1)[..., 0] - (softmax(scaled, axis=-1) * scaled).sum(
        -1
    )  # -d log_p / d log T
    weights = softmax(log_p, axis=0)  # how much each draw contributes to the mean probability of the label
    mean_log_p = np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))
    return float(-mean_log_p.mean()), np.array([(weights * slope).sum(0).mean()])
