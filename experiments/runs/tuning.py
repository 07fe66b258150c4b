"""Search learning rates and variants of rows on validation NLL."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.table import Table

from experiments.configuration import RunConfig, TrainerConfig, flattened
from experiments.reports.tables import write_csv
from experiments.runs.parsing import config_of
from experiments.runs.rows import CONFIGS, merged
from experiments.runs.run import Run
from experiments.runs.sweeping import Sweep
from experiments.storage import read_yaml, write_text

__all__ = ["tune"]


class _Trial(NamedTuple):
    """A point of the search: values over a row, and its runs, one a seed."""

    row: str
    values: dict[str, Any]
    runs: list[RunConfig]


def tune(configs: Sequence[RunConfig], *, out: Path, trainer: TrainerConfig, workers: int) -> tuple[Table, list[str]]:
    """Train every variant of rows with every learning rate, and select by the mean validation NLL over the seeds.

    Writes every trial (`trials.csv`) and, for each row, `<row>.yaml` with what was selected; returns a table of that,
    and how to use it. The test set is not predicted. Killed midway and started again, it goes on where it was.
    """
    trials = list(_trials(configs))
    failed = Sweep(out, trainer, workers, predict=False).perform([run for trial in trials for run in trial.runs])
    if failed:
        raise ValueError("; ".join(f"{folder}: {error}" for folder, error in failed.items()))
    rows = [_summary(trial, out) for trial in trials]
    write_csv(out / "trials.csv", rows)
    table = Table(
        "row", "selected", "validation NLL", "accuracy %", title="Selected on validation NLL", title_justify="left"
    )
    files = []
    for name in dict.fromkeys(trial.row for trial in trials):
        best = min((row for row in rows if row["row"] == name), key=lambda row: row["validation_nll"])
        nll = f"{best['validation_nll']:.4f} ± {best['validation_nll_sd']:.4f}"
        table.add_row(name, best["selected"], nll, f"{100 * best['validation_accuracy']:.1f}")
        files.append(out / f"{name.replace('/', '-')}.yaml")
        text = yaml.safe_dump({"method": trials[rows.index(best)].values}, sort_keys=False)
        write_text(
            files[-1], f"# Of {len(rows)} trials the one with the smallest mean validation NLL of its row.\n{text}"
        )
    return table, [
        f"--config {name} --config {file}"
        for name, file in zip(dict.fromkeys(t.row for t in trials), files, strict=True)
    ]


def _trials(configs: Sequence[RunConfig]) -> Iterator[_Trial]:
    space = read_yaml(CONFIGS / "tune.yaml")
    for name in dict.fromkeys(config.name for config in configs):
        method = name.partition("/")[2]
        if method not in space["variants"]:
            raise ValueError(f"rows: expected some of {', '.join(space['variants'])}, got {name}")
        tried = product(space["variants"][method], space["learning_rates"])
        for number, (variant, rate) in enumerate(tried):
            values = variant | {"learning_rate": rate}
            own = [config for config in configs if config.name == name]
            yield _Trial(name, values, [_over(config, values, f"{name}-trial-{number}") for config in own])


def _over(config: RunConfig, values: dict[str, Any], name: str) -> RunConfig:
    return config_of(merged(config.plain(), {"method": values, "name": name}))


def _summary(trial: _Trial, out: Path) -> dict[str, Any]:
    """Summarise a trial over its seeds."""
    records = [Run(run.folder(out)).record for run in trial.runs]
    scores = [record["validation_nll"] for record in records]
    accuracies = [record["history"][record["best_epoch"]]["validation_accuracy"] for record in records]
    return {
        "row": trial.row,
        "selected": ", ".join(f"{key} {value}" for key, value in flattened(trial.values)),
        "validation_nll": statistics.fmean(scores),
        "validation_nll_sd": statistics.stdev(scores) if len(scores) > 1 else float("nan"),
        "validation_accuracy": statistics.fmean(accuracies),
        "best_epoch": statistics.fmean(record["best_epoch"] for record in records),
        "seconds_per_epoch": statistics.fmean(record["seconds_per_epoch"] for record in records),
    }
