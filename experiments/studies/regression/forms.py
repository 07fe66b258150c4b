"""CPU seconds of an evaluation by two solvers, measured and by its cost model."""

from __future__ import annotations

import time

import torch

from cgp.regression import correlated_covariance
from cgp.regression.solvers.choice import SOLVERS, Problem

__all__ = ["forms"]

_CASES = ((1, "coregionalised"), (4, "coregionalised"), (4, "shared"), (16, "coregionalised"))


def forms(num_observations: tuple[int, ...] = (200, 800, 1600, 3200), repetitions: int = 2) -> None:
    """Print a table of CPU seconds for evidence and gradient, Matérn 3/2, on one thread.

    Args:
        num_observations: numbers of observations, over all outputs.
        repetitions: number of repetitions, of which the fastest is used.
    """
    torch.set_num_threads(1)
    print("| outputs, structure | observations | exact | expected | linear | expected |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for outputs, structure in _CASES:
        for count in num_observations:
            cells = [
                f"{value:.3f}"
                for name in ("exact", "linear")
                for value in _seconds(name, outputs, structure, count, repetitions)
            ]
            print(f"| {outputs}, {structure} | {count} | {' | '.join(cells)} |", flush=True)


def _seconds(name: str, outputs: int, structure: str, count: int, repetitions: int) -> tuple[float, float]:
    """Measured and expected."""
    solver = SOLVERS[name]
    times, numbers = torch.linspace(-2.0, 2.0, count // outputs, dtype=torch.float64), torch.arange(outputs).double()
    rows = torch.cartesian_prod(times, numbers).reshape(-1, 2)
    targets = (3.0 * rows[:, 0]).sin() + 0.1 * torch.randn(len(rows), dtype=torch.float64)
    covariance = correlated_covariance(outputs, 1, kernel="matern32", structure=structure).double()
    model = solver(rows, targets, outputs, covar_module=covariance).eval()
    measured = []
    for _ in range(repetitions):
        start = time.process_time()
        model.log_evidence().backward()
        measured.append(time.process_time() - start)
    return min(measured), solver.cost(Problem(covariance, len(rows), len(times))).seconds
