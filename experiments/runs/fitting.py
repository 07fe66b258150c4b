"""`fit`: one row with one seed, from data to saved predictions, resumable at any moment."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_only
from safetensors.torch import save_model

from experiments.methods import fit_covariance
from experiments.data.examples import Batches
from experiments.configuration import TrainerConfig
from experiments.data import check_inputs, input_sets, load
from experiments.data.examples import DataSplits
from experiments.evaluation.diagnostics import write_diagnostics
from experiments.runs.memory import forget_peak, peak_bytes
from experiments.methods.build import build
from experiments.runs.provenance import provenance
from experiments.runs.changes import changes, check_name
from experiments.runs.deriving import derive_run
from experiments.runs.experiment import Experiment
from experiments.runs.folder import RunFolder
from experiments.runs.initial import start_from
from experiments.runs.predicting import predict_set, predict_sets, recorded_inputs
from experiments.runs.trained_run import TrainedRun, needed_runs
from experiments.storage import write_atomically
from experiments.training import ClassificationModule, FitSummary
from experiments.training import fit as train

__all__ = ["perform", "perform_alone", "predict_again"]


def perform(
    experiment: Experiment,
    *,
    out: Path,
    trainer: TrainerConfig,
    report: Callable[[int], None] = lambda epochs: None,
) -> RunFolder:
    """Do what is not done yet of a run, while no other process does.

    Killed at any moment and called again, it goes on where it was. On several processes only the first one writes.

    Args:
        experiment: the row.
        out: folder of all runs.
        trainer: where to train.
        report: called with the number of epochs done.

    Returns:
        The run's folder.

    Raises:
        ValueError: if the folder belongs to another configuration or process, the run is called after a row on other
            data, a run that it needs is missing, or there are no such devices.
    """
    check_name(experiment)
    _check_devices(trainer)
    folder = RunFolder(experiment.folder(out))
    if rank_zero_only.rank:
        if experiment.method.base is None and not folder.is_complete:
            _train(experiment, out, folder, trainer, report)
        return folder
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.path / ".lock", timeout=0):
            perform_alone(experiment, out=out, trainer=trainer, report=report)
    except Timeout as error:
        raise ValueError(f"out: {folder.path} is being written by another process") from error
    return folder


def perform_alone(experiment: Experiment, *, out: Path, trainer: TrainerConfig, report: Callable[[int], None]) -> None:
    """Do what is not done yet of a run, where the caller holds its lock.

    Args:
        experiment: the row.
        out: folder of all runs.
        trainer: where to train.
        report: called with the number of epochs done.

    Raises:
        ValueError: if the folder belongs to another configuration, or a run that this one needs is missing.
    """
    folder = RunFolder(experiment.folder(out))
    folder.check(experiment)
    if not folder.is_complete:
        folder.claim(experiment)
        _perform(experiment, out, folder, trainer, report)
        return
    if folder.lacks(experiment):
        predict_again(experiment, folder, out=out)
    else:
        _check_moved(experiment, out, folder)
        folder.claim(experiment)
    report(experiment.epochs)


def predict_again(experiment: Experiment, folder: RunFolder, *, out: Path) -> None:
    """Predict what a complete run lacks of what is asked for, with its model or from the runs that it is derived from.

    Args:
        experiment: the configuration of the run, perhaps with other input sets or draws, which the run takes over.
        folder: of the run.
        out: folder of all runs.

    Raises:
        ValueError: if a run that is needed is missing, or has not predicted what is to be taken from it.
    """
    if experiment.method.base is None:
        predict_sets(TrainedRun(folder.path), experiment)
    else:
        derive_run(experiment, out, folder)
    folder.claim(experiment)


def _perform(
    experiment: Experiment,
    out: Path,
    folder: RunFolder,
    trainer: TrainerConfig,
    report: Callable[[int], None],
) -> None:
    """Train, predict and summarise, or derive."""
    if experiment.method.base is not None:
        derive_run(experiment, out, folder)
        report(experiment.epochs)
        return
    device = _device(trainer)
    forget_peak(device)
    splits, module, fitted = _train(experiment, out, folder, trainer, report)
    peak = peak_bytes(device)
    if experiment.method.kind == "sngp":
        fit_covariance(module.model, Batches(splits.train, experiment.evaluation.batch_size))
    write_atomically(folder.weights, lambda aside: save_model(module.model, str(aside)))
    module.model.to(device)
    sources = {}
    sets = input_sets(experiment.data, splits, experiment.seed, full=experiment.evaluation.full)
    for inputs in sets:
        if inputs.source:
            sources[inputs.name] = inputs.source
        predict_set(module.model, inputs, experiment, folder)
    write_diagnostics(module.model, splits.test, folder.diagnostics)
    made = {
        **fitted._asdict(),
        "peak_memory_bytes": peak,
        "reduced": _words(experiment, out, splits),
        **recorded_inputs(sources),
    }
    folder.complete(_summary(experiment, splits, module, made))


def _train(
    experiment: Experiment,
    out: Path,
    folder: RunFolder,
    trainer: TrainerConfig,
    report: Callable[[int], None],
) -> tuple[DataSplits, ClassificationModule, FitSummary]:
    """Build and train, leaving the weights of the best epoch."""
    if trainer.threads is not None:
        torch.set_num_threads(trainer.threads)
    splits = load(experiment.data, experiment.seed)
    if not rank_zero_only.rank:
        folder.check_data(splits)
    check_inputs(experiment.data, splits)
    torch.manual_seed(experiment.seed)
    module = build(
        experiment.method,
        model=experiment.model,
        training=experiment.training,
        description=splits.description,
        num_data=len(splits.train),
    )
    if experiment.method.init_from is not None and not (folder.checkpoints / "last.ckpt").exists():
        (source,) = needed_runs(experiment, out)
        start_from(module.model, source.model(), splits.train)
    summary = train(
        module,
        splits,
        training=experiment.training,
        seed=experiment.seed,
        folder=folder.checkpoints,
        report=report,
        trainer=trainer,
        logs=folder.logs,
    )
    return splits, module, summary


def _summary(
    experiment: Experiment,
    splits: DataSplits,
    module: ClassificationModule,
    made: dict[str, Any],
) -> dict[str, Any]:
    """Return what `run.json` holds."""
    return {
        "label": experiment.method.label,
        **made,
        "epochs": len(made["history"]),
        "parameters": sum(parameter.numel() for parameter in module.model.parameters()),
        "data": dataclasses.asdict(splits.description),
        "examples": {name: len(getattr(splits, name)) for name in ("train", "validation", "test")},
        **provenance(),
    }


def _words(experiment: Experiment, out: Path, splits: DataSplits) -> list[str]:
    """What departs from the paper, in the run and in what it starts from."""
    own = [*experiment.deviations, *experiment.reduced, *changes(experiment), *splits.description.deviations]
    starts = [RunFolder(out / name / f"seed-{seed}") for name, seed in experiment.needs()]
    begun = [word for start in starts if start.is_complete for word in start.read_summary()["reduced"]]
    return [*own, *(f"of what it starts from: {word}" for word in dict.fromkeys(begun) if word not in own)]


def _check_moved(experiment: Experiment, out: Path, folder: RunFolder) -> None:
    """Fail where data that lie elsewhere now are not those of a run, or of what it is derived from."""
    if not folder.is_moved(experiment):
        return
    if experiment.method.base is None:
        folder.check_data(load(experiment.data, experiment.seed))
    else:
        needed_runs(experiment, out)


def _check_devices(trainer: TrainerConfig) -> None:
    if trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ValueError("trainer.accelerator: expected cpu or auto on a machine without a GPU, got gpu")
    if trainer.strategy == "auto" and max(trainer.devices, trainer.num_nodes) > 1:
        raise ValueError(
            f"trainer.strategy: expected ddp on {trainer.devices} devices of {trainer.num_nodes} machines, got auto"
        )


def _device(trainer: TrainerConfig) -> torch.device:
    on_gpu = trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if on_gpu else "cpu")
