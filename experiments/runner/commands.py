"""The commands on rows of tables, as the command line calls them."""

import sys
from pathlib import Path

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainerConfig, TrainingConfig
from experiments.data.configuration import DataConfig
from experiments.runner.experiment import Experiment
from experiments.runner.smoke import smoked
from experiments.tables import console_of_width

__all__ = ["fit", "sweep"]

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
    departures: tuple[str, ...] = (),
    reduced: tuple[str, ...] = (),
    out: Path = OUT,
    smoke: bool = False,
) -> Path:
    """Train one row with one seed, predict every input set, summarise; `--config cola/softmax` names a row.

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
        departures: in words, what departs from the paper.
        reduced: in words, what was reduced besides.
        out: folder of all runs.
        smoke: a few steps on a handful of examples, to see whether the row works.

    Returns:
        The folder of the run.
    """
    from experiments.runner.fitting import perform

    experiment = Experiment(
        name=name,
        data=data,
        model=model,
        method=method,
        training=training,
        evaluation=evaluation,
        seed=seed,
        departures=departures,
        reduced=reduced,
    )
    folder = perform(smoked(experiment) if smoke else experiment, out=out, trainer=trainer)
    return folder.path


def sweep(
    *,
    rows: list[str],
    trainer: TrainerConfig,
    seeds: tuple[int, ...] = (0, 1, 2),
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
        seeds: of each row.
        out: folder of all runs.
        override: configurations merged over each row, as `["reduced/cola"]`.
        settings: values over that, as `["training.epochs=3"]`.
        workers: number of processes that train at the same time, each with one thread.
        print: write one command a line instead, for a cluster.
        smoke: a few steps on a handful of examples of each.
    """
    from experiments.runner.sweeping import commands, experiments_of, sweep_all

    experiments = experiments_of(rows, seeds, override, settings)
    if print:
        rest = [*(f"--{value}" for value in settings), *(["--smoke"] if smoke else [])]
        sys.stdout.write("".join(f"{line}\n" for line in commands(experiments, out, override, rest)))
        return
    experiments = [smoked(experiment) for experiment in experiments] if smoke else experiments
    console = console_of_width(160)
    failed = sweep_all(experiments, out, trainer=trainer, workers=workers, console=console)
    for task in failed:
        console.print(f"failed: {task.folder(out)}: {task.failure(out)}", highlight=False)
    if failed:
        raise SystemExit(1)
