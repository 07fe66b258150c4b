"""Predictions of a trained model on every input set, saved for everything that is computed later."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.model.blocks import attention_blocks
from cgp.model.inputs import call_model, to_device
from experiments.configuration import EvaluationConfig
from experiments.data import DIGITS_CORRUPTIONS, OOD_KINDS, ImageSplits, LabelledImages, corrupted_digits, ood_images
from experiments.data.partition import generator_for
from experiments.storage import read_arrays, write_atomically

__all__ = [
    "InputSet",
    "Predictions",
    "drawn_logits",
    "input_sets",
    "is_predicted",
    "load_predictions",
    "predict_logits",
    "predictive_variance",
    "same_source",
    "save_predictions",
    "corrupted_name",
    "ood_name",
]

_BATCH = 256
_NUMBER = re.compile(r"\d[\d,]*")


class InputSet(NamedTuple):
    """Images to predict.

    Attributes:
        name: name of the file of predictions.
        images: `(N, C, H, W)`.
        ids: `(N,)`, positions in the data set.
        labels: `(N,)`, or nothing where no class is right.
    """

    name: str
    images: Tensor
    ids: Tensor
    labels: Tensor | None


class Predictions(NamedTuple):
    """What is saved of one model on one input set.

    Attributes:
        logits: `(S, N, C)` float32, one for each draw.
        ids: `(N,)` int64.
        labels: `(N,)` int64, or nothing for OOD inputs.
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.int64] | None


def corrupted_name(kind: str, strength: int) -> str:
    """Return the name of a corrupted input set.

    Example:
        >>> corrupted_name("blur", 3)
        'corrupted-blur-3'
    """
    return f"corrupted-{kind}-{strength}"


def ood_name(kind: str) -> str:
    """Return the name of an OOD input set.

    Example:
        >>> ood_name("inverted")
        'ood-inverted'
    """
    return f"ood-{kind}"


def input_sets(splits: ImageSplits, evaluation: EvaluationConfig, seed: int) -> Iterator[InputSet]:
    """Yield everything that is predicted: validation, test, corrupted test, ood.

    Args:
        splits: the data.
        evaluation: which strengths of shift.
        seed: decides the random parts of shifts and OOD inputs.
    """

    def of(part: LabelledImages, name: str) -> InputSet:
        return InputSet(name, part.images, part.ids, part.labels)

    yield of(splits.validation, "validation")
    yield of(splits.test, "test")
    for kind in DIGITS_CORRUPTIONS:
        for strength in evaluation.strengths:
            images = corrupted_digits(splits.test.images, kind, strength, seed)
            yield of(splits.test._replace(images=images), corrupted_name(kind, strength))
    for kind in OOD_KINDS:
        images = ood_images(splits.test.images, kind, seed)
        yield InputSet(ood_name(kind), images, splits.test.ids, None)


def predict_logits(model: nn.Module, images: Tensor, *, num_samples: int, seed: int) -> Tensor:  # shape: (S, N, classes)
    """Draw logits of images; the global generator is left as it was.

    Args:
        model: from images to logits; put into eval mode.
        images: `(N, C, H, W)`.
        num_samples: number S of draws; a deterministic model gives one.
        seed: seed of the draws.
    """
    return drawn_logits(model, images.split(_BATCH), num_samples=num_samples, seed=seed)


@torch.no_grad()
def drawn_logits(
    model: nn.Module, batches: Iterable[Any], *, num_samples: int, seed: int
) -> Tensor:  # shape: (S, N, classes)
    """Draw logits of batches of any kind; the global generator is left as it was.

    Args:
        model: from inputs to logits; put into eval mode.
        batches: of what the model takes.
        num_samples: number S of draws; a deterministic model gives one.
        seed: seed of the draws.
    """
    from experiments.methods.drawing import drawing  # that package reads predictions, and so this module

    device = next(model.parameters()).device
    model.eval()
    with torch.random.fork_rng(), drawing(model, num_samples):
        torch.manual_seed(generator_for("predict", seed).initial_seed())
        parts = [call_model(model, to_device(part, device)).cpu() for part in batches]
    logits = torch.cat(parts, dim=-2)
    return logits if logits.ndim == 3 else logits.unsqueeze(0)


@torch.no_grad()
def predictive_variance(model: nn.Module, images: Tensor) -> Tensor | None:  # shape: (L, N, n)
    """Return the predictive variance of each token in each Gaussian-process layer, averaged over heads.

    The layers see the mean of the layers below. A model without such a layer has none.

    Args:
        model: a trained model; put into eval mode.
        images: `(N, C, H, W)`.
    """
    blocks = [block for block in attention_blocks(model) if block.stochastic]
    if not blocks:
        return None
    inputs: dict[nn.Module, Tensor] = {}
    hooks = [
        block.register_forward_pre_hook(lambda block, args: inputs.__setitem__(block, args[0])) for block in blocks
    ]
    try:
        model.eval()(images.to(next(model.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack([block.token_variance(inputs[block]).mean(-2).cpu() for block in blocks])


def save_predictions(path: Path, logits: Tensor, inputs: InputSet) -> None:
    """Write `logits`, `ids` and, where there are any, `labels` to a compressed npz file.

    Args:
        path: the file.
        logits: `(S, N, C)`.
        inputs: what was predicted.
    """
    arrays = {"logits": logits.float().numpy(), "ids": inputs.ids.numpy()}
    if inputs.labels is not None:
        arrays["labels"] = inputs.labels.numpy()
    write_atomically(path, lambda aside: np.savez_compressed(aside, **arrays))


def load_predictions(path: Path) -> Predictions:
    """Read what `save_predictions` wrote.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged or holds something else.
    """
    arrays = read_arrays(path, "logits", "ids", "labels")
    if not {"logits", "ids"} <= set(arrays):
        raise ValueError(f"{path}: expected logits and ids, got {', '.join(arrays) or 'neither'}")
    return Predictions(arrays["logits"], arrays["ids"], arrays.get("labels"))


def is_predicted(path: Path, ids: Tensor, *, draws: int, source: str, recorded: str | None) -> bool:
    """Say whether a file holds the predictions of an input set, of these inputs at least.

    Args:
        path: the file.
        ids: `(N,)` of the inputs.
        draws: number S of draws.
        source: what the inputs are, in words.
        recorded: what they were when they were predicted; None where nobody noted it.
    """
    if not path.exists():
        return False
    found = load_predictions(path)
    same = recorded is None or same_source(recorded, source)
    return same and len(found.logits) == draws and set(ids.tolist()) <= set(found.ids.tolist())


def same_source(one: str, other: str) -> bool:
    """Say whether two descriptions of inputs are of the same thing, however many of it each took.

    Args:
        one: what some inputs are, in words.
        other: what other inputs are.

    Example:
        >>> same_source("generated by cgp, 1,000 images", "generated by cgp, 10,000 images")
        True
        >>> same_source("generated by cgp, 1,000 images", "CIFAR-10-C")
        False
    """
    return _NUMBER.sub("", one) == _NUMBER.sub("", other)
