"""Train one model on a stream of functions, with its learning curve."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from experiments.studies.in_context.models import Entry, marginal_density
from experiments.studies.in_context.tasks import Stream, Tasks

__all__ = ["POINTS", "fit"]

POINTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
"""Where the learning curve is measured, in parts of the training."""

_WARMUP = 50
_CLIP = 1.0
_MEMORY = 9  # the average of the weights reaches back over about a tenth of the steps


def fit(
    entry: Entry, stream: Stream, validation: Sequence[Tasks], *, seed: int, steps: int
) -> tuple[nn.Module, list[dict[str, float]]]:
    """Train at a constant rate and average the weights: the curve at any step is the result of a training so long.

    Args:
        entry: the model.
        stream: draws training tasks.
        validation: tasks of the learning curve.
        seed: of the weights and the tasks.
        steps: their number.

    Returns:
        The averaged model, and points of its curve: step, processor seconds of the training, validation loss in nats a
        target (one by one).
    """
    torch.manual_seed(seed)
    model = entry.build()
    average = AveragedModel(model, avg_fn=_recent)
    optimizer = torch.optim.AdamW(model.parameters(), lr=entry.rate, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=_WARMUP)
    due, curve, seconds = {max(1, round(part * steps)) for part in POINTS}, [], 0.0
    for step, tasks in _numbered(stream, seed, steps):
        started = time.process_time()
        _step(model, entry.loss(model, tasks), optimizer)
        average.update_parameters(model)
        warmup.step()
        seconds += time.process_time() - started
        if step in due:
            loss = _validation_loss(average.module, validation)
            curve.append({"step": step, "seconds": round(seconds, 2), "loss": loss})
            print(f"  step {step:6d}  {seconds:6.1f} s  validation {loss:.4f}", file=sys.stderr, flush=True)
    return average.module.eval(), curve


def _step(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()


def _recent(average: Tensor, value: Tensor, number: Any) -> Tensor:
    """Polynomial-decay averaging (Shamir & Zhang 2013)."""
    return average + (value - average) * (_MEMORY + 1) / (number + _MEMORY + 1)


def _numbered(stream: Stream, seed: int, steps: int) -> Iterator[tuple[int, Tasks]]:
    generator = torch.Generator().manual_seed(seed)
    for step in range(1, steps + 1):
        yield step, stream(generator)


@torch.no_grad()
def _validation_loss(model: nn.Module, validation: Sequence[Tasks]) -> float:
    """Nats a target, with the model as it predicts; its mode in training is put back."""
    was_training = model.training
    model.eval()
    losses = [float(marginal_density(model, tasks)) for tasks in validation]
    model.train(was_training)
    return sum(losses) / len(losses)
