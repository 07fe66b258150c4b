"""The UCI regression sets with their standard splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from cgp.plotting import style
from experiments.storage import write_atomically
from experiments.studies.regression.methods import PEERS
from experiments.studies.regression.problems import Problem
from experiments.studies.regression.report import with_peers, write_results
from experiments.studies.regression.rows import sparse_rows

__all__ = ["evidence_figure", "uci", "uci_problem"]

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

    Beside the table, a picture: whether the fit of more evidence is the one that predicts better, split by split.

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
    if any("evidence" in row for row in rows):
        with style():
            write_atomically(out / "regression-uci.png", evidence_figure(rows).savefig)


def uci_problem(data: Path, name: str, split: int) -> Problem:
    """One standard split."""
    stored = np.load(data / "uci" / f"{name}.npz")
    test = stored["test_mask"][split]
    x, y = stored["X"], stored["y"].reshape(-1)
    return Problem(x[~test], y[~test], x[test], y[test])


def evidence_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """What each split's fit has more evidence than its peer's against what it loses in NLL, a panel per set."""
    measured = {(row["set"], row["split"], row["method"]): row for row in rows if "evidence" in row}
    sets = list(dict.fromkeys(name for name, *_ in measured))
    columns = min(len(sets), 4)
    figure = Figure(figsize=(1.0 + 2.4 * columns, 0.6 + 2.3 * -(-len(sets) // 4)), layout="constrained")
    shown = {}
    for number, name in enumerate(sets, 1):
        axis = figure.add_subplot(-(-len(sets) // 4), columns, number)
        axis.set_title(name)
        axis.axhline(0.0, color="0.6", lw=0.8)
        axis.axvline(0.0, color="0.6", lw=0.8)
        axis.set_xscale("symlog", linthresh=1.0)
        axis.xaxis.set_major_formatter("{x:g}")
        for (method, peer), marker, colour in zip(PEERS.items(), "o^s", ("C0", "C1", "C2"), strict=True):
            pairs = [
                (row["evidence"] - other["evidence"], row["nll"] - other["nll"])
                for (found, split, label), row in measured.items()
                if (found, label) == (name, method) and (other := measured.get((name, split, peer)))
            ]
            if pairs:
                label = f"{method} less {peer}"
                (shown[label],) = axis.plot(*zip(*pairs, strict=True), marker, color=colour, ms=4, alpha=0.7)
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=min(columns, 2))
    figure.supxlabel("evidence less its peer's (nats), a point per split", fontsize="medium")
    figure.supylabel("NLL less its peer's", fontsize="medium")
    return figure
