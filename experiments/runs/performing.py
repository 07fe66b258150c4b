"""One row with one seed, from data to saved predictions, resumable at any moment."""

import dataclasses
from pathlib import Path

import torch

from cgp.weights import save_weights
from experiments.atomic_files import write_atomically
from experiments.configuration import RunConfig, TrainerConfig
from experiments.data import check_inputs, load, requested_ood
from experiments.data.examples import Batches, DataSplits
from experiments.methods import DERIVED, OF_PREDICTIONS, Request, fit_covariance
from experiments.methods.build import build
from experiments.runs.identity import check_name
from experiments.runs.initial import start_from
from experiments.runs.predicting import predict_sets, recorded_inputs
from experiments.runs.provenance import forget_peak, peak_bytes, provenance
from experiments.runs.run import Run, needed_runs
from experiments.training import ClassificationModule, FitSummary
from experiments.training import fit as train
from experiments.training.fit import process_rank

__all__ = ["perform", "predict_again"]


def perform(
    config: RunConfig,
    *,
    out: Path,
    trainer: TrainerConfig,
    wait: bool = False,
) -> Run:
    """Perform what remains of a run, under a lock against other processes.

    Killed at any moment and called again, it continues. On several processes only the first one writes.
    `wait` waits for another process with the same run, such as the last worker of a killed command.
    """
    check_name(config)
    _check_devices(trainer)
    run = Run(config.folder(out))
    if process_rank():
        if config.method.base is None and not run.is_complete:
            _train(config, out, run, trainer)
        return run
    run.check(config)
    with run.locked(wait):
        run.check(config)
        if run.is_complete:
            _bring_up_to_date(config, out, run)
        else:
            run.claim(config)
            _perform(config, out, run, trainer)
    return run


def predict_again(config: RunConfig, run: Run) -> None:
    """Predict the requested inputs that a complete run lacks, with its model or from the runs it is derived from."""
    if config.method.base is None:
        splits = load(config.data, config.seed)
        run.check_data(splits)
        run.complete(run.record | predict_sets(run, config, run.model(), splits))
    else:
        _derive(config, run.out, run)
    run.claim(config)


def _bring_up_to_date(config: RunConfig, out: Path, run: Run) -> None:
    """Predict the inputs that a complete run lacks, and check data that have moved."""
    if run.lacks(config):
        predict_again(config, run)
    elif run.is_moved(config):
        if config.method.base is None:
            run.check_data(load(config.data, config.seed))
        else:
            needed_runs(config, out)
    run.claim(config)


def _perform(config: RunConfig, out: Path, run: Run, trainer: TrainerConfig) -> None:
    """Train, predict and record, or derive."""
    if config.method.base is not None:
        _derive(config, out, run)
        return
    on_gpu = trainer.accelerator != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    forget_peak(device)
    splits, module, fitted = _train(config, out, run, trainer)
    record = fitted._asdict() | {"peak_memory_bytes": peak_bytes(device)}
    if config.method.kind == "sngp":
        fit_covariance(module.model, Batches(splits.train, config.evaluation.batch_size))
    write_atomically(run.weights, lambda aside: save_weights(module.model, aside))
    record |= predict_sets(run, config, module.model.to(device), splits)
    starts = [word for start in _starts(config, out) for word in start.deviations]
    run.complete(
        record
        | {
            "label": config.method.label,
            "epochs": len(fitted.history),
            "parameters": sum(parameter.numel() for parameter in module.model.parameters()),
            "data": dataclasses.asdict(splits.description),
            "examples": {name: len(getattr(splits, name)) for name in ("train", "validation", "test")},
            "deviations": [
                *splits.description.deviations,
                *(f"of what it starts from: {word}" for word in starts if word not in config.deviations),
            ],
            **provenance(),
        }
    )


def _train(
    config: RunConfig, out: Path, run: Run, trainer: TrainerConfig
) -> tuple[DataSplits, ClassificationModule, FitSummary]:
    """Build and train, leaving the weights of the best epoch."""
    if trainer.threads is not None:
        torch.set_num_threads(trainer.threads)
    splits = load(config.data, config.seed)
    if not process_rank():
        run.check_data(splits)
    check_inputs(config.data, splits)
    torch.manual_seed(config.seed)
    module = build(config, splits.description, len(splits.train))
    begun = any(run.checkpoints.glob("*.ckpt"))
    if begun and trainer.progress and not process_rank():
        print(f"{run.folder}: going on with an interrupted training", flush=True)
    for start in [] if begun else _starts(config, out):
        start_from(module.model, start.model(), splits.train)
    summary = train(module, splits, training=config.training, seed=config.seed, folder=run.checkpoints, trainer=trainer)
    return splits, module, summary


def _starts(config: RunConfig, out: Path) -> list[Run]:
    """The run whose weights a training starts from, if there is one."""
    return [] if config.method.init_from is None else needed_runs(config, out)


def _derive(config: RunConfig, out: Path, run: Run) -> None:
    """Write the predictions and the record of a row that is derived from trained runs of another."""
    bases = needed_runs(config, out)
    if config.method.kind in OF_PREDICTIONS:
        for base in bases:
            _check_predicted(config, base)
    options = {name: value for name, value in config.method.options.items() if name != "members"}
    before = run.record if run.is_complete else {}
    request = Request(config.data, config.evaluation, run.folder, before.get("sources") or {})
    made = DERIVED[config.method.kind](bases, request, **options)
    first = bases[0].record
    run.complete(
        {
            **({"images": before["images"]} if "images" in before else {}),
            "label": config.method.label,
            **{name: first.get(name) for name in ("parameters", "data", "examples")},
            "deviations": [*bases[0].deviations, *made.remarks],
            "derived_from": [str(base.folder) for base in bases],
            "chosen": made.chosen,
            **recorded_inputs(made.sources),
            **provenance(),
        }
    )


def _check_predicted(config: RunConfig, base: Run) -> None:
    """Raise if a configuration requests more predictions than a run has."""
    there = base.config
    missing = [name for name in requested_ood(config.data) if name not in requested_ood(there.data)]
    full = config.evaluation.full and not there.evaluation.full
    if missing or full:
        wanted = [f"--ood '[{','.join(missing)}]'"] * bool(missing) + ["--full"] * full
        raise ValueError(
            f"{config.name}: expected to find what is asked for in {base.folder}, which has not predicted it; first "
            f"python -m experiments predict {base.folder} {' '.join(wanted)}"
        )


def _check_devices(trainer: TrainerConfig) -> None:
    if trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ValueError("trainer.accelerator: expected cpu or auto on a machine without a GPU, got gpu")
    if trainer.strategy == "auto" and max(trainer.devices, trainer.num_nodes) > 1:
        raise ValueError(
            f"trainer.strategy: expected ddp on {trainer.devices} devices of {trainer.num_nodes} machines, got auto"
        )
