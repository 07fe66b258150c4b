"""Optimizers and the schedules of their learning rate, and of the weights of the objective's terms."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from experiments.configuration import MethodConfig, TrainingConfig

__all__ = ["build_optimizer", "learning_rate_factor", "linear", "rate_schedule"]

_OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def build_optimizer(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], method: MethodConfig, training: TrainingConfig
) -> torch.optim.Optimizer:
    """Build the optimizer of parameters, or of groups of them with different learning rates."""
    return _OPTIMIZERS[training.optimizer](parameters, lr=method.learning_rate, weight_decay=method.weight_decay)


def rate_schedule(
    optimizer: torch.optim.Optimizer, method: MethodConfig, training: TrainingConfig, total: int
) -> LRScheduler:
    """Build the schedule of the learning rate, one value per step."""
    warmup = total * training.warmup_epochs / training.epochs
    if training.schedule == "one_cycle":
        warmup = min(warmup, total - 1)
        return OneCycleLR(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            total_steps=total,
            pct_start=warmup / total if warmup > 1 else 0.0,  # the library divides by zero for a single step
            cycle_momentum=False,
        )
    end = training.final_learning_rate / method.learning_rate
    return LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(step, total, warmup=round(warmup), end=end, schedule=training.schedule),
    )


def learning_rate_factor(step: int, total: int, *, warmup: int, end: float, schedule: str) -> float:
    """Learning rate of a step relative to the largest one: it increases linearly, then decreases."""
    if step < warmup:
        return (step + 1) / warmup
    fallen = linear(step - warmup, total - warmup)
    return 1.0 + (end - 1.0) * (fallen if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * fallen)))


def linear(step: int, num_steps: int, start: float = 0.0, end: float = 1.0) -> float:
    """Linear from start to end, then constant: CGPT's annealing of alpha, SGPA's of the divergence."""
    return start + (end - start) * (min(step / num_steps, 1.0) if num_steps > 0 else 1.0)
