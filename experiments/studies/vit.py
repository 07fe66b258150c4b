"""Assessment of a small vision transformer by `cgp.assess` on CIFAR-10, corrupted images and textures.

python -m experiments.studies.vit --data DIR --out DIR
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse import auto_cli
from torch import Tensor, nn
from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer
from torchvision.transforms.v2 import Normalize

import cgp
from cgp.model.weights import load_weights, save_weights
from experiments.atomic_files import write_atomically
from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import Examples, InputSet, batch, image_batch, input_sets, load
from experiments.data.examples import Inputs
from experiments.training.augmentation import CropAndFlip

__all__ = ["assess", "network"]

_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
_CORRUPTIONS = CorruptionConfig(
    kinds=("gaussian_noise", "gaussian_blur", "contrast", "jpeg_compression"), severities=(3,), limit=1000
)
_BATCH = 100
_RATE = 2e-3


def network(*, layers: int, widths: Sequence[int]) -> nn.Sequential:
    """Augmentation, normalisation and a torchvision ViT; each width of its convolutional stem halves the sides."""
    transformer = VisionTransformer(
        image_size=32,
        patch_size=2 ** len(widths),
        num_layers=layers,
        num_heads=4,
        hidden_dim=96,
        mlp_dim=192,
        dropout=0.1,
        num_classes=10,
        conv_stem_configs=[ConvStemConfig(width, 3, 2) for width in widths],
    )
    return nn.Sequential(CropAndFlip(4), Normalize(_MEAN, _DEVIATION), transformer)


def assess(*, data: Path, out: Path = Path("runs/vit"), epochs: int = 6, seed: int = 0, images: int = 4000) -> None:
    """Train the transformer, unless it is trained, and print the assessment.

    Args:
        data: folder with cifar10/ and textures/.
        out: folder to write.
        epochs: number of passes over 45,000 images.
        seed: seed of initial weights and order.
        images: number of test images, and of training images for the scores of the representation.
    """
    config = DataConfig(name="cifar10", root=data, unchecked=True, ood=("textures",), corruptions=_CORRUPTIONS)
    splits = load(config, seed=0)
    torch.manual_seed(seed)
    model = network(layers=3, widths=(24, 48, 96))  # 16 patches of 8 x 8 pixels
    weights = out / "weights.safetensors"
    if not weights.exists():
        _train(model, splits.train, epochs)
        write_atomically(weights, lambda aside: save_weights(model, aside))
    load_weights(model, weights)
    others = {part.name: part for part in input_sets(config, splits, 0) if part.name not in ("validation", "test")}
    report = cgp.assess(
        model.eval(),
        _batches(splits.test, images),
        train=_batches(splits.train, images),
        corrupt={name: _batches(part, len(part)) for name, part in others.items() if part.labels is not None},
        ood={name: _inputs(part) for name, part in others.items() if part.labels is None},
    )
    sys.stdout.write(f"{report}\n")


def _train(model: nn.Module, data: Examples, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    steps = epochs * -(-len(data) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps, pct_start=0.1)
    model.train()
    for epoch in range(epochs):
        start, losses = time.process_time(), []
        for rows in torch.randperm(len(data)).split(_BATCH):
            images, labels = image_batch(data, rows)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        seconds = time.process_time() - start
        print(f"epoch {epoch}: training NLL {sum(losses) / len(losses):.3f}, {seconds:.0f} CPU s", flush=True)


def _batches(part: Examples, count: int) -> list[tuple[Tensor, Tensor]]:
    """Images and labels of the first examples."""
    return [image_batch(part, rows) for rows in torch.arange(min(count, len(part))).split(_BATCH)]


def _inputs(part: InputSet) -> list[Inputs]:
    return [batch(part, rows)[0] for rows in torch.arange(len(part)).split(_BATCH)]


if __name__ == "__main__":
    auto_cli(assess, as_positional=False, prog="python -m experiments.studies.vit")
