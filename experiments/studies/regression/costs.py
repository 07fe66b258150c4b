"""What fits and single evaluations cost: the seconds that are expected, and those that they take."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import NUTS, CorrelatedGPRegressor, Minibatches, correlated_covariance
from cgp.regression.solvers.choice import SOLVERS, Problem
from experiments.studies.regression.multioutput import SETS
from experiments.studies.regression.problems import Array, with_gaps
from experiments.studies.regression.report import cached_row

__all__ = ["PROBLEMS", "fits", "forms"]


_CASES = ((1, "coregionalised"), (4, "coregionalised"), (4, "shared"), (16, "coregionalised"))


class FitProblem(NamedTuple):
    """A table and options of the regressor.

    Attributes:
        read: reads inputs (n, d) and outputs (n, P) from the folder.
        options: arguments of the regressor.
    """

    read: Callable[[Path], tuple[Array, Array]]
    options: Mapping[str, Any]


def fits(data: Path, out: Path, problems: Sequence[str] | None = None) -> None:
    """Print expected and measured CPU seconds of fits, on one thread.

    Args:
        data: folder with ``multioutput`` and ``series``.
        out: folder of rows.
        problems: names of the problems; None means all.
    """
    print("| problem | observations | expected s | CPU s | CPU / expected |")
    print("| --- | ---: | ---: | ---: | ---: |")
    ratios = []
    for name in problems or PROBLEMS:
        x, y = PROBLEMS[name].read(data)
        regressor = CorrelatedGPRegressor(random_state=0, **PROBLEMS[name].options)
        expected, count = regressor.estimate(x, y).seconds, int((~np.isnan(y)).sum())
        row = cached_row(out / "fits", {"problem": name}, partial(_fitted, regressor, x, y))
        ratios.append(row["processor_seconds"] / expected)
        print(f"| {name} | {count} | {expected:.1f} | {row['processor_seconds']:.1f} | {ratios[-1]:.2f} |", flush=True)
    print(f"\nlargest factor: {math.exp(max(abs(math.log(ratio)) for ratio in ratios)):.2f}")


def _fitted(regressor: CorrelatedGPRegressor, x: Array, y: Array) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {"loss": regressor.fit(x, y).fit_.loss}


def _gaps(data: Path, name: str, window: int, outputs: int | None = None, every: int = 1) -> tuple[Array, Array]:
    """A window of a set with values missing at random."""
    problem = with_gaps(*SETS[name](data / "multioutput", window), "random", seed=window)
    return problem.inputs[::every], problem.targets[::every, :outputs]


def _rows(data: Path, name: str, count: int, outputs: int, share: float = 1.0) -> tuple[Array, Array]:
    """The first rows and columns of a text file, of whose values only a share is observed."""
    values = np.loadtxt(data / "series" / f"{name}.txt")[:count, :outputs]
    hidden = np.random.default_rng(0).random(values.shape) > share
    return np.arange(float(len(values)))[:, None], np.where(hidden, np.nan, values)


def _season(data: Path) -> tuple[Array, Array]:
    """Temperature at 12 stations on 100 days over cosine and sine of the day of the year."""
    day, values = _rows(data, "temperature", 100, 12)
    angle = 2.0 * np.pi * day / 365.25
    return np.hstack([np.cos(angle), np.sin(angle)]), values


PROBLEMS: Mapping[str, FitProblem] = {
    "wind, 4 stations": FitProblem(partial(_gaps, name="wind", window=3), {"kernel": "matern32"}),
    "soil, 7 metals over two columns": FitProblem(partial(_gaps, name="jura", window=0, every=2), {}),
    "sensors, 33 columns, 85 % missing": FitProblem(
        partial(_rows, name="drift", count=100, outputs=33, share=0.15), {}
    ),
    "temperature, 12 stations over two columns, 'factors'": FitProblem(_season, {"structure": "factors"}),
    "tide, 4 stations, 8 of 144 rows": FitProblem(partial(_gaps, name="tide", window=3, every=18), {}),
    "gases, inference='laplace'": FitProblem(partial(_gaps, name="air", window=7, every=2), {"inference": "laplace"}),
    "exchange rates, inference='nuts'": FitProblem(
        partial(_gaps, name="exchange", window=1, outputs=2), {"inference": NUTS(num_warmup=40, num_samples=40)}
    ),
    "gases, 40 inducing inputs": FitProblem(partial(_gaps, name="air", window=3), {"num_inducing": 40}),
    "rivers, inference='stochastic'": FitProblem(
        partial(_rows, name="bafu", count=4000, outputs=2),
        {"inference": Minibatches(num_epochs=10), "num_inducing": 50, "structure": "coregionalised"},
    ),
    "temperature, 12 stations, 1,500 days": FitProblem(partial(_rows, name="temperature", count=1500, outputs=12), {}),
}


def forms(num_observations: tuple[int, ...] = (200, 800, 1600, 3200), repetitions: int = 2) -> None:
    """Print a table of CPU seconds for evidence and gradient, Matérn 3/2, on one thread.

    Args:
        num_observations: numbers of observations, over all outputs.
        repetitions: number of repetitions, of which the fastest is used.
    """
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
