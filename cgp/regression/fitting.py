"""Maximum a posteriori fits: quasi-Newton with restarts, and Adam where rows are many."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from gpytorch.mlls import VariationalELBO
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.functional.cholesky import NotPositiveDefiniteError

from .base import ProcessRegression
from .process_map import ProcessMap
from .variational import StochasticCorrelatedGPRegression

__all__ = ["Fit", "ProgressLine", "fit_adam", "fit_lbfgs", "fit_minibatches"]

Progress = Callable[[int, float], None]

_FACTORS = (1.0, 3.0, 0.3, 10.0, 30.0)
_WINDOW = 20


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
    for start in _starts(model, num_starts, seed):
        model.load_state_dict(start)
        fit = _one_start(model, max_steps, tolerance, progress)
        if math.isfinite(fit.loss) and (best is None or fit.loss < best[0].loss):
            best = fit, _copy(model)
    if best is None:
        raise ValueError("fit: the objective is not finite at any start; check the scale of inputs and targets")
    model.load_state_dict(best[1])
    return _reported(best[0])


def fit_adam(
    model: ProcessRegression,
    *,
    max_steps: int = 300,
    learning_rate: float = 0.05,
    tolerance: float = 1e-4,
    progress: Progress | None = None,
) -> Fit:
    """Fit by Adam on all rows, its rate falling to zero by a cosine.

    Args:
        model: exact or sparse; left in eval mode.
        max_steps: at most this many; ends early when the loss a row stands still.
        learning_rate: the first one.
        tolerance: what counts as standing still, over 20 steps.
        progress: called with step and loss.

    Returns:
        How it went.

    Raises:
        ValueError: if there is no step.

    Warns:
        ConvergenceWarning: if the loss was still falling at the end.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps: expected at least 1, got {max_steps}")
    model.eval()
    model.load_state_dict(next(_starts(model, 1, 0)))
    parameters = _learned(model)
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max_steps)
    losses: list[float] = []
    for step in range(max_steps):
        optimizer.zero_grad()
        loss = _loss(model)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
        if _stands_still(losses, tolerance):
            return Fit(losses[-1], step + 1, True, "the loss stands still")
    return _reported(_ended(losses, max_steps, 10 * tolerance))


def fit_minibatches(
    model: StochasticCorrelatedGPRegression,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int = 1024,
    num_epochs: int = 40,
    learning_rate: float = 0.02,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit the variational bound by Adam on minibatches, its rate falling to zero by a cosine.

    Args:
        model: left in eval mode.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        batch_size: rows a step.
        num_epochs: passes through the rows.
        learning_rate: the first one.
        tolerance: the loss a row of the last two epochs may differ by this, or a warning says so.
        seed: of the order of rows.
        progress: called with epoch and loss.

    Returns:
        How it went.

    Raises:
        ValueError: if a count is below one.

    Warns:
        ConvergenceWarning: if the loss was still falling at the end.
    """
    if batch_size < 1 or num_epochs < 1:
        raise ValueError(f"batch_size, num_epochs: expected at least 1, got {batch_size}, {num_epochs}")
    model.train()
    bound = VariationalELBO(model.likelihood, model, num_data=len(inputs))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(_learned(model), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_epochs * -(-len(inputs) // batch_size))
    losses: list[float] = []
    for epoch in range(num_epochs):
        total = 0.0
        for rows in torch.randperm(len(inputs), generator=generator).to(inputs.device).split(batch_size):
            optimizer.zero_grad()
            loss = -bound(model(inputs[rows]), targets[rows], rows=inputs[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(inputs))
        if progress is not None:
            progress(epoch + 1, losses[-1])
    model.eval()
    return _reported(_ended(losses, num_epochs, tolerance))


def _loss(model: ProcessRegression) -> Tensor:
    """Negative log posterior of the parameters a row, the positive ones measured by their logarithm."""
    return -(model.log_evidence() + model.log_prior() + model.log_volume()) / len(model.train_targets)


def _learned(model: torch.nn.Module) -> list[Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _one_start(model: ProcessRegression, max_steps: int, tolerance: float, progress: Progress | None) -> Fit:
    optimizer = torch.optim.LBFGS(
        _learned(model),
        max_iter=max_steps,
        max_eval=2 * max_steps,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=tolerance,
        line_search_fn="strong_wolfe",
    )
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        try:
            loss = _loss(model)
            loss.backward()
        except NotPositiveDefiniteError:
            # A step too far: an infinite loss makes the line search step back.
            loss = torch.full_like(next(model.parameters()).sum(), math.inf)
            _zero_gradients(model)
        if progress is not None:
            progress(calls, float(loss.detach()))
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
    for parameter in _learned(model):
        parameter.grad = torch.zeros_like(parameter)


def _finite_loss(model: ProcessRegression) -> float:
    try:
        loss = float(_loss(model))
    except NotPositiveDefiniteError:
        return math.inf
    return loss if math.isfinite(loss) else math.inf


def _starts(model: ProcessRegression, number: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield parameters to start from, the most promising first."""
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


def _stands_still(losses: list[float], tolerance: float) -> bool:
    return len(losses) > 2 * _WINDOW and max(losses[-_WINDOW:]) - min(losses[-_WINDOW:]) < tolerance


def _ended(losses: list[float], steps: int, tolerance: float) -> Fit:
    """A fit that used all its steps: converged if the last of them changed little."""
    before = losses[-2] if len(losses) > 1 else math.inf
    converged = abs(before - losses[-1]) < tolerance
    return Fit(losses[-1], steps, converged, f"all {steps} steps used; the last changed {before - losses[-1]:.2g} nats")


def _reported(fit: Fit) -> Fit:
    if not fit.converged:
        warnings.warn(
            f"The fit has not converged: {fit.message} at {fit.loss:.5g} nats a row. "
            "Allow more steps, or standardise the data; predictions are usable but not the best.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return fit
