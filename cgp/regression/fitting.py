"""Maximum a posteriori fits by quasi-Newton steps, from the best of several starts."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.functional.cholesky import NotPositiveDefiniteError

from .base import ProcessRegression
from .process_map import ProcessMap

__all__ = [
    "Fit",
    "Progress",
    "ProgressLine",
    "fit_lbfgs",
    "learned_parameters",
    "reported",
    "row_loss",
    "starting_points",
]

Progress = Callable[[int, float], None]

_FACTORS = (1.0, 3.0, 0.3, 10.0, 30.0)
_TOO_FAR = 10.0


class Fit(NamedTuple):
    """How a fit went.

    Attributes:
        loss: the negative log posterior of the parameters a row, in nats.
        steps: steps of the optimiser.
        converged: whether it stopped by itself.
        message: in words.
    """

    loss: float
    steps: int
    converged: bool
    message: str


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
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit by L-BFGS with a strong-Wolfe line search, from the best of several starts.

    The objective is screened at five lengthscales (factors 0.3 to 30 of the initial one); the best of them are the
    starts, and starts beyond five are perturbed at random.

    Args:
        model: exact or sparse; left in eval mode with the best parameters found.
        num_starts: how many starts are followed to their end.
        max_steps: of each start.
        tolerance: a start ends when the loss a row changes, or its gradient is, less than this.
        seed: of the perturbations.
        progress: called with step and loss.

    Returns:
        The best start's.

    Raises:
        ValueError: if a count is below one, or the objective is finite at no start.

    Warns:
        ConvergenceWarning: if the best start was cut off.

    Source:
        Nocedal & Wright (2006), Numerical Optimization, algorithms 7.5 and 3.5, as of :class:`torch.optim.LBFGS`.
    """
    if num_starts < 1 or max_steps < 1:
        raise ValueError(f"num_starts, max_steps: expected at least 1, got {num_starts}, {max_steps}")
    model.eval()
    best: tuple[Fit, dict[str, Tensor]] | None = None
    for start in starting_points(model, num_starts, seed):
        model.load_state_dict(start)
        fit = _one_start(model, max_steps, tolerance, progress)
        if math.isfinite(fit.loss) and (best is None or fit.loss < best[0].loss):
            best = fit, _copy(model)
    if best is None:
        raise ValueError("fit: the objective is not finite at any start; check the scale of inputs and targets")
    model.load_state_dict(best[1])
    return reported(best[0])


def row_loss(model: ProcessRegression) -> Tensor:
    """Negative log posterior of the parameters a row, the positive ones measured by their logarithm.

    Args:
        model: exact or sparse.

    Returns:
        A scalar, in nats.
    """
    return -(model.log_evidence() + model.log_prior() + model.log_volume()) / len(model.train_targets)


def learned_parameters(model: torch.nn.Module) -> list[Tensor]:
    """The parameters that are learned.

    Args:
        model: any module.

    Returns:
        Those with gradients.
    """
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _one_start(model: ProcessRegression, max_steps: int, tolerance: float, progress: Progress | None) -> Fit:
    optimizer = torch.optim.LBFGS(
        learned_parameters(model),
        max_iter=max_steps,
        max_eval=2 * max_steps,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=tolerance,
        line_search_fn="strong_wolfe",
    )
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        try:
            loss = row_loss(model)
            loss.backward()
        except NotPositiveDefiniteError:
            # A step too far: a large loss makes the line search step back; an infinite one would make its
            # interpolation NaN.
            largest = max(map(abs, losses), default=0.0)
            loss = torch.full_like(model.train_targets[0], _TOO_FAR * (1.0 + largest))
            _zero_gradients(model)
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(len(losses), losses[-1])
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        loss = _finite_loss(model)
    state = optimizer.state[optimizer._params[0]]
    steps = int(state["n_iter"])
    if steps >= max_steps or state["func_evals"] >= 2 * max_steps:
        return Fit(loss, steps, False, f"cut off after {steps} steps")
    return Fit(loss, steps, True, "the loss or its gradient stands still")


def _zero_gradients(model: torch.nn.Module) -> None:
    for parameter in learned_parameters(model):
        parameter.grad = torch.zeros_like(parameter)


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
    initial, screened = _copy(model), []
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
        yield _copy(model)


def _rescale(model: ProcessRegression, factor: float) -> None:
    for module in model.modules():
        if isinstance(module, ProcessMap):
            module.rescale(factor)


def _perturb(model: ProcessRegression, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "scaled_points" not in name:
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.5 * noise.to(parameter.device))


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


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
