"""Schedules of the learning rate."""

import dataclasses

import pytest
import torch
from torch import nn

from experiments.training.classification import build_optimizer, learning_rate_factor, rate_schedule
from tests.experiments.tiny import SOFTMAX, TRAINING


def rates(schedule, total=100, epochs=10, warmup_epochs=0, final=1e-4):
    """The learning rate of every step."""
    training = dataclasses.replace(
        TRAINING, schedule=schedule, epochs=epochs, warmup_epochs=warmup_epochs, final_learning_rate=final
    )
    chosen = build_optimizer([nn.Parameter(torch.zeros(1))], SOFTMAX, training)
    scheduler = rate_schedule(chosen, SOFTMAX, training, total)
    values = []
    for _ in range(total):
        values.append(chosen.param_groups[0]["lr"])
        chosen.step()
        scheduler.step()
    return values, chosen.param_groups[0]["lr"]


def test_linear_falls_to_the_final_rate():
    result, last = rates("linear")
    expected = torch.linspace(1e-2, 1e-4, 101).tolist()
    assert [*result, last] == pytest.approx(expected)


def test_cosine_after_a_warm_up_agrees_with_torch():
    result, last = rates("cosine", warmup_epochs=2)
    assert result[:20] == pytest.approx([1e-2 * (step + 1) / 20 for step in range(20)])
    reference = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-2)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(reference, T_max=80, eta_min=1e-4)
    for rate in [*result[20:], last]:
        assert rate == pytest.approx(reference.param_groups[0]["lr"])
        reference.step()
        annealing.step()


def test_a_single_step_has_a_rate():
    assert learning_rate_factor(0, 1, warmup=0, end=0.1, schedule="linear") == 1.0
