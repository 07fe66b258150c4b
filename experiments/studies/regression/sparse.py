"""Exact and sparse regression: the UCI sets with their standard splits, and a function of ever more rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from cgp.plotting import style
from experiments.atomic_files import write_atomically
from experiments.studies.regression.methods import PEERS, SPARSE, Method, chosen, stochastic
from experiments.studies.regression.peers import svgp
from experiments.studies.regression.problems import Problem, scores
from experiments.studies.regression.report import cached_row, with_peers, write_results

__all__ = ["evidence_figure", "evidence_pairs", "scaling", "scaling_problem", "uci", "uci_problem"]

Panels = dict[str, dict[str, list[tuple[float, float]]]]
"""By set and method, the differences of each split to its peer in evidence and in NLL."""

_SPLITS_DRAWN = 3
_EXACT_ROWS = 2000

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
    methods: Sequence[str] | None = None,
) -> None:
    """Exact (up to 2,000 rows) and sparse regression beside GPyTorch's with the same number of inducing inputs.

    A figure shows, for every split, whether the fit with more evidence predicts better.

    Args:
        data: folder with ``uci/NAME.npz``.
        out: folder of tables and rows.
        num_splits: number of standard splits to run of every set.
        methods: names of the methods to run; None means all.
    """
    problems = (
        ({"set": name, "split": split}, uci_problem(data, name, split))
        for name, count in num_splits.items()
        for split in range(min(count, len(np.load(data / "uci" / f"{name}.npz")["test_mask"])))
    )
    rows = _rows(out / "uci", problems, methods, 100)
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


def scaling(
    out: Path,
    sizes: Sequence[int] = (1000, 2000, 5000, 10000, 20000, 50000),
    methods: Sequence[str] | None = None,
    num_steps: int | None = None,
    threads: int = 2,
) -> None:
    """Fit and prediction of a smooth function of four inputs with noise 0.1, n = 1k … 50k.

    Args:
        out: folder of tables and rows.
        sizes: numbers of rows.
        methods: names of the methods to run; None means all.
        num_steps: number of minibatch steps; None is 500 or 20 epochs for ours, twice as many for SVGP.
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    problems = (({"n": size}, scaling_problem(size)) for size in sizes)
    rows = _rows(out / "scaling", problems, methods, 200, num_steps)
    columns = ("rmse", "nll", "seconds", "processor_seconds", "memory_mb")
    write_results(out, "regression-scaling", "Seconds and memory by rows", rows, ("n", "method"), columns)


def scaling_problem(size: int) -> Problem:
    """Rows of a known function."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2.0, 2.0, (size + 500, 4))
    y = np.sin(2 * x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.3 * x[:, 3] + 0.1 * generator.standard_normal(len(x))
    return Problem(x[:size], y[:size], x[size:], y[size:])


def _rows(
    folder: Path,
    problems: Iterable[tuple[Mapping[str, Any], Problem]],
    methods: Sequence[str] | None,
    num_inducing: int,
    num_steps: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of the sparse methods and, up to 2,000 observations, of the exact ones on every problem."""
    rows = []
    for key, problem in problems:
        for label, method in chosen(SPARSE, methods).items():
            exact = "exact" in label.lower()
            if exact and len(problem.inputs) > _EXACT_ROWS:
                continue
            options: dict[str, Any] = {"kernel": "rbf"} | ({} if exact else {"num_inducing": num_inducing})
            if num_steps is not None and method in (stochastic, svgp):
                options["num_steps"] = num_steps
            rows.append(
                cached_row(folder, {**key, "method": label}, partial(_row, problem, method, options), **options)
            )
    return rows


def _row(problem: Problem, method: Method, options: Mapping[str, Any]) -> dict[str, float]:
    return scores(problem.test_targets, method(problem, **options))
