"""The UCI regression sets with their standard splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.studies.regression.methods import PEERS
from experiments.studies.regression.problems import Problem
from experiments.studies.regression.report import with_peers, write_results
from experiments.studies.regression.rows import sparse_rows

__all__ = ["uci", "uci_problem"]

_SETS = (
    "yacht",
    "energy",
    "concrete",
    "wine-quality-red",
    "power-plant",
    "kin8nm",
    "naval-propulsion-plant",
    "protein-tertiary-structure",
)


def uci(
    data: Path,
    out: Path,
    sets: Sequence[str] = _SETS,
    num_splits: int = 20,
    num_inducing: int = 100,
    kernel: str = "rbf",
    methods: Sequence[str] | None = None,
    threads: int = 1,
) -> None:
    """Exact (up to 2,000 rows) and sparse regression against GPyTorch's with as many inducing inputs.

    Args:
        data: the folder that holds ``uci/NAME.npz``.
        out: where tables and rows go.
        sets: names of the sets.
        num_splits: the first of the standard splits.
        num_inducing: of every sparse method.
        kernel: canonical covariance.
        methods: names of those to run; None means all.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    problems = (
        ({"set": name, "split": split}, uci_problem(data, name, split))
        for name in sets
        for split in range(min(num_splits, len(np.load(data / "uci" / f"{name}.npz")["test_mask"])))
    )
    rows = sparse_rows(out / "uci", problems, methods, num_inducing, kernel=kernel)
    rows = with_peers(rows, ("set", "split"), PEERS)
    columns = ("rmse", "nll", "ahead", "coverage", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-uci", "UCI regression, standard splits", rows, ("set", "method"), columns)


def uci_problem(data: Path, name: str, split: int) -> Problem:
    """One standard split."""
    stored = np.load(data / "uci" / f"{name}.npz")
    test = stored["test_mask"][split]
    x, y = stored["X"], stored["y"].reshape(-1)
    return Problem(x[~test], y[~test], x[test], y[test])
