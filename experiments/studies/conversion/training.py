"""Train the model to convert: a small torchvision vision transformer with softmax attention on CIFAR-10."""

import dataclasses
from pathlib import Path

import torch
from torch import nn
from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer
from torchvision.transforms.v2 import Normalize

from cgp.networks.model.objective import CategoricalLikelihood, Objective
from cgp.weights import load_weights, save_weights
from experiments.atomic_files import write_atomically, write_json
from experiments.configuration import DataConfig, MethodConfig, TrainingConfig
from experiments.data import DataSplits, Examples, load
from experiments.data.partition import partition
from experiments.training import ClassificationModule, fit
from experiments.training.augmentation import CropAndFlip

__all__ = ["cifar10", "train", "trained"]

_WEIGHTS = "softmax.safetensors"
_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def cifar10(data: DataConfig) -> tuple[DataSplits, Examples]:
    """Read CIFAR-10; a fifth of the validation images is for fitting scales, temperatures and prior precisions."""
    splits = load(data, seed=0)
    selection, calibration = partition(len(splits.validation), [0.2], "conversion")
    chosen = splits.validation.chosen(selection)
    return dataclasses.replace(splits, validation=chosen), splits.validation.chosen(calibration)


def train(
    *, data: Path, out: Path = Path("runs/conversion"), epochs: int = 26, seed: int = 0, limit: int | None = None
) -> Path:
    """Train the transformer, continuing an interrupted training.

    Args:
        data: folder with `cifar10/train.npz` and `cifar10/test.npz`.
        out: folder to write.
        epochs: number of passes over 45,000 images.
        seed: seed of initial weights, order and draws.
        limit: largest number of training images.

    Returns:
        The file of the weights.
    """
    weights = out / _WEIGHTS
    if weights.exists():
        return weights
    splits, _ = cifar10(DataConfig(name="cifar10", root=data, unchecked=True, limit_train=limit))
    torch.manual_seed(seed)
    model = _network()
    budget = TrainingConfig(epochs=epochs, batch_size=128, warmup_epochs=2, gradient_clip=1.0, validation_draws=1)
    module = ClassificationModule(
        model=model,
        objective=Objective(model, CategoricalLikelihood(10), len(splits.train)),
        method=MethodConfig(label="Softmax", learning_rate=2e-3, weight_decay=0.05),
        training=budget,
    )
    summary = fit(module, splits, training=budget, seed=seed, folder=out / "checkpoints")
    write_json(out / "training.json", summary._asdict())
    write_atomically(weights, lambda aside: save_weights(model, aside))
    return weights


def trained(out: Path) -> nn.Sequential:
    """Return the trained transformer in eval mode.

    Raises:
        FileNotFoundError: if `train` has not written it.
    """
    weights = out / _WEIGHTS
    if not weights.exists():
        raise FileNotFoundError(f"{weights} is not there: `python -m experiments.studies.conversion train` writes it")
    model = _network()
    load_weights(model, weights)
    return model.eval()


def _network() -> nn.Sequential:
    """Augmentation, normalisation and a torchvision ViT of 64 patches of 4 × 4 pixels, behind two convolutions."""
    sizes = {"image_size": 32, "patch_size": 4, "num_layers": 4, "num_heads": 4, "hidden_dim": 96, "mlp_dim": 192}
    stem = [ConvStemConfig(width, 3, 2) for width in (32, 64)]
    transformer = VisionTransformer(**sizes, dropout=0.1, num_classes=10, conv_stem_configs=stem)
    return nn.Sequential(CropAndFlip(4), Normalize(_MEAN, _DEVIATION), transformer)
