"""One row with one seed, from data and initial weights to saved predictions with their provenance, resumable."""

import dataclasses
import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cgp.attention import Attention
from cgp.networks.model.blocks import attention_blocks
from cgp.networks.model.inducing import initialize_inducing
from cgp.weights import save_weights
from experiments.atomic_files import write_atomically
from experiments.configuration import RunConfig, TrainerConfig
from experiments.data import check_inputs, load, requested_ood
from experiments.data.examples import Batches, DataSplits, Examples, batch
from experiments.methods import DERIVED, OF_PREDICTIONS, Request, fit_covariance
from experiments.methods.build import build
from experiments.runs.identity import check_name
from experiments.runs.predicting import predict_sets, recorded_inputs
from experiments.runs.run import Run, needed_runs
from experiments.training import ClassificationModule, FitSummary
from experiments.training import fit as train
from experiments.training.fit import process_rank

__all__ = ["forget_peak", "peak_bytes", "perform", "predict_again", "provenance", "start_from"]

_STAND_INS = {"query": "key", "latent": "key"}  # a latent process at the keys: its mean starts near the one-hop mean
_INDUCING_FROM = 256  # examples among whose tokens the inducing inputs are chosen


@torch.no_grad()
def start_from(model: nn.Module, source: nn.Module, examples: Examples) -> None:
    """Copy the parameters that two networks have in common, process by process in their attention blocks.

    A process that the source lacks is initialised by its keys' map. Inducing inputs are chosen among the tokens of
    a few training examples.
    """
    state, blocks = model.state_dict(), attention_blocks(model)
    given = source.state_dict()
    shared = {name: value for name, value in given.items() if name in state and state[name].shape == value.shape}
    sources = attention_blocks(source)
    if len(sources) != len(blocks) or not any(name.startswith("embedding") or ".embedding" in name for name in shared):
        raise ValueError("init_from: expected a run of a model of the same sizes, got one of others")
    model.load_state_dict(shared, strict=False)
    for block, other in zip(blocks, sources, strict=True):
        _copy_processes(block, other)
    first = torch.arange(min(_INDUCING_FROM, len(examples)))
    initialize_inducing(model, batch(examples, first)[0])


def _copy_processes(block: Attention, source: Attention) -> None:
    maps = dict(zip(source.processes, source.in_proj.weight.chunk(len(source.processes)), strict=True))
    biases = dict(zip(source.processes, source.in_proj.bias.chunk(len(source.processes)), strict=True))
    weight, bias = (part.chunk(len(block.processes)) for part in (block.in_proj.weight, block.in_proj.bias))
    for place, process in enumerate(block.processes):
        name = process if process in maps else _STAND_INS.get(process)
        if name in maps:
            weight[place].copy_(maps[name])
            bias[place].copy_(biases[name])


_PACKAGES = (
    *("torch", "gpytorch", "linear-operator", "lightning", "torchmetrics", "torchvision", "scikit-learn", "numpy"),
)
_WIDE = 128  # below it several threads gain little on idle cores and lose much on busy ones
_KILO = 1 if sys.platform == "darwin" else 1024
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")  # Linux: "5" resets the peak to the memory in use


def provenance() -> dict[str, Any]:
    """Command, commit (marked if files differ from it), versions, and processor."""
    return {
        "command": " ".join(["python -m experiments", *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "threads": torch.get_num_threads()},
    }


def _commit() -> str:
    """Return the commit of the checkout, or "unknown" if there is none."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def forget_peak(device: torch.device) -> None:
    """Reset the peak to the memory in use, so that an earlier run in this process does not count.

    For the CPU, this is possible only on Linux.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """Return the peak in bytes: of tensors on a GPU, otherwise of the whole process including library code."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if _STATUS.exists():  # getrusage also counts what the process that started this one had
        peak = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return 1024 * int(peak.split()[1])
    return _KILO * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
    threads = trainer.threads or (1 if config.model.embed_dim < _WIDE else None)
    if threads is not None:
        torch.set_num_threads(threads)
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
