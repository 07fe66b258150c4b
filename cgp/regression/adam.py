"""Fits by Adam, where rows are many: on all of them, or in minibatches."""

from __future__ import annotations

import math

import torch
from gpytorch.mlls import VariationalELBO
from torch import Tensor

from .base import ProcessRegression
from .fitting import reported, row_loss, starting_points
from .quasi_newton import Fit, Progress, learned_parameters
from .variational import StochasticCorrelatedGPRegression

__all__ = ["fit_adam", "fit_minibatches"]

_WINDOW = 20


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
    model.load_state_dict(next(starting_points(model, 1, 0)))
    parameters = learned_parameters(model)
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max_steps)
    losses: list[float] = []
    for step in range(max_steps):
        optimizer.zero_grad()
        loss = row_loss(model)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
        if _stands_still(losses, tolerance):
            return Fit(losses[-1], step + 1, True, "the loss stands still")
    return reported(_ended(losses, max_steps, 10 * tolerance))


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
    optimizer = torch.optim.Adam(learned_parameters(model), lr=learning_rate)
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
    return reported(_ended(losses, num_epochs, tolerance))


def _stands_still(losses: list[float], tolerance: float) -> bool:
    return len(losses) > 2 * _WINDOW and max(losses[-_WINDOW:]) - min(losses[-_WINDOW:]) < tolerance


def _ended(losses: list[float], steps: int, tolerance: float) -> Fit:
    """A fit that used all its steps: converged if the last of them changed little."""
    before = losses[-2] if len(losses) > 1 else math.inf
    converged = abs(before - losses[-1]) < tolerance
    return Fit(losses[-1], steps, converged, f"all {steps} steps used; the last changed {before - losses[-1]:.2g} nats")
