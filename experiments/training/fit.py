"""Fit one model: resumable at every epoch, the best epoch kept."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader

from experiments.configuration import TrainerConfig, TrainingConfig
from experiments.data.examples import DataSplits
from experiments.training.batches import Batch, batch_loader
from experiments.training.callbacks import History, SeedEveryStep
from experiments.training.checkpoints import BEST, LAST, AtomicCheckpoints, read_checkpoint, sound_checkpoint
from experiments.training.classification import ClassificationModule

__all__ = ["QUIET", "FitSummary", "fit", "process_rank"]

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
