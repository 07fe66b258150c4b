"""Fit one model: resumable at every epoch, the best epoch kept."""

import contextlib
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

from experiments.configuration import TrainerConfig, TrainingConfig
from experiments.data.digits import ImageSplits, LabelledImages
from experiments.data.examples import DataSplits, Examples
from experiments.training.batches import Batch, train_loader, validation_loader
from experiments.training.callbacks import History, SeedEveryStep
from experiments.training.classification import ClassificationModule

__all__ = ["QUIET", "FitSummary", "fit"]

QUIET = TrainerConfig(accelerator="cpu", progress=False, logs=False)
"""One CPU process that shows and logs nothing."""
_LAST = "last"


class FitSummary(NamedTuple):
    """What a fit was like.

    Attributes:
        history: one row an epoch.
        best_epoch: the epoch that was selected, whose weights the model now has.
        validation_nll: of that epoch.
        seconds_per_epoch: median over the epochs, validation not counted.
    """

    history: list[dict[str, float]]
    best_epoch: int
    validation_nll: float
    seconds_per_epoch: float


def fit(
    module: ClassificationModule,
    splits: DataSplits | ImageSplits,
    *,
    training: TrainingConfig,
    seed: int,
    folder: Path,
    report: Callable[[int], None] = lambda epochs: None,
    trainer: TrainerConfig = QUIET,
    logs: Path | None = None,
) -> FitSummary:
    """Train a model, or go on with an interrupted training, and leave it with the weights of its best epoch.

    Killed at any moment and called again, it ends with the weights of an uninterrupted training: each epoch ends with
    a checkpoint, and each step has its own seed.

    Args:
        module: what to train.
        splits: training and validation examples.
        training: the budget.
        seed: decides the order of the examples and all draws.
        folder: keeps `last.ckpt` and `best.ckpt`.
        report: called with the number of epochs done.
        trainer: where to train.
        logs: folder of CSV and TensorBoard logs, where the trainer shall write some.

    Returns:
        The history and the best epoch.

    Raises:
        ValueError: if a checkpoint to go on from is damaged.
    """
    history = History(report)
    module.train()  # GPyTorch's constraints share one softplus, which the model before has left in eval mode
    with _quiet():
        lightning_trainer = _trainer(
            trainer, training, folder, logs, [SeedEveryStep(seed), history, *_checkpoints(training, folder)]
        )
        last = folder / f"{_LAST}.ckpt"
        _check_readable(last)
        loaders = _loaders(splits, training, seed, lightning_trainer)
        lightning_trainer.fit(module, *loaders, ckpt_path=last if last.exists() else None, weights_only=True)
    best = _best(history.rows, training.monitor)
    state = torch.load(folder / "best.ckpt", weights_only=True, map_location="cpu")["state_dict"]
    module.load_state_dict(state)
    seconds = torch.tensor([row["seconds"] for row in history.rows]).median().item()
    return FitSummary(history.rows, int(best["epoch"]), best["validation_nll"], seconds)


def _check_readable(checkpoint: Path) -> None:
    """Fail where a checkpoint is damaged; that there is none is no fault."""
    if checkpoint.exists() and not zipfile.is_zipfile(checkpoint):
        raise ValueError(f"{checkpoint}: expected a checkpoint, got a damaged file; remove it to train from the start")


def _checkpoints(training: TrainingConfig, folder: Path) -> list[ModelCheckpoint]:
    """Write the best epoch, then the last one, which knows of the best: killed in between, the epoch is done again."""
    last = training.monitor == "last"
    best = ModelCheckpoint(
        dirpath=folder,
        filename="best",
        monitor="epoch" if last else training.monitor,
        mode="min" if training.monitor == "validation_nll" else "max",
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )
    # `save_last` would write nothing after an epoch that is not the best.
    every = ModelCheckpoint(dirpath=folder, filename=_LAST, save_on_train_epoch_end=True, enable_version_counter=False)
    return [best, every]


def _best(rows: list[dict[str, float]], monitor: str) -> dict[str, float]:
    """The row that the checkpoint callback took for the best: of equal ones the first."""
    if monitor == "last":
        return rows[-1]
    sign = 1.0 if monitor == "validation_nll" else -1.0
    return min(rows, key=lambda row: sign * row[monitor])


def _trainer(
    trainer: TrainerConfig,
    training: TrainingConfig,
    folder: Path,
    logs: Path | None,
    callbacks: list[lightning.Callback],
) -> lightning.Trainer:
    """Build a Lightning trainer that writes nothing of its own beside checkpoints and logs."""
    if trainer.progress:
        callbacks = [*callbacks, RichProgressBar(leave=False)]
    return lightning.Trainer(
        max_epochs=training.passes,
        accelerator=trainer.accelerator,
        devices=trainer.devices,
        num_nodes=trainer.num_nodes,
        strategy=_strategy(trainer),
        precision=trainer.precision,
        use_distributed_sampler=False,
        gradient_clip_val=training.gradient_clip,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=_loggers(logs) if trainer.logs and logs is not None else False,
        enable_progress_bar=trainer.progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _strategy(trainer: TrainerConfig) -> Any:
    """Blocks that return their means in a warm-up leave the parameters of their variance without a gradient."""
    return DDPStrategy(find_unused_parameters=True) if trainer.strategy == "ddp" else trainer.strategy


def _loggers(logs: Path) -> list[Logger]:
    """A resumed training logs beside what was logged before, as its next version."""
    return [CSVLogger(logs, name="csv"), TensorBoardLogger(logs, name="tensorboard", default_hp_metric=False)]


def _loaders(
    splits: DataSplits | ImageSplits, training: TrainingConfig, seed: int, trainer: lightning.Trainer
) -> tuple[DataLoader[Batch], DataLoader[Batch]]:
    """Batches of this process; on a GPU they are cut there."""
    device = trainer.strategy.root_device
    train, validation = (_examples(part) for part in (splits.train, splits.validation))
    if device.type != "cpu":
        train, validation = train.to(device), validation.to(device)
    process = {"rank": trainer.global_rank, "world": trainer.world_size}
    return (
        train_loader(train, batch_size=training.batch_size, bucket=training.bucket, seed=seed, **process),
        validation_loader(validation, **process),
    )


def _examples(part: Examples | LabelledImages) -> Examples:
    return part if isinstance(part, Examples) else Examples(part.images, part.labels, part.ids)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Lightning says about choices that are made on purpose here."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # Data in memory need no worker processes, and a checkpoint folder that is not empty is a resumed run.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated")
        warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
        warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*")
        # The validation scores are pooled before they are logged.
        warnings.filterwarnings("ignore", message=".*sync_dist=True.*")
        try:
            yield
        finally:
            logger.setLevel(level)
