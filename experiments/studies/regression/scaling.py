"""Seconds and memory over the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.studies.regression.cached_rows import sparse_rows
from experiments.studies.regression.problems import Problem
from experiments.studies.regression.report import write_results

__all__ = ["scaling", "scaling_problem"]


def scaling(
    out: Path,
    data: Path | None = None,
    sizes: Sequence[int] = (1000, 2000, 5000, 10000, 20000, 50000),
    num_inducing: int = 200,
    methods: Sequence[str] | None = None,
    num_steps: int | None = None,
    threads: int = 2,
) -> None:
    """Fit and prediction of a smooth function of four inputs with noise 0.1, n = 1k … 50k.

    Args:
        out: folder of tables and rows.
        data: not used, so that all commands take the same arguments.
        sizes: numbers of rows.
        num_inducing: number of inducing inputs.
        methods: names of the methods to run; None means all.
        num_steps: number of minibatch steps; None is 500 or 20 epochs for ours, twice as many for SVGP.
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    problems = (({"n": size}, scaling_problem(size)) for size in sizes)
    rows = sparse_rows(out / "scaling", problems, methods, num_inducing, num_steps, kernel="rbf")
    columns = ("rmse", "nll", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-scaling", "Seconds and memory by rows", rows, ("n", "method"), columns)


def scaling_problem(size: int) -> Problem:
    """Rows of a known function."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2.0, 2.0, (size + 500, 4))
    y = np.sin(2 * x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.3 * x[:, 3] + 0.1 * generator.standard_normal(len(x))
    return Problem(x[:size], y[:size], x[size:], y[size:])
