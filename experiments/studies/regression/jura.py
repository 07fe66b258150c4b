"""Cadmium in the Swiss Jura from nickel and zinc: the classic of several correlated outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.studies.regression.methods import CORRELATED, SAMPLED, Method
from experiments.studies.regression.problems import Problem, point_losses, scores
from experiments.studies.regression.report import SITES, with_pairs, write_results
from experiments.studies.regression.rows import cached_row

__all__ = ["jura", "jura_problem"]

_OBSERVED = 259


def jura(
    data: Path,
    out: Path,
    kernels: Sequence[str] = ("rbf", "matern32"),
    sampled: Sequence[str] = ("rbf",),
    threads: int = 1,
) -> None:
    """Cadmium at 100 validation sites from 259 cadmium and 359 nickel and zinc values.

    Args:
        data: the folder that holds ``multioutput/jura.csv``.
        out: where tables and rows go.
        kernels: canonical covariances to run.
        sampled: those of them whose parameters are sampled, too.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    problem = jura_problem(data)

    def compute(method: Method, kernel: str) -> dict[str, Any]:
        answer = method(problem, kernel=kernel)
        return scores(problem, answer) | {SITES: point_losses(problem, answer).tolist()}

    rows = []
    for kernel in kernels:
        for name, method in (CORRELATED | SAMPLED).items():
            if name in SAMPLED and kernel not in sampled:
                continue
            key = {"kernel": kernel, "method": name}
            rows.append(cached_row(out / "jura", key, partial(compute, method, kernel)))
    columns = ("mae", "rmse", "nll", "behind", "coverage", "seconds", "processor_seconds", "memory_mb")
    title = "Jura: cadmium (ppm) at 100 sites"
    write_results(out, "regression-jura", title, with_pairs(rows, "kernel"), ("kernel", "method"), columns)


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
