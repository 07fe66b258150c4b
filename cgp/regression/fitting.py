"""Maximum a posteriori fits by quasi-Newton steps, from the best of several starts."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from functools import partial

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.functional.linalg import NotPositiveDefiniteError

from .base import ProcessRegression
from .process_map import ProcessMap
from .quasi_newton import RACE, Fit, Progress, copied_state, minimise

__all__ = [
    "ProgressLine",
    "fit_lbfgs",
    "reported",
    "row_loss",
    "starting_points",
]

_FACTORS = (1.0, 3.0, 0.3, 10.0, 30.0)


class ProgressLine:
    """One line on the standard error stream that says how far a fit is.

    Args:
        label: what is fitted.
    """

    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, step: int, loss: float) -> None:
        """Show a step."""
        sys.stderr.write(f"\r{self.label}: step {step}, {loss:.5f} nats a row ")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        sys.stderr.write("\n")


def fit_lbfgs(
    model: ProcessRegression,
    *,
    num_starts: int = 1,
    max_steps: int = 200,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit by L-BFGS with a strong-Wolfe line search, from the best of several starts.

    The objective is screened at five lengthscales (factors 0.3 to 30 of the initial one). The three most promising, or
    as many as are to be followed, race over 20 steps, and the best go on to the end; starts beyond five are perturbed
    at random. The race is what finds the better mode where the evidence has several: the first value says little.

    Args:
        model: exact or sparse; left in eval mode with the best parameters found.
        num_starts: how many starts are followed to their end.
        max_steps: of each start.
        tolerance: a start ends when 20 evaluations have won less than this, in nats a row.
        seed: of the perturbations.
        progress: called with the count of evaluations and the loss.

    Returns:
        The best start's.

    Raises:
        ValueError: if a count is below one, or the objective is finite at no start.

    Warns:
        ConvergenceWarning: if the best start was cut off.
    """
    if num_starts < 1 or max_steps < 1:
        raise ValueError(f"num_starts, max_steps: expected at least 1, got {num_starts}, {max_steps}")
    model.eval()
    fit = minimise(
        model,
        partial(row_loss, model),
        list(starting_points(model, max(RACE, num_starts), seed)),
        num_followed=num_starts,
        max_steps=max_steps,
        tolerance=tolerance,
        failures=(NotPositiveDefiniteError,),
        progress=progress,
    )
    if fit is None:
        raise ValueError("fit: the objective is not finite at any start; check the scale of inputs and targets")
    return reported(fit)


def row_loss(model: ProcessRegression) -> Tensor:
    """Negative log posterior of the parameters a row, the positive ones measured by their logarithm.

    Args:
        model: exact or sparse.

    Returns:
        A scalar, in nats.
    """
    return -(model.log_evidence() + model.log_prior() + model.log_volume()) / len(model.train_targets)


def _finite_loss(model: ProcessRegression) -> float:
    try:
        loss = float(row_loss(model))
    except NotPositiveDefiniteError:
        return math.inf
    return loss if math.isfinite(loss) else math.inf


def starting_points(model: ProcessRegression, number: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield parameters to start from, the most promising first.

    Args:
        model: left at the last of them.
        number: how many.
        seed: of the perturbations beyond the first five.

    Yields:
        State dictionaries.
    """
    initial, screened = copied_state(model), []
    with torch.no_grad():
        for factor in _FACTORS:
            _rescale(model, factor)
            screened.append((_finite_loss(model), factor))
            model.load_state_dict(initial)
    order = [factor for _, factor in sorted(screened, key=lambda pair: pair[0])]
    generator = torch.Generator().manual_seed(seed)
    for index in range(number):
        model.load_state_dict(initial)
        with torch.no_grad():
            _rescale(model, order[index % len(order)])
            if index >= len(order):
                _perturb(model, generator)
        yield copied_state(model)


def _rescale(model: ProcessRegression, factor: float) -> None:
    for module in model.modules():
        if isinstance(module, ProcessMap):
            module.rescale(factor)


def _perturb(model: ProcessRegression, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "scaled_points" not in name:
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.5 * noise.to(parameter.device))


def reported(fit: Fit) -> Fit:
    """Warn of a fit that was cut off.

    Args:
        fit: any.

    Returns:
        The same.
    """
    if not fit.converged:
        warnings.warn(
            f"The fit has not converged: {fit.message} at {fit.loss:.5g} nats a row. "
            "Allow more steps, or standardise the data; predictions are usable but not the best.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return fit
