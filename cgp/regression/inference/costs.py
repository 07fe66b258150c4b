"""What a fit is expected to cost: its evaluations, each at the cost of its form, in seconds and bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cgp.regression.solvers.choice import Cost, Form, Task
from cgp.regression.solvers.series import num_states

from .windows import WINDOW_OBSERVATIONS, window_shape

__all__ = [
    "chains_cost",
    "check_memory",
    "evaluations_of",
    "fit_cost",
    "machine_memory",
    "minibatches_cost",
    "windows_cost",
]

Forms = Mapping[str, tuple[Form, Task]]

# The figures are measured (docs/notes/regression.md, "What is expected of a fit").
_FEWEST = (30, 100)  # evaluations of a fit that starts at the result of another, and of one with several starts
_PER_PARAMETER = 0.7  # further evaluations for each parameter
_PER_STEP = 1.25  # evaluations
_RACE = 80  # evaluations before the best start continues
_PER_CHAIN_STEP = 15  # evaluations
_MINIBATCH = 1e-2  # seconds of a step of Adam, besides an evaluation
_SLICES = 1.5  # seconds of the chains of a model
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def evaluations_of(forms: Forms, raced: tuple[str, ...] | None, *, num_starts: int, max_steps: int) -> dict[str, int]:
    """Expected number of evaluations of the objective in each fit.

    Args:
        forms: the form and the task of each fit.
        raced: names of the fits with several starts; None is all of them.
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each start.

    Returns:
        The numbers, which increase with the number of parameters.
    """
    counts = {}
    for name, (_, task) in forms.items():
        is_raced = raced is None or name in raced
        expected = _FEWEST[is_raced] + _PER_PARAMETER * _num_parameters(task)
        most = _PER_STEP * max_steps + is_raced * _RACE
        counts[name] = round(num_starts * min(expected, most))
    return counts


def _num_parameters(task: Task) -> int:
    """Number of parameters of a model: of its covariance, two for each process, and its inducing inputs."""
    processes = task.covariance.kernels[0].num_processes
    dimension = task.covariance.kernels[0].input_maps.log_scales.shape[-1]
    learned = sum(values.numel() for values in task.covariance.parameters() if values.requires_grad)
    return learned + 2 * processes + (task.num_inducing or 0) * (dimension + processes)


def fit_cost(forms: Forms, evaluations: Mapping[str, int], *, is_sampled: bool = False) -> Cost:
    """Expected cost of fits, one after the other.

    Args:
        forms: the form and the task of each fit.
        evaluations: number of evaluations of each fit.
        is_sampled: whether there are samples of the parameters; their curvatures take two evaluations for each.

    Returns:
        The sum of their seconds and the maximum of their bytes.
    """
    costs = {name: form.cost(task) for name, (form, task) in forms.items()}
    counts = {name: evaluations[name] + 2 * is_sampled * _num_parameters(task) for name, (_, task) in forms.items()}
    return Cost(sum(counts[name] * costs[name].seconds for name in forms), max(cost.bytes for cost in costs.values()))


def chains_cost(forms: Forms, inference: str, num_steps: int) -> float:
    """Expected seconds of the chains of "slice" (for every model) and of "nuts" (for one of them, of so many steps)."""
    if inference == "slice":
        return len(forms) * _SLICES
    seconds = max(form.cost(task).seconds for form, task in forms.values())
    return num_steps * _PER_CHAIN_STEP * seconds if inference == "nuts" else 0.0


def minibatches_cost(forms: Forms, num_epochs: int, batch_size: int) -> Cost:
    """Expected cost of minibatches for one of several tasks, whichever costs most."""
    costs = []
    for form, task in forms.values():
        size = min(batch_size, task.num_observations)
        steps = num_epochs * -(-task.num_observations // size)
        seconds = _MINIBATCH + form.cost(task._replace(num_observations=size)).seconds
        costs.append(Cost(steps * seconds, form.cost(task).bytes))
    return max(costs)


def windows_cost(task: Task, num_windows: int) -> Cost:
    """Expected cost of learning from windows and then predicting in linear time."""
    states, outputs = float(num_states(task.covariance)), task.covariance.kernels[0].num_processes
    share = task.num_observations / (outputs * task.num_inputs)
    rows, chosen = window_shape(task.num_inputs, outputs)
    window = 9e-3 + 1.5e-2 * (rows * chosen * share / WINDOW_OBSERVATIONS) ** 2 + 1.5e-4 * chosen
    seconds = num_windows * window + task.num_inputs * (5e-5 + 2e-6 * states + 1e-8 * states**2)
    return Cost(seconds, task.num_inputs * (2000.0 + 16.0 * states * outputs))


def check_memory(cost: Cost) -> None:
    """Reject costs that exceed the memory of the machine."""
    available = machine_memory()
    if cost.bytes > available:
        raise ValueError(
            f"X, y: expected a fit within the machine's memory of {available / 1e9:.1f} GB, got an estimated "
            f"{cost.bytes / 1e9:.1f} GB"
        )


def machine_memory() -> float:
    """Bytes of memory of this machine, or of the control group (container) that the process is in."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return total if limit == "max" else min(total, float(limit))
