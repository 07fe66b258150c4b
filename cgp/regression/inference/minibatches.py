"""Fits of the variational bound in minibatches, initialised by a closed-form fit to some of the rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cgp.functional.sparse_correlated import InducingPosterior
from cgp.regression.checks import check_count
from cgp.regression.solvers.sparse import SparseCorrelatedGPRegression
from cgp.regression.solvers.stochastic import StochasticCorrelatedGPRegression

from .fitting import Fit, Progress, learned_parameters, reported

__all__ = ["Objective", "fit_minibatches", "start_from"]

Objective = Callable[[Tensor, Tensor], Tensor]


def fit_minibatches(
    model: StochasticCorrelatedGPRegression,
    inputs: Tensor,
    targets: Tensor,
    *,
    objective: Objective | None = None,
    batch_size: int = 1024,
    num_epochs: int = 40,
    learning_rate: float = 0.01,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit the variational bound by Adam on minibatches, with a cosine schedule of the learning rate to zero.

    Args:
        model: left in eval mode.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        objective: the bound of some inputs and targets in nats per row; None is that of the model's likelihood.
        batch_size: rows a step.
        num_epochs: passes through the rows.
        learning_rate: the first one.
        tolerance: largest difference in loss per row between the last two epochs without a warning.
        seed: seed of the order of rows.
        progress: called with epoch and loss.

    Returns:
        The result of the fit.

    Raises:
        ValueError: if a count is below one.

    Warns:
        ConvergenceWarning: if the loss was still falling at the end.
    """
    for name, value in (("batch_size", batch_size), ("num_epochs", num_epochs)):
        check_count(name, value, 1)
    model.train()
    # GPyTorch's VariationalELBO would count the priors of a likelihood that the model owns twice.
    objective = objective or (
        lambda x, y: model.bound(model.likelihood.expected_log_prob(y, model(x), rows=x).mean(), len(inputs))
    )
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(learned_parameters(model), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_epochs * -(-len(inputs) // batch_size))
    losses: list[float] = []
    for epoch in range(num_epochs):
        total = 0.0
        for rows in torch.randperm(len(inputs), generator=generator).to(inputs.device).split(batch_size):
            optimizer.zero_grad()
            loss = -objective(inputs[rows], targets[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(inputs))
        if progress is not None:
            progress(epoch + 1, losses[-1])
    model.eval()
    change = losses[-2] - losses[-1] if num_epochs > 1 else float("inf")
    message = f"all {num_epochs} epochs used; the last changed {change:.2g} nats"
    return reported(Fit(losses[-1], num_epochs, abs(change) < tolerance, message))


def start_from(model: StochasticCorrelatedGPRegression, closed: SparseCorrelatedGPRegression, num_rows: int) -> None:
    r"""Initialise with the parameters of a closed-form fit, and q at its estimated optimum for all n rows.

    .. math:: q(v) = N\big(B^{-1}A\Sigma^{-1}r,\; B^{-1}\big), \qquad B = I + A\Sigma^{-1}A^\top

    The sums over rows are those of the other model's rows, times n over their number. With all rows this is the
    optimum of q: Titsias (2009), equation (10).
    """
    model.load_state_dict(closed.state_dict(), strict=False)
    with torch.no_grad():
        share = len(closed.train_targets) / num_rows
        sums = closed.sums()
        posterior = InducingPosterior(sums.gram / share, sums.projection / share)
        model.variational_strategy.set_posterior(posterior)
