"""Fine-tune the upper layers on cached states."""

from __future__ import annotations

from pathlib import Path

import torch

from cgp.networks.model.likelihoods import CategoricalLikelihood
from cgp.networks.model.objective import Objective
from cgp.weights import load_weights, save_weights
from experiments.atomic_files import write_atomically, write_json
from experiments.configuration import MethodConfig, TrainingConfig
from experiments.data import DataSplits
from experiments.studies.dinov2.host import host
from experiments.studies.dinov2.network import Upper
from experiments.studies.dinov2.states import UPPER, splits_of_states
from experiments.training import ClassificationModule
from experiments.training import fit as train

__all__ = ["fit", "fitted"]

_HEAD_RATE = 10  # how much faster the new head learns


def fit(
    *, data: Path, out: Path = Path("runs/dinov2"), seed: int = 0, epochs: int = 4, learning_rate: float = 1e-4
) -> Path:
    """Fine-tune, unless that was done; an interrupted training goes on where it stopped.

    Args:
        data: folder with cifar10/, cifar100/, tiny_imagenet/ and textures/.
        out: folder to write.
        seed: seed of start and order.
        epochs: passes over 5,000 images.
        learning_rate: largest learning rate of the host's parameters.

    Returns:
        The folder of the run.
    """
    folder = out / f"seed-{seed}"
    if not (folder / "training.json").exists():
        splits = splits_of_states(data, out)
        model = _network(seed, splits)
        summary = _train(model, splits, folder, seed=seed, epochs=epochs, learning_rate=learning_rate)
        write_atomically(folder / "weights.safetensors", lambda aside: save_weights(model, aside))
        write_json(folder / "training.json", summary)
    return folder


def fitted(folder: Path, splits: DataSplits) -> Upper:
    """The fine-tuned network of a run, in eval mode."""
    model = _network(0, splits)
    load_weights(model, folder / "weights.safetensors")
    return model.eval()


def _network(seed: int, splits: DataSplits) -> Upper:
    model = host()
    torch.manual_seed(seed)
    return Upper(model, UPPER, splits.description.num_classes)


def _train(
    model: Upper, splits: DataSplits, folder: Path, *, seed: int, epochs: int, learning_rate: float
) -> dict[str, object]:
    """Train to the weights of the epoch with the smallest validation NLL."""
    budget = TrainingConfig(
        epochs=epochs, batch_size=64, warmup_epochs=0.2 * epochs, gradient_clip=1.0, validation_draws=1
    )
    head = {id(parameter) for parameter in model.head.parameters()}
    module = ClassificationModule(
        model=model,
        objective=Objective(model, CategoricalLikelihood(splits.description.num_classes), len(splits.train)),
        method=MethodConfig(label="DINOv2", learning_rate=learning_rate, weight_decay=0.05),
        training=budget,
        groups=[
            {"params": [p for p in model.parameters() if id(p) not in head]},
            {"params": list(model.head.parameters()), "lr": _HEAD_RATE * learning_rate},
        ],
    )
    return train(module, splits, training=budget, seed=seed, folder=folder / "checkpoints")._asdict()
