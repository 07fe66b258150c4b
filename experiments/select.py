"""The small search on validation NLL that fixes the defaults of the demo."""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.table import Table

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainingConfig
from experiments.reports.demo_tables import console_of_width, write_csv
from experiments.runs.demo_runs import Run
from experiments.runs.provenance import provenance
from experiments.schedule import perform_all
from experiments.storage import OutputFolder, open_output, write_json, write_text

__all__ = ["SearchConfig", "Variant", "select"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Values that replace those of a method.

    Args:
        options: added to the options of the attention.
        alpha: weight of the log-density terms; 0 is no such objective.
        weight_decay: of AdamW.
    """

    options: dict[str, Any] = field(default_factory=dict)
    alpha: float = 0.0
    weight_decay: float = 0.0

    def __str__(self) -> str:
        """Return the values in one line."""
        values = {"weight_decay": self.weight_decay, "alpha": self.alpha, **self.options}
        return ", ".join(f"{name} {value}" for name, value in values.items() if value) or "plain"


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """What is tried; give every method as many trials as the others.

    Args:
        seeds: number of seeds of each trial.
        learning_rates: tried for every variant.
        variants: for each method.
    """

    seeds: int
    learning_rates: list[float]
    variants: dict[str, list[Variant]]


class _Trial(NamedTuple):
    """A point of the search."""

    name: str  # of the method in the configuration
    variant: Variant
    method: MethodConfig
    runs: list[Run]


def select(
    *,
    model: ModelConfig,
    training: TrainingConfig,
    evaluation: EvaluationConfig,
    methods: dict[str, MethodConfig],
    search: SearchConfig,
    seeds: int = 3,
    workers: int = 2,
    out: Path = Path("runs/select"),
) -> Path:
    """Search learning rate, objective and α of every method on validation NLL.

    Writes every trial (`trials.csv`), the best of each method (`selected.md`), and a configuration for
    `python -m experiments demo --config OUT/demo.yaml`. The test images are not touched. Killed midway and started
    again, it goes on where it was.

    Args:
        model: sizes of the vision transformer.
        training: the training budget of a trial.
        evaluation: handed on to the configuration that is written.
        methods: the rows of the table, with the values that are not searched.
        search: what is tried.
        seeds: handed on to the configuration that is written.
        workers: number of processes that train at the same time, each with one thread.
        out: folder to write.

    Returns:
        The folder that was written.
    """
    trials = [trial for name in methods for trial in _trials(name, methods[name], model, training, search)]
    config = {
        "seeds": seeds,
        "model": asdict(model),
        "training": asdict(training),
        "evaluation": asdict(evaluation) | {"strengths": list(evaluation.strengths)},
        "methods": {name: asdict(method) for name, method in methods.items()},
    }
    console = console_of_width(160)
    with open_output(out, config | {"search": asdict(search)}) as output:
        console.print(output.message, highlight=False)
        runs = [run for trial in trials for run in trial.runs]
        perform_all(runs, output.path, workers=workers, console=console)
        _conclude(trials, config, output, console)
    return output.path


def _trials(
    name: str, method: MethodConfig, model: ModelConfig, training: TrainingConfig, search: SearchConfig
) -> Iterator[_Trial]:
    """Yield every combination of variant and learning rate."""
    for number, variant in enumerate(search.variants.get(name, [Variant()])):
        for rate in search.learning_rates:
            tried = replace(
                method,
                options=method.options | variant.options,
                alpha=variant.alpha,
                weight_decay=variant.weight_decay,
                learning_rate=rate,
            )
            folder = f"{name}-{number}-{rate:g}"
            runs = [Run(folder, tried, seed, model, training, None) for seed in range(search.seeds)]
            yield _Trial(name, variant, tried, runs)


def _conclude(trials: list[_Trial], config: dict[str, Any], output: OutputFolder, console: Console) -> None:
    """Compare the trials, print and write what was selected."""
    rows = [_row(trial, output.path) for trial in trials]
    best = {
        name: min((row for row in rows if row["method"] == name), key=lambda row: row["validation_nll"])
        for name in config["methods"]
    }
    chosen = {name: asdict(trials[rows.index(row)].method) for name, row in best.items()}
    command = provenance()["command"]
    text = yaml.safe_dump(config | {"methods": chosen}, sort_keys=False)
    write_csv(output.path / "trials.csv", rows)
    write_text(output.path / "selected.md", _markdown(list(best.values()), len(rows)))
    write_text(output.path / "demo.yaml", f"# Chosen on validation NLL by: {command}\n{text}")
    write_json(output.path / "provenance.json", provenance())
    console.print(_table(list(best.values())))
    console.print(f"Use it: python -m experiments demo --config {output.path / 'demo.yaml'}", highlight=False)
    output.complete({"trials": len(trials)})


def _row(trial: _Trial, root: Path) -> dict[str, Any]:
    """Summarise a trial over its seeds."""
    summaries = [run.summary(root) for run in trial.runs]
    scores = [summary["validation_nll"] for summary in summaries]
    accuracies = [summary["history"][summary["best_epoch"]]["validation_accuracy"] for summary in summaries]
    return {
        "method": trial.name,
        "variant": str(trial.variant),
        "learning_rate": trial.method.learning_rate,
        "validation_nll": statistics.fmean(scores),
        "validation_nll_sd": statistics.stdev(scores) if len(scores) > 1 else float("nan"),
        "validation_accuracy": statistics.fmean(accuracies),
        "best_epoch": statistics.fmean(summary["best_epoch"] for summary in summaries),
        "seconds_per_epoch": statistics.fmean(summary["seconds_per_epoch"] for summary in summaries),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    """Format a row."""
    nll = f"{row['validation_nll']:.4f} ± {row['validation_nll_sd']:.4f}"
    return [row["method"], row["variant"], f"{row['learning_rate']:g}", nll, f"{100 * row['validation_accuracy']:.1f}"]


_HEADER = ["method", "selected", "learning rate", "validation NLL", "validation accuracy %"]


def _table(best: list[dict[str, Any]]) -> Table:
    """Return what was selected, for the terminal."""
    table = Table(*_HEADER, title="Selected on validation NLL", title_justify="left")
    for row in best:
        table.add_row(*_cells(row))
    return table


def _markdown(best: list[dict[str, Any]], trials: int) -> str:
    """Return what was selected, as Markdown."""
    lines = [_HEADER, ["---"] * len(_HEADER), *(_cells(row) for row in best)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# Selected on validation NLL, of {trials} trials\n\n{body}\n"
