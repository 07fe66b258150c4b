"""Cadmium in the Swiss Jura from nickel and zinc: the classic of several correlated outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.regression.methods import CORRELATED
from experiments.regression.problems import Problem, scores
from experiments.regression.report import write_results
from experiments.regression.rows import cached_row

__all__ = ["jura", "jura_problem"]

_OBSERVED = 259


def jura(data: Path, out: Path, kernels: Sequence[str] = ("rbf", "matern32"), threads: int = 1) -> None:
    """Cadmium at 100 validation sites from 259 cadmium and 359 nickel and zinc values.

    Args:
        data: the folder that holds ``multioutput/jura.csv``.
        out: where tables and rows go.
        kernels: canonical covariances to run.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    problem = jura_problem(data)
    rows = [
        cached_row(
            out / "jura",
            {"kernel": kernel, "method": name},
            lambda method=method, kernel=kernel: scores(problem, method(problem, kernel=kernel)),
        )
        for kernel in kernels
        for name, method in CORRELATED.items()
    ]
    columns = ("mae", "rmse", "nll", "coverage", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-jura", "Jura: cadmium (ppm) at 100 sites", rows, ("kernel", "method"), columns)


def jura_problem(data: Path) -> Problem:
    """Cadmium is process 0, nickel 1, zinc 2.

    Args:
        data: the folder that holds ``multioutput/jura.csv``.
    """
    table = np.genfromtxt(data / "multioutput" / "jura.csv", delimiter=",", names=True)
    inputs = np.column_stack([table["X"], table["Y"]])
    targets = np.column_stack([table["Cd"], table["Ni"], table["Zn"]])
    truth = targets[_OBSERVED:, 0].copy()
    targets[_OBSERVED:, 0] = np.nan
    return Problem(inputs, targets, inputs[_OBSERVED:], truth)
