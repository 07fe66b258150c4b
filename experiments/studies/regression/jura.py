"""Cadmium in the Swiss Jura from nickel and zinc: the classic example of correlated outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.studies.regression.cached_rows import cached_row
from experiments.studies.regression.methods import MULTIOUTPUT, Outputs
from experiments.studies.regression.problems import Answer, point_losses, scores
from experiments.studies.regression.report import SITES, with_pairs, write_results

__all__ = ["jura", "jura_problem"]

_OBSERVED = 259

Array = NDArray[np.float64]


def jura(data: Path, out: Path, kernels: Sequence[str] = ("rbf", "matern32"), threads: int = 1) -> None:
    """Cadmium at 100 validation sites from 259 cadmium and 359 nickel and zinc values.

    Args:
        data: folder with ``multioutput/jura.csv``.
        out: folder of tables and rows.
        kernels: canonical covariances to run.
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    inputs, targets, truth = jura_problem(data)

    def compute(method: Outputs, kernel: str) -> dict[str, Any]:
        mean, sd = method(inputs, targets, kernel=kernel)
        answer = Answer(mean[_OBSERVED:, 0], sd[_OBSERVED:, 0])
        return scores(truth, answer) | {SITES: point_losses(truth, answer).tolist()}

    rows = [
        cached_row(out / "jura", {"kernel": kernel, "method": name}, partial(compute, method, kernel))
        for kernel in kernels
        for name, method in MULTIOUTPUT.items()
    ]
    columns = ("mae", "rmse", "nll", "behind", "coverage", "seconds", "processor_seconds", "memory_mb")
    title = "Jura: cadmium (ppm) at 100 sites"
    write_results(out, "regression-jura", title, with_pairs(rows, "kernel"), ("kernel", "method"), columns)


def jura_problem(data: Path) -> tuple[Array, Array, Array]:
    """Sites; cadmium (hidden at the last ones), nickel and zinc there; and the hidden cadmium."""
    table = np.genfromtxt(data / "multioutput" / "jura.csv", delimiter=",", names=True)
    targets = np.column_stack([table["Cd"], table["Ni"], table["Zn"]])
    truth = targets[_OBSERVED:, 0].copy()
    targets[_OBSERVED:, 0] = np.nan
    return np.column_stack([table["X"], table["Y"]]), targets, truth
