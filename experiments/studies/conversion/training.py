"""A small torchvision vision transformer with softmax attention on CIFAR-10: what is converted later."""

import time
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer
from torchvision.transforms.v2 import Normalize

from cgp.model.likelihoods import CategoricalLikelihood
from cgp.model.objective import Objective
from experiments.configuration import MethodConfig, TrainingConfig
from experiments.data import ImageSplits
from experiments.runs.provenance import provenance
from experiments.storage import write_atomically, write_json
from experiments.studies.conversion.parts import cifar10_parts
from experiments.training import ClassificationModule, fit
from experiments.training.augmentation import CropAndFlip

__all__ = ["network", "train", "trained"]

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
_WEIGHTS = "softmax.safetensors"


def network() -> nn.Sequential:
    """Augmentation, normalisation and a torchvision ViT of 4 layers: 64 patches of 4 x 4 pixels, convolutional stem."""
    transformer = VisionTransformer(
        image_size=32,
        patch_size=4,
        num_layers=4,
        num_heads=4,
        hidden_dim=96,
        mlp_dim=192,
        dropout=0.1,
        num_classes=10,
        conv_stem_configs=[ConvStemConfig(32, 3, 2), ConvStemConfig(64, 3, 2)],
    )
    return nn.Sequential(CropAndFlip(4), Normalize(MEAN, DEVIATION), transformer)


def train(
    *, data: Path, out: Path = Path("runs/conversion"), epochs: int = 26, seed: int = 0, limit: int | None = None
) -> Path:
    """Train the transformer; go on where an interrupted training stopped.

    Args:
        data: folder with `cifar10/train.npz` and `cifar10/test.npz`.
        out: folder to write.
        epochs: passes over 45,000 images.
        seed: of start, order and draws.
        limit: images of each part at most.

    Returns:
        The file of the weights.
    """
    weights = out / _WEIGHTS
    if weights.exists():
        return weights
    start = time.perf_counter()
    parts = cifar10_parts(data, limit)
    torch.manual_seed(seed)
    model = network()
    objective = Objective(model, CategoricalLikelihood(10), len(parts.train.labels))
    method = MethodConfig(label="Softmax", attention="softmax", learning_rate=2e-3, weight_decay=0.05)
    budget = TrainingConfig(epochs=epochs, batch_size=128, warmup_epochs=2, gradient_clip=1.0, validation_draws=1)
    module = ClassificationModule(model=model, objective=objective, method=method, training=budget)
    splits = ImageSplits(parts.train, parts.selection, parts.test)

    def report(done: int) -> None:
        print(f"epoch {done} of {epochs}, {time.perf_counter() - start:.0f} s", flush=True)

    summary = fit(module, splits, training=budget, seed=seed, folder=out / "checkpoints", report=report)._asdict()
    write_json(out / "training.json", summary | {"threads": torch.get_num_threads(), "provenance": provenance()})
    write_atomically(weights, lambda aside: save_model(model, str(aside)))
    return weights


def trained(out: Path) -> nn.Sequential:
    """Return the trained transformer in eval mode.

    Args:
        out: folder that `train` wrote.

    Raises:
        FileNotFoundError: if it did not.
    """
    weights = out / _WEIGHTS
    if not weights.exists():
        raise FileNotFoundError(f"{weights} is not there: `python -m experiments.studies.conversion train` writes it")
    model = network()
    load_model(model, str(weights))
    return model.eval()
