"""Fit one model: resumable at every epoch and at every step's draws, the best epoch kept."""

import contextlib
import io
import logging
import os
import pickle
import sys
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader
from typing_extensions import override

from experiments.atomic_files import write_atomically
from experiments.configuration import TrainerConfig, TrainingConfig
from experiments.data.examples import DataSplits
from experiments.data.partition import generator_for
from experiments.training.batches import Batch, batch_loader
from experiments.training.classification import ClassificationModule

__all__ = [
    "BEST",
    "LAST",
    "QUIET",
    "AtomicCheckpoints",
    "FitSummary",
    "History",
    "SeedEveryStep",
    "fit",
    "process_rank",
    "read_checkpoint",
    "sound_checkpoint",
]

LAST, BEST = "last.ckpt", "best.ckpt"
_PREVIOUS = "previous.ckpt"


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes in the same folder and renames, whereas Lightning may copy from another file system."""

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        path = Path(path)
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        if path.name == LAST and path.exists():
            with contextlib.suppress(OSError):  # some file systems have no links; only the write below must succeed
                write_atomically(path.with_name(_PREVIOUS), lambda aside: os.link(path, aside))
        write_atomically(path, lambda aside: aside.write_bytes(buffer.getvalue()))

    @override
    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint of plain values and tensors; ValueError for a damaged file or another content."""
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch writes checksums but does not verify them
            damaged = archive.testzip()
        if damaged is None:
            return torch.load(path, map_location=map_location, weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, RuntimeError, NotImplementedError) as error:
        raise _damaged(path) from error
    raise _damaged(path)


def sound_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint to continue from: the last one, or the previous one if that is damaged, or None.

    ValueError if there are checkpoints but all are damaged.
    """
    checkpoints = [folder / name for name in (LAST, _PREVIOUS) if (folder / name).exists()]
    for path in checkpoints:
        try:
            read_checkpoint(path)
        except ValueError:
            continue
        return path
    if checkpoints:
        raise _damaged(checkpoints[0])
    return None


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{path}: expected a checkpoint, got a damaged file; remove {path.parent} to train from the start"
    )


class SeedEveryStep(lightning.Callback):
    """Seeds the global generator before each step, so that a resumed run draws as an uninterrupted one.

    Seeding once per epoch is not enough: creating the loader's iterator draws a number, which a resumed
    epoch does earlier.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @override
    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        names: tuple[str | int, ...] = (
            "step",
            self.seed,
            trainer.global_step,
            *([trainer.global_rank] if trainer.global_rank else []),
        )
        torch.manual_seed(generator_for(*names).initial_seed())


class History(lightning.Callback):
    """One row per epoch: loss, validation scores, seconds of training; saved in the checkpoints."""

    def __init__(self, *, lines: bool) -> None:
        self.rows: list[dict[str, float]] = []
        self.lines = lines
        self._start = 0.0
        self._seconds = 0.0

    @override
    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._start = time.perf_counter()

    @override
    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._seconds = time.perf_counter() - self._start  # validation is not training

    @override
    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"epoch": trainer.current_epoch, **logged, "seconds": self._seconds})
        if self.lines and not trainer.global_rank:
            print(
                f"epoch {len(self.rows)} of {trainer.max_epochs}: training NLL {logged['train_nll']:.4g} "
                f"(loss, with divergences, {logged['train_loss']:.4g}), validation NLL {logged['validation_nll']:.4f}, "
                f"accuracy {100 * logged['validation_accuracy']:.1f} %, {self._seconds:.1f} s",
                flush=True,
            )

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"rows": list(self.rows)}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])


QUIET = TrainerConfig(accelerator="cpu", progress=False)
"""One CPU process without output."""

_VALIDATION_BATCH = 512

_EXPECTED = (
    # Data in memory need no worker processes, and a non-empty checkpoint folder means a resumed run.
    ".*does not have many workers.*",
    ".*LeafSpec.* is deprecated",
    "Checkpoint directory .* exists and is not empty",
    ".*sync_dist=True.*",  # the validation scores are pooled before they are logged
)


class FitSummary(NamedTuple):
    """The history, one row per epoch, and the selected epoch, whose weights the model has."""

    history: list[dict[str, float]]
    best_epoch: int
    validation_nll: float
    seconds_per_epoch: float
    """Median over the epochs, validation not counted."""


def process_rank() -> int:
    """Rank of this process in the training; only rank 0 writes."""
    return int(getattr(rank_zero_only, "rank", 0))


def fit(
    module: ClassificationModule,
    splits: DataSplits,
    *,
    training: TrainingConfig,
    seed: int,
    folder: Path,
    trainer: TrainerConfig = QUIET,
) -> FitSummary:
    """Train a model, or continue an interrupted training; afterwards it has the weights of its best epoch.

    Killed at any moment and called again, it ends with the weights of an uninterrupted training: each epoch ends with
    a checkpoint, and each step has its own seed. A damaged checkpoint is a ValueError.
    """
    bar = trainer.progress and sys.stdout.isatty()
    history = History(lines=trainer.progress and not bar)
    module.train()  # GPyTorch's constraints share one softplus, which an earlier model may have left in eval mode
    with _quiet():
        callbacks = [SeedEveryStep(seed), history, *_checkpoints(training, folder)]
        callbacks += [RichProgressBar(leave=False)] if bar else []
        lightning_trainer = _trainer(trainer, training, folder, callbacks)
        last = sound_checkpoint(folder)
        loaders = _loaders(splits, training, seed, lightning_trainer)
        lightning_trainer.fit(module, *loaders, ckpt_path=last, weights_only=True)
    best = read_checkpoint(folder / BEST)
    module.load_state_dict(best["state_dict"])
    seconds = torch.tensor([row["seconds"] for row in history.rows]).median().item()
    return FitSummary(history.rows, best["epoch"], history.rows[best["epoch"]]["validation_nll"], seconds)


def _checkpoints(training: TrainingConfig, folder: Path) -> list[ModelCheckpoint]:
    """Write the best epoch, then the last one, which refers to it: if killed in between, the epoch is repeated."""
    options: dict[str, Any] = {"dirpath": folder, "save_on_train_epoch_end": True, "enable_version_counter": False}
    mode = "min" if training.monitor == "validation_nll" else "max"
    best = ModelCheckpoint(filename=Path(BEST).stem, monitor=training.monitor, mode=mode, **options)
    return [best, ModelCheckpoint(filename=Path(LAST).stem, **options)]  # `save_last` would skip all but the best


def _trainer(
    trainer: TrainerConfig,
    training: TrainingConfig,
    folder: Path,
    callbacks: list[lightning.Callback],
) -> lightning.Trainer:
    """Build a Lightning trainer that writes nothing but checkpoints."""
    return lightning.Trainer(
        max_epochs=training.passes,
        accelerator=trainer.accelerator,
        devices=trainer.devices,
        num_nodes=trainer.num_nodes,
        # Blocks that return their means give no gradient to the parameters of their variance.
        strategy=DDPStrategy(find_unused_parameters=True) if trainer.strategy == "ddp" else trainer.strategy,
        precision=trainer.precision,
        plugins=[AtomicCheckpoints()],
        use_distributed_sampler=False,
        gradient_clip_val=training.gradient_clip,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=any(isinstance(callback, RichProgressBar) for callback in callbacks),
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _loaders(
    splits: DataSplits, training: TrainingConfig, seed: int, trainer: lightning.Trainer
) -> tuple[DataLoader[Batch], DataLoader[Batch]]:
    """Training and validation batches of this process, made on its device."""
    device = trainer.strategy.root_device
    train, validation = (part.to(device) for part in (splits.train, splits.validation))
    process = {"rank": trainer.global_rank, "world": trainer.world_size}
    return (
        batch_loader(train, batch_size=training.batch_size, seed=seed, **process),
        batch_loader(validation, batch_size=_VALIDATION_BATCH, **process),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's warnings about choices that are intended here."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        try:
            yield
        finally:
            logger.setLevel(level)
