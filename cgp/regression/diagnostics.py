"""Whether chains of samples can be trusted, in numbers and in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

__all__ = ["Diagnostics", "diagnose"]

_MAX_R_HAT = 1.05
_MIN_ESS = 100.0


class Diagnostics(NamedTuple):
    """Whether the chains can be trusted.

    Attributes:
        r_hat: split r-hat, the worst entry of each parameter; 1 is perfect.
        effective_size: effective sample size, the smallest entry of each parameter.
        divergences: transitions that diverged.
        message: in words.
    """

    r_hat: dict[str, float]
    effective_size: dict[str, float]
    divergences: int
    message: str


def diagnose(chains: Mapping[str, Tensor], divergences: int = 0) -> Diagnostics:
    """Split r-hat and effective sample sizes, in numbers and in words.

    Args:
        chains: by name of parameter, ``(C, S, ...)``.
        divergences: transitions that diverged.

    Returns:
        The worst of each parameter.

    Warns:
        ConvergenceWarning: if r-hat exceeds 1.05, an effective size is below 100, or transitions diverged.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> diagnose({"noise": torch.randn(2, 500)}).message
        'The chains agree: r-hat at most 1.00, effective sample size at least ...'
    """
    r_hat = {name: float(split_gelman_rubin(value, 0, 1).max()) for name, value in chains.items()}
    sizes = {name: float(effective_sample_size(value, 0, 1).min()) for name, value in chains.items()}
    worst = max(r_hat, key=lambda name: -math.inf if math.isnan(r_hat[name]) else r_hat[name])
    fewest = min(sizes, key=lambda name: math.inf if math.isnan(sizes[name]) else sizes[name])
    complaints = []
    if not r_hat[worst] <= _MAX_R_HAT:
        complaints.append(f"the chains disagree on {worst} (r-hat {r_hat[worst]:.2f}, should be below {_MAX_R_HAT})")
    if not sizes[fewest] >= _MIN_ESS:
        complaints.append(f"{fewest} has only {sizes[fewest]:.0f} effective samples (should be {_MIN_ESS:.0f} or more)")
    if divergences:
        complaints.append(f"{divergences} transitions diverged")
    if not complaints:
        summary = f"r-hat at most {r_hat[worst]:.2f}, effective sample size at least {sizes[fewest]:.0f}"
        return Diagnostics(r_hat, sizes, divergences, f"The chains agree: {summary}")
    message = "Do not trust the samples yet: " + "; ".join(complaints) + ". Take more warm-up and samples."
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return Diagnostics(r_hat, sizes, divergences, message)
