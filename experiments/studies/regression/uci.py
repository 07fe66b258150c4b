"""The UCI regression sets with their standard splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.studies.regression.methods import PEERS, SPARSE, chosen
from experiments.studies.regression.problems import Problem, scores
from experiments.studies.regression.report import with_peers, write_results
from experiments.studies.regression.rows import cached_row, stored_row

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
_EXACT_ROWS = 2000


def uci(
    data: Path,
    out: Path,
    sets: Sequence[str] = _SETS,
    num_splits: int = 20,
    num_inducing: int = 100,
    kernel: str = "rbf",
    methods: Sequence[str] | None = None,
    threads: int = 1,
    only_stored: bool = False,
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
        only_stored: write the tables of the rows that are there and run none.
    """
    torch.set_num_threads(threads)
    rows = []
    for name in sets:
        splits = np.load(data / "uci" / f"{name}.npz")["test_mask"].shape[0]
        for split in range(min(num_splits, splits)):
            problem = uci_problem(data, name, split)
            for label, method in chosen(SPARSE, methods).items():
                exact = "exact" in label.lower()
                if exact and len(problem.inputs) > _EXACT_ROWS:
                    continue
                options = {} if exact else {"num_inducing": num_inducing}
                key = {"set": name, "split": split, "method": label}
                settings = {"kernel": kernel} | options
                if only_stored:
                    rows.append(stored_row(out / "uci", key, **settings))
                    continue
                rows.append(
                    cached_row(
                        out / "uci",
                        key,
                        lambda method=method, problem=problem, options=options: scores(
                            problem, method(problem, kernel=kernel, **options)
                        ),
                        **settings,
                    )
                )
    rows = [row for row in rows if row is not None]
    rows = with_peers(rows, ("set", "split"), PEERS)
    columns = ("rmse", "nll", "ahead", "coverage", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-uci", "UCI regression, standard splits", rows, ("set", "method"), columns)


def uci_problem(data: Path, name: str, split: int) -> Problem:
    """One standard split.

    Args:
        data: the folder that holds ``uci/NAME.npz``.
        name: of the set.
        split: its number.
    """
    stored = np.load(data / "uci" / f"{name}.npz")
    test = stored["test_mask"][split]
    x, y = stored["X"], stored["y"].reshape(-1)
    return Problem(x[~test], y[~test, None], x[test], y[test])
