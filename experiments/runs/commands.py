"""The commands on rows of tables, as the command line calls them."""

import dataclasses
import sys
from pathlib import Path
from typing import Literal

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainerConfig, TrainingConfig
from experiments.configuration import DataConfig
from experiments.runs.experiment import Experiment
from experiments.runs.smoke import smoked
from experiments.reports.demo_tables import console_of_width

__all__ = ["fit", "list_rows", "plot", "predict", "score", "sweep"]

OUT = Path("runs")


def fit(
    *,
    name: str,
    data: DataConfig,
    model: ModelConfig,
    method: MethodConfig,
    training: TrainingConfig,
    evaluation: EvaluationConfig,
    trainer: TrainerConfig,
    seed: int = 0,
    deviations: list[str] | None = None,
    reduced: list[str] | None = None,
    out: Path = OUT,
    smoke: bool = False,
) -> Path:
    """Train one row with one seed, predict every input set, report; `--config cola/softmax` names a row.

    Killed at any moment and started again, it goes on where it was, and ends with the weights of an uninterrupted run.

    Args:
        name: `<data>/<method>`, the folder of its runs.
        data: the data set and what is predicted beside its test part.
        model: sizes of the transformer.
        method: the attention, or what is derived from another row.
        training: the budget.
        evaluation: draws and scope of the predictions.
        trainer: where to train: accelerator, devices, precision.
        seed: decides start, order of the examples and draws, and the split where the data say so.
        deviations: in words, what departs from the paper.
        reduced: in words, what was reduced besides.
        out: folder of all runs.
        smoke: a few steps on a handful of examples, to see whether the row works.

    Returns:
        The folder of the run.
    """
    from lightning.pytorch.utilities import rank_zero_only

    from experiments.runs.fitting import perform

    experiment = Experiment(
        name=name,
        data=data,
        model=model,
        method=method,
        training=training,
        evaluation=evaluation,
        seed=seed,
        deviations=deviations or [],
        reduced=reduced or [],
    )
    folder = perform(smoked(experiment) if smoke else experiment, out=out, trainer=trainer)
    if not rank_zero_only.rank:
        score(runs=[folder.path])
    return folder.path


def sweep(
    *,
    rows: list[str],
    trainer: TrainerConfig,
    seeds: int | tuple[int, ...] = (0, 1, 2),
    out: Path = OUT,
    override: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    workers: int = 1,
    print: bool = False,  # noqa: A002 - the name of the option
    smoke: bool = False,
) -> None:
    """Train rows × seeds, with the rows that they need; skip what is done.

    Args:
        rows: a data set ("cola"), rows ("cola/softmax"), patterns ("cola/*cgp*").
        trainer: where to train.
        seeds: of each row, one or several, as `[0,1,2]`.
        out: folder of all runs.
        override: configurations merged over each row, as `["reduced/cola"]`.
        settings: values over that, as `["training.epochs=3"]`.
        workers: number of processes that train at the same time, each with one thread.
        print: write one command a line instead, for a cluster.
        smoke: a few steps on a handful of examples of each.
    """
    from experiments.runs.sweeping import commands, experiments_of, sweep_all

    experiments = experiments_of(rows, (seeds,) if isinstance(seeds, int) else seeds, override, settings)
    experiments = [smoked(experiment) for experiment in experiments] if smoke else experiments
    if print:
        rest = [*(f"--{value}" for value in settings), *_options(trainer), *(["--smoke"] if smoke else [])]
        sys.stdout.write("".join(f"{line}\n" for line in commands(experiments, out, override, rest)))
        return
    console = console_of_width(160)
    failed = sweep_all(experiments, out, trainer=trainer, workers=workers, console=console)
    for task in failed:
        console.print(f"failed: {task.folder(out)}: {task.failure(out)}", highlight=False)
    if failed:
        raise SystemExit(1)


def _options(trainer: TrainerConfig) -> list[str]:
    """The command line of what is not as it is unless told otherwise."""
    values = {part.name: (getattr(trainer, part.name), part.default) for part in dataclasses.fields(trainer)}
    return [f"--trainer.{name}={value}" for name, (value, usual) in values.items() if value != usual]


def score(*, runs: list[Path], protocol: Literal["pooled", "cgpt", "kep", "sgpa"] = "pooled") -> None:
    """Score the saved predictions of runs; write `report.html`, `scores.csv` and pictures into their folders.

    Args:
        runs: folders of runs, or folders that hold some, such as `runs/cola`.
        protocol: of the classification metrics.
    """
    from experiments.runs.reporting import report_run, score_table
    from experiments.runs.scoring import run_folders

    console = console_of_width(160)
    for folder in run_folders(runs):
        console.print(score_table(folder, report_run(folder, protocol), protocol))
        console.print(f"Report: {folder.path / 'report.html'}", highlight=False)


def predict(run: Path, *, images: Path | None = None, ood: tuple[str, ...] = (), full: bool = False) -> None:
    """Predict a folder of images, or what is missing of a run's input sets, with a trained run.

    Writes `predictions/<set>.npz` and the report; of images, a CSV file with class and uncertainties of each, too.

    Args:
        run: folder of a complete run.
        images: folder of images, in sub-folders or not; None for the run's own input sets.
        ood: further sets of no class, as `["svhn"]`: names, folders of images or .npz files.
        full: corrupt all test images at all five severities.

    Raises:
        ValueError: if images are asked for, and further input sets of the run's own too.
    """
    from experiments.runs.fitting import predict_again
    from experiments.runs.folder import RunFolder
    from experiments.runs.predicting import predict_images, with_inputs
    from experiments.runs.trained_run import TrainedRun

    trained = TrainedRun(run)
    if images is not None and (ood or full):
        raise ValueError("images: expected alone; ood and full are about the run's own input sets")
    if images is None:
        asked = with_inputs(trained, ood=ood, full=full)
        predict_again(asked, RunFolder(run), out=trained.out)
    else:
        console_of_width(160).print(predict_images(trained, images))
    score(runs=[run])


def list_rows(*, rows: str = "*/*", out: Path = OUT) -> None:
    """List the rows, and which of their runs are done.

    Args:
        rows: a data set ("cola") or a pattern ("*/sgpa").
        out: folder of all runs.
    """
    from experiments.runs.listing import row_table

    console_of_width(160).print(row_table(rows, out))


def plot(*, runs: list[Path]) -> None:
    """Draw training curves, reliability, risk-coverage and confidence of runs into their folders.

    Args:
        runs: folders of runs, or folders that hold some, such as `runs/cola`.
    """
    from experiments.runs.drawing import draw_run
    from experiments.runs.scoring import run_folders

    console = console_of_width(160)
    for folder in run_folders(runs):
        names = ", ".join(f"{picture.name}.png" for picture in draw_run(folder))
        console.print(f"{folder.path / 'pictures'}: {names}", highlight=False)
