"""Fit one model: resumable at every epoch, the best epoch kept."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from experiments.configuration import TrainingConfig
from experiments.data import ImageSplits, LabelledImages
from experiments.training.callbacks import History, SeedEveryStep
from experiments.training.classification import ClassificationModule

__all__ = ["FitSummary", "fit"]


class FitSummary(NamedTuple):
    """What a fit was like.

    Attributes:
        history: one row an epoch.
        best_epoch: the epoch of the smallest validation NLL, whose weights the model now has.
        validation_nll: of that epoch.
        seconds_per_epoch: median over the epochs, validation not counted.
    """

    history: list[dict[str, float]]
    best_epoch: int
    validation_nll: float
    seconds_per_epoch: float


def fit(
    module: ClassificationModule,
    splits: ImageSplits,
    *,
    training: TrainingConfig,
    seed: int,
    folder: Path,
    report: Callable[[int], None] = lambda epochs: None,
) -> FitSummary:
    """Train a model, or go on with an interrupted training, and leave it with the weights of its best epoch.

    Killed at any moment and called again, it ends with the weights of an uninterrupted training: each epoch ends with
    a checkpoint, and each step has its own seed.

    Args:
        module: what to train.
        splits: training and validation images.
        training: the budget.
        seed: decides the order of the images and all draws.
        folder: keeps `last.ckpt` and `best.ckpt`.
        report: called with the number of epochs done.

    Returns:
        The history and the best epoch.
    """
    history = History(report)
    checkpoints = ModelCheckpoint(
        dirpath=folder,
        filename="best",
        monitor="validation_nll",
        save_last=True,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )
    with _quiet():
        trainer = _trainer(training, folder, [SeedEveryStep(seed), history, checkpoints])
        last = folder / "last.ckpt"
        loaders = _train_loader(splits.train, training, seed), _validation_loader(splits.validation)
        trainer.fit(module, *loaders, ckpt_path=last if last.exists() else None, weights_only=True)
    best = min(history.rows, key=lambda row: row["validation_nll"])
    state = torch.load(folder / "best.ckpt", weights_only=True, map_location="cpu")["state_dict"]
    module.load_state_dict(state)
    seconds = torch.tensor([row["seconds"] for row in history.rows]).median().item()
    return FitSummary(history.rows, int(best["epoch"]), best["validation_nll"], seconds)


def _trainer(training: TrainingConfig, folder: Path, callbacks: list[lightning.Callback]) -> lightning.Trainer:
    """Build a Lightning trainer that prints and writes nothing of its own."""
    return lightning.Trainer(
        max_epochs=training.epochs,
        accelerator=training.accelerator,
        devices=1,
        gradient_clip_val=training.gradient_clip,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _train_loader(part: LabelledImages, training: TrainingConfig, seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return batches in an order that depends on seed and epoch alone: Lightning tells the sampler the epoch."""
    dataset = TensorDataset(part.images, part.labels)
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True, seed=seed)
    return DataLoader(dataset, batch_size=training.batch_size, sampler=sampler)


def _validation_loader(part: LabelledImages) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return the validation images in order."""
    return DataLoader(TensorDataset(part.images, part.labels), batch_size=512)


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
        try:
            yield
        finally:
            logger.setLevel(level)
