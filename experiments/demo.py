"""The main job: train, compare, report."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainingConfig
from experiments.evaluation.diagnostics import DIAGNOSTICS, collapse_of_runs
from experiments.methods.build import ATTENTION
from experiments.reports.demo_report import write_report
from experiments.reports.demo_tables import console_of_width, markdown, terminal, verdict, write_csv
from experiments.reports.results import COLUMNS, collect
from experiments.runs.demo_runs import Run
from experiments.runs.provenance import provenance
from experiments.schedule import perform_all
from experiments.storage import OutputFolder, open_output, write_json, write_text

__all__ = ["demo"]

_QUICK_EPOCHS = 8
_QUICK_STRENGTHS = (1, 3, 5)


def demo(
    *,
    model: ModelConfig,
    training: TrainingConfig,
    evaluation: EvaluationConfig,
    methods: dict[str, MethodConfig],
    out: Path = Path("runs/demo"),
    quick: bool = False,
    seeds: int = 3,
    workers: int = 2,
) -> Path:
    """Train one small vision transformer with every method on real digits, and write a report.

    Killed midway and started again, it goes on where it was; a folder with a complete run is never written again.

    Args:
        model: sizes of the vision transformer.
        training: the training budget.
        evaluation: what is predicted.
        methods: the rows of the table.
        out: folder to write.
        quick: one seed, few epochs: under a minute, for a first look.
        seeds: number of seeds; each has its own split of the data.
        workers: number of processes that train at the same time, each with one thread.

    Returns:
        The folder that was written.
    """
    if seeds < 1:
        raise ValueError(f"seeds: expected at least 1, got {seeds}")
    if quick:
        seeds, training, evaluation = _quickened(seeds, training, evaluation)
    runs = [
        Run(name, method, seed, model, training, evaluation)
        for seed in range(seeds)
        for name, method in methods.items()
    ]
    console = console_of_width(160)
    config = _plain(model, training, evaluation, methods, seeds)
    with open_output(out, config) as output:
        console.print(output.message, highlight=False)
        start = time.perf_counter()
        perform_all(runs, output.path, workers=workers, console=console)
        _conclude(runs, config, output, console)
        seconds = time.perf_counter() - start
        console.print(f"Report: {output.path / 'report.html'} ({seconds:.0f} s)", highlight=False)
        output.complete({"seconds": seconds})
    return output.path


def _quickened(
    seeds: int, training: TrainingConfig, evaluation: EvaluationConfig
) -> tuple[int, TrainingConfig, EvaluationConfig]:
    """Cap what takes time."""
    strengths = tuple(strength for strength in evaluation.strengths if strength in _QUICK_STRENGTHS)
    return (
        min(seeds, 1),
        replace(training, epochs=min(training.epochs, _QUICK_EPOCHS), warmup_epochs=min(training.warmup_epochs, 2)),
        replace(evaluation, strengths=strengths or evaluation.strengths),
    )


def _plain(
    model: ModelConfig,
    training: TrainingConfig,
    evaluation: EvaluationConfig,
    methods: dict[str, MethodConfig],
    seeds: int,
) -> dict[str, Any]:
    """Return the resolved configuration as plain values, in the layout of the configuration file."""
    return {
        "seeds": seeds,
        "model": asdict(model),
        "training": asdict(training),
        "evaluation": asdict(evaluation) | {"strengths": list(evaluation.strengths)},
        "methods": {name: asdict(method) for name, method in methods.items()},
    }


def _conclude(runs: list[Run], config: dict[str, Any], output: OutputFolder, console: Console) -> None:
    """Compute, print and write everything that follows from the saved predictions."""
    labels = {run.name: run.method.label for run in runs}
    results = collect(runs, output.path)
    console.print(terminal(results.runs, labels, _title(runs)))
    words = verdict(results.runs, labels, baseline="softmax", challengers=_stochastic(runs))
    words += _collapses(runs, labels, output.path)
    console.print("\n".join(words), highlight=False)
    origin = provenance() | {"seeds": sorted({run.seed for run in runs})}
    write_csv(output.path / "results.csv", results.runs)
    write_csv(output.path / "shifts.csv", results.shifts)
    write_csv(output.path / "ood.csv", results.ood)
    write_text(output.path / "results.md", _markdown(runs, results.runs, labels, words))
    write_json(output.path / "provenance.json", origin)
    write_report(runs, results, output.path, title=_title(runs), verdict=words, config=config, provenance=origin)


def _collapses(runs: list[Run], labels: dict[str, str], root: Path) -> list[str]:
    """Return what the scores do not show: which methods' attention tells no tokens apart, on average over the seeds."""
    found = {
        name: collapse_of_runs(run.folder(root) / DIAGNOSTICS for run in runs if run.name == name) for name in labels
    }
    return [f"{labels[name]}: {words}." for name, words in found.items() if words is not None]


def _title(runs: list[Run]) -> str:
    """Name what the table shows."""
    seeds = len({run.seed for run in runs})
    spread = f"mean ± sd over {seeds} seeds" if seeds > 1 else "1 seed"
    return f"Digits: {spread}, {runs[0].epochs} epochs, pooled protocol"


def _stochastic(runs: list[Run]) -> list[str]:
    """Return the names of the Gaussian-process methods."""
    return list(
        dict.fromkeys(run.name for run in runs if getattr(ATTENTION[run.method.attention], "stochastic", False))
    )


def _markdown(runs: list[Run], rows: list[dict[str, Any]], labels: dict[str, str], words: list[str]) -> str:
    """Return the table with its title and what it says."""
    meanings = "\n".join(f"- **{column.title}**: {column.meaning}." for column in COLUMNS)
    return f"# {_title(runs)}\n\n{markdown(rows, labels)}\n{' '.join(words)}\n\n{meanings}\n"
