"""Missing observations as rows left out, of the mean and of the covariance, and numbers that may not be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from cgp.functional.linalg import may_read

__all__ = ["check_numbers", "known_rows", "leave_out_missing"]

_leaves_out: ContextVar[bool] = ContextVar("leave_out_missing", default=False)


@contextmanager
def leave_out_missing() -> Iterator[None]:
    """Within this context NaN targets of models with Markov kernels are rows that were not observed.

    Evidence, mean and variance are those of the model without these rows, in place of GPyTorch's
    ``observation_nan_policy``, whose variances are those of a model that has observed them. The sum of the evidence is;
    GPyTorch's ``ExactMarginalLogLikelihood`` divides it by the number of all rows. Models with other
    kernels are as without it, so that their evidence is NaN: give them the observed rows only.

    Yields:
        Nothing.

    Example:
        >>> import torch
        >>> from gpytorch.distributions import MultivariateNormal
        >>> from gpytorch.kernels import MaternKernel
        >>> from cgp.kernels import Markov
        >>> covariance = Markov(MaternKernel())(torch.arange(3.0)).evaluate_kernel().add_jitter(0.1)
        >>> with leave_out_missing():
        ...     MultivariateNormal(torch.zeros(3), covariance).log_prob(torch.tensor([0.3, torch.nan, 0.1]))
        tensor(-1.9774, grad_fn=<...>)
    """
    token = _leaves_out.set(True)
    try:
        yield
    finally:
        _leaves_out.reset(token)


def known_rows(values: Tensor, name: str = "targets") -> Tensor:
    """Which values are observed: all, or ValueError, unless missing ones are left out by :func:`leave_out_missing`."""
    missing = values.isnan()
    if not _leaves_out.get() and bool(missing.any()):
        raise ValueError(
            f"{name}: expected numbers, got {int(missing.sum())} NaN of {values.numel()}: if these are missing "
            "observations, compute within cgp.kernels.leave_out_missing()"
        )
    return ~missing


def check_numbers(values: Tensor, name: str) -> Tensor:
    """The values, or ValueError for NaN or infinity among them, where they may be read."""
    if may_read(values) and not bool(values.isfinite().all()):
        wrong = int((~values.isfinite()).sum())
        raise ValueError(
            f"{name}: expected finite numbers, got {wrong} NaN or infinite of {values.numel()}: leave out their rows"
        )
    return values
