"""`sweep`: rows × seeds, skipping what is done."""

import dataclasses
import shlex
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from experiments.configuration import TrainerConfig
from experiments.runs.changes import check_name
from experiments.runs.experiment import Experiment
from experiments.runs.fitting import perform_alone
from experiments.runs.folder import RunFolder
from experiments.runs.parsing import experiment_from
from experiments.runs.rows import row_names
from experiments.schedule import perform_all
from experiments.storage import write_text

__all__ = ["SweepTask", "commands", "experiments_of", "sweep_all", "waves"]

_ERROR = "error.txt"
_OWN = {"seed": "seeds are given by --seeds", "name": "runs of a sweep are called after their rows"}


@dataclasses.dataclass(frozen=True)
class SweepTask:
    """A run of a sweep; one that fails leaves its traceback in its folder and lets the others go on.

    Args:
        experiment: row and seed.
        trainer: where to train.
    """

    experiment: Experiment
    trainer: TrainerConfig

    @property
    def epochs(self) -> int:
        """Number of epochs of its training."""
        return self.experiment.epochs

    def folder(self, root: Path) -> Path:
        """Return its folder."""
        return self.experiment.folder(root)

    def is_complete(self, root: Path) -> bool:
        """Say whether everything is done."""
        return RunFolder(self.folder(root)).is_complete

    def perform(self, root: Path, report: Callable[[int], None]) -> None:
        """Do what is not done yet."""
        error = self.folder(root) / _ERROR
        try:
            perform_alone(self.experiment, out=root, trainer=self.trainer, report=report)
            error.unlink(missing_ok=True)
        except Exception:  # noqa: BLE001 - whatever it was, thirty other runs wait
            write_text(error, traceback.format_exc())
            report(self.epochs)

    def failure(self, root: Path) -> str | None:
        """Return the last line of what went wrong, if something did."""
        error = self.folder(root) / _ERROR
        return error.read_text(encoding="utf-8").strip().splitlines()[-1] if error.exists() else None


def experiments_of(
    rows: Sequence[str], seeds: Sequence[int], overrides: Sequence[str], values: Sequence[str]
) -> list[Experiment]:
    """Return every row with every seed, and the runs that these need.

    Args:
        rows: patterns of rows.
        seeds: of each row; an ensemble counts its own.
        overrides: configurations merged over each row.
        values: `key=value` over that.

    Raises:
        ValueError: if there is no such row or value, or a value is one of the sweep's own or makes a row another one.
    """
    _check_settings(values)
    found: dict[tuple[str, int], Experiment] = {}

    def add(name: str, seed: int) -> None:
        if (name, seed) in found:
            return
        experiment = experiment_from([name, *overrides], [*values, f"seed={seed}"])
        check_name(experiment)
        for needed in experiment.needs():
            add(*needed)
        found[name, seed] = experiment

    for seed in seeds:
        for pattern in rows:
            for name in row_names(pattern):
                add(name, seed)
    return list(found.values())


def _check_settings(values: Sequence[str]) -> None:
    for value in values:
        if (key := value.partition("=")[0]) in _OWN:
            raise ValueError(f"settings: expected values of the rows, as training.epochs=3, got {value} ({_OWN[key]})")


def waves(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Order runs such that those that a run needs are in an earlier wave.

    Args:
        experiments: runs, with those that they need.
    """
    waiting = {(experiment.name, experiment.seed): experiment for experiment in experiments}
    ordered: list[list[Experiment]] = []
    while waiting:
        ready = [run for run in waiting.values() if not any(needed in waiting for needed in run.needs())]
        if not ready:
            raise ValueError(f"rows: expected rows that do not need each other, got {sorted(waiting)}")
        ordered.append(ready)
        for run in ready:
            del waiting[run.name, run.seed]
    return ordered


def sweep_all(
    experiments: Sequence[Experiment], out: Path, *, trainer: TrainerConfig, workers: int, console: Console
) -> list[SweepTask]:
    """Do every run that is not done.

    Args:
        experiments: the runs.
        out: folder of all runs.
        trainer: where to train.
        workers: number of processes, each with one thread.
        console: where the progress bar goes.

    Returns:
        The runs that failed.

    Raises:
        ValueError: if a folder holds a run of another configuration; nothing was done then.
    """
    quiet = dataclasses.replace(trainer, progress=False)
    for experiment in experiments:
        RunFolder(experiment.folder(out)).check(experiment)
    failed = []
    for number, wave in enumerate(ordered := waves(experiments), 1):
        tasks = [SweepTask(experiment, quiet) for experiment in wave]
        console.print(f"wave {number} of {len(ordered)}: {len(tasks)} runs", highlight=False)
        perform_all(tasks, out, workers=workers, console=console)
        failed += [task for task in tasks if task.failure(out)]
    return failed


def commands(experiments: Sequence[Experiment], out: Path, overrides: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Return one command a run that is not done, in an order in which they can be run.

    Args:
        experiments: the runs.
        out: folder of all runs.
        overrides: configurations merged over each row.
        rest: further arguments.

    Raises:
        ValueError: if a folder holds a run of another configuration.
    """
    lines = []
    for wave in waves(experiments):
        for run in wave:
            folder = RunFolder(run.folder(out))
            folder.check(run)
            if not folder.is_complete or folder.lacks(run):
                configs = [part for config in (run.name, *overrides) for part in ("--config", config)]
                parts = ["python", "-m", "experiments", "fit", *configs, *rest]
                lines.append(shlex.join([*parts, "--seed", str(run.seed), "--out", str(out)]))
    return lines
