"""The UCI regression sets with their standard splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from cgp.plotting import style
from experiments.atomic_files import write_atomically
from experiments.studies.regression.cached_rows import sparse_rows
from experiments.studies.regression.methods import PEERS
from experiments.studies.regression.problems import Problem
from experiments.studies.regression.report import with_peers, write_results

__all__ = ["evidence_figure", "evidence_pairs", "uci", "uci_problem"]

Panels = dict[str, dict[str, list[tuple[float, float]]]]
"""By set and method, the differences of each split to its peer in evidence and in NLL."""

_SPLITS_DRAWN = 3

_SPLITS = {
    "yacht": 20,
    "energy": 20,
    "concrete": 20,
    "wine-quality-red": 5,
    "power-plant": 2,
    "kin8nm": 2,
    "naval-propulsion-plant": 1,
    "protein-tertiary-structure": 1,
}


def uci(
    data: Path,
    out: Path,
    num_splits: Mapping[str, int] = _SPLITS,
    num_inducing: int = 100,
    kernel: str = "rbf",
    methods: Sequence[str] | None = None,
    threads: int = 1,
) -> None:
    """Exact (up to 2,000 rows) and sparse regression beside GPyTorch's with the same number of inducing inputs.

    A figure shows, for every split, whether the fit with more evidence predicts better.

    Args:
        data: folder with ``uci/NAME.npz``.
        out: folder of tables and rows.
        num_splits: number of standard splits to run of every set.
        num_inducing: number of inducing inputs of every sparse method.
        kernel: canonical covariance.
        methods: names of the methods to run; None means all.
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    problems = (
        ({"set": name, "split": split}, uci_problem(data, name, split))
        for name, count in num_splits.items()
        for split in range(min(count, len(np.load(data / "uci" / f"{name}.npz")["test_mask"])))
    )
    rows = sparse_rows(out / "uci", problems, methods, num_inducing, kernel=kernel)
    rows = with_peers(rows, ("set", "split"), PEERS)
    columns = ("rmse", "nll", "ahead", "coverage", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-uci", "UCI regression, standard splits", rows, ("set", "method"), columns)
    panels = evidence_pairs(rows)
    if panels:
        with style():
            write_atomically(out / "regression-uci.png", evidence_figure(panels).savefig)


def uci_problem(data: Path, name: str, split: int) -> Problem:
    """One standard split."""
    stored = np.load(data / "uci" / f"{name}.npz")
    test = stored["test_mask"][split]
    x, y = stored["X"], stored["y"].reshape(-1)
    return Problem(x[~test], y[~test], x[test], y[test])


def evidence_pairs(rows: Sequence[Mapping[str, Any]]) -> Panels:
    """Differences in evidence and NLL of each split's fit to its peer's, for sets with three splits or more."""
    measured = {(row["set"], row["split"], row["method"]): row for row in rows if "evidence" in row}
    panels: Panels = {}
    for (name, split, method), row in measured.items():
        other = measured.get((name, split, PEERS.get(method, "")))
        if other is not None:
            pair = row["evidence"] - other["evidence"], row["nll"] - other["nll"]
            panels.setdefault(name, {}).setdefault(method, []).append(pair)
    return {name: methods for name, methods in panels.items() if max(map(len, methods.values())) >= _SPLITS_DRAWN}


def evidence_figure(panels: Panels) -> Figure:
    """Difference in NLL over difference in evidence, one panel per set."""
    figure = Figure(figsize=(1.0 + 2.4 * len(panels), 3.0), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    shown = {}
    for axis, (name, methods) in zip(axes, panels.items(), strict=True):
        axis.set_title(name)
        axis.axhline(0.0, color="0.6", lw=0.8)
        axis.axvline(0.0, color="0.6", lw=0.8)
        axis.set_xscale("symlog", linthresh=1.0)
        axis.xaxis.set_major_formatter("{x:g}")
        for method, marker, colour in zip(PEERS, "o^s", ("C0", "C1", "C2"), strict=True):
            if method in methods:
                label = f"{method} less {PEERS[method]}"
                (shown[label],) = axis.plot(*zip(*methods[method], strict=True), marker, color=colour, ms=4, alpha=0.7)
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=min(len(panels), 2))
    figure.supxlabel("evidence less its peer's (nats), a point per split", fontsize="medium")
    figure.supylabel("NLL less its peer's", fontsize="medium")
    return figure
