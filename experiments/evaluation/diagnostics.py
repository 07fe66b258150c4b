"""Diagnostics of a trained model: similarity of the outputs of attention (collapse), and variances of tokens."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.networks.model.blocks import sampling
from cgp.networks.model.diagnostics import layer_outputs, token_similarity, variance_by_layer
from cgp.networks.model.inputs import model_device, to_device
from experiments.atomic_files import read_arrays, write_atomically
from experiments.data.examples import Examples, batch, image_batch
from models.transformer_layer import TransformerLayer

__all__ = ["attention_similarity", "collapse_of_runs", "write_diagnostics"]

_INPUTS = 128  # inputs for which the mean similarity has a standard error of about 0.01
_TOGETHER = 32
_EXAMPLES = 5
_SAME = 0.995


def write_diagnostics(model: nn.Module, examples: Examples, path: Path) -> None:
    """Write the diagnostics of a trained transformer on its test part to an npz file, unless it exists."""
    if not path.exists():
        arrays = {"attention_similarity": attention_similarity(model, examples)} | _token_variance(model, examples)
        write_atomically(path, lambda aside: np.savez_compressed(aside, **arrays))


@torch.no_grad()
def attention_similarity(
    model: nn.Module, examples: Examples, *, count: int = _INPUTS
) -> NDArray[np.float32]:  # shape: (L,)
    """Mean cosine similarity of an input's tokens after each attention, without draws, over evenly spaced inputs."""
    blocks = [module.attention for module in model.modules() if isinstance(module, TransformerLayer)]
    count = min(count, len(examples))
    similarities = []
    with sampling(model.eval(), "mean"):
        for part in (torch.arange(count) * len(examples) // count).split(_TOGETHER):
            inputs = to_device(batch(examples, part)[0], model_device(model))
            named = inputs if isinstance(inputs, dict) else {}
            attended = layer_outputs(model, blocks, *(() if named else (inputs,)), **named)
            similarities.append(torch.stack([token_similarity(x, named.get("padding_mask")) for x in attended]))
    return torch.cat(similarities, -1).nanmean(-1).cpu().numpy()


@torch.no_grad()
def _token_variance(model: nn.Module, examples: Examples) -> dict[str, NDArray[Any]]:
    """`token_variance` (G, N, n) of the last G layers, mean over heads, and the N images and labels it belongs to."""
    if not isinstance(examples.inputs, Tensor) or examples.labels is None:
        return {}
    # One image of each of the first classes.
    chosen = torch.from_numpy(np.unique(examples.labels.cpu().numpy(), return_index=True)[1][:_EXAMPLES])
    images, labels = image_batch(examples, chosen)
    layers = variance_by_layer(model.eval(), to_device(images, model_device(model)))
    if not layers:
        return {}
    variance = torch.stack([layer.mean(-2) for layer in layers]).cpu().numpy()
    return {"token_variance": variance, "variance_images": images.numpy(), "variance_labels": labels.cpu().numpy()}


def collapse_of_runs(diagnostics: Iterable[Path]) -> str | None:
    """Name the layers whose attention returns the same for every token, on average over the runs of one method.

    Such layers see a bag of tokens. None if there is no such layer.
    """
    read = [read_arrays(path, "attention_similarity") for path in diagnostics if path.exists()]
    similarities = [arrays["attention_similarity"] for arrays in read if arrays]
    layers = (
        [str(place) for place, value in enumerate(np.mean(similarities, 0), 1) if value > _SAME] if similarities else []
    )
    if not layers:
        return None
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {', '.join(layers)}"
    return f"attention returns the same to every token (mean cosine similarity above {_SAME}) in {where}"
