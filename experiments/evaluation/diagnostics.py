"""What goes on inside a trained model: similarity of tokens, spectra and variances of the attention, collapse."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.attention import Attention
from cgp.model.blocks import freeze, sampling
from cgp.model.diagnostics import attention_matrix, layer_outputs, token_similarity, variance_by_layer
from cgp.model.inputs import model_device, to_device
from experiments.data.examples import Examples, batch
from experiments.storage import read_arrays, write_atomically
from models.transformer_layer import TransformerLayer

__all__ = ["DIAGNOSTICS", "collapse_of_runs", "collapse_sentence", "diagnose", "write_diagnostics"]

DIAGNOSTICS = "diagnostics.npz"
"""Name of the file in the folder of a run that `write_diagnostics` writes."""

_INPUTS = 128  # the mean of a similarity over so many has a standard error of a hundredth; a spectrum costs O(n³)
_TOGETHER = 32
_EXAMPLES = 5
_SAME = 0.995


class _Measured(NamedTuple):
    """Of a batch: similarities after each layer and each attention (L, B), spectra of the attention (L, B, n)."""

    after_layer: Tensor
    after_attention: Tensor
    spectra: Tensor


def write_diagnostics(model: nn.Module, examples: Examples, path: Path) -> None:
    """Write the diagnostics of a trained transformer on its test part to an npz file, unless it exists."""
    if not path.exists():
        arrays = diagnose(model, examples) | _token_variance(model, examples)
        write_atomically(path, lambda aside: np.savez_compressed(aside, **arrays))


@torch.no_grad()
def diagnose(model: nn.Module, examples: Examples, *, count: int = _INPUTS) -> dict[str, NDArray[Any]]:
    """Look at tokens and attention of some inputs, evenly spaced among the examples; no layer draws.

    Only a text's own tokens count: the spectrum of its n x n matrix is followed by zeros up to the length of the
    longest.

    Args:
        model: a transformer of L layers; put into eval mode.
        examples: what to look at.
        count: number of inputs.

    Returns:
        `token_similarity` (L,), mean cosine similarity of an input's tokens after each layer; `attention_similarity`
        (L,), the same of what each attention returns; `attention_spectrum` (L, k), singular values of the attention
        matrices, mean over heads and inputs.
    """
    layers = [module for module in model.modules() if isinstance(module, TransformerLayer)]
    with sampling(model, "mean"):
        freeze(model.eval())  # some methods have their global keys only while the whole model runs, or once frozen
        measured = [_measured(model, layers, inputs) for inputs in _of_one_length(examples, count)]
        model.eval()  # drops what was frozen
    longest = max(part.spectra.shape[-1] for part in measured)
    spectra = [nn.functional.pad(part.spectra, (0, longest - part.spectra.shape[-1])) for part in measured]
    return {
        "token_similarity": torch.cat([part.after_layer for part in measured], -1).nanmean(-1).numpy(),
        "attention_similarity": torch.cat([part.after_attention for part in measured], -1).nanmean(-1).numpy(),
        "attention_spectrum": torch.cat(spectra, 1).mean(1).numpy(),
    }


@torch.no_grad()
def _token_variance(model: nn.Module, examples: Examples) -> dict[str, NDArray[Any]]:
    """`token_variance` (G, N, n) of G Gaussian-process layers, mean over heads, on N images that lie beside it."""
    if not isinstance(examples.inputs, Tensor) or examples.labels is None:
        return {}
    # One image of each of the first classes.
    chosen = torch.from_numpy(np.unique(examples.labels.cpu().numpy(), return_index=True)[1][:_EXAMPLES])
    images = batch(examples, chosen)[0]
    variance = [
        layer.mean(-2).cpu() for layer in variance_by_layer(model.eval(), to_device(images, model_device(model)))
    ]
    if not variance:
        return {}
    ids = examples.ids[chosen].cpu().numpy()
    return {"token_variance": torch.stack(variance).numpy(), "variance_ids": ids, "variance_images": images.numpy()}


def collapse_of_runs(diagnostics: Iterable[Path]) -> str | None:
    """State in which layers attention has collapsed, on average over the runs of one method; None where in none."""
    read = [read_arrays(path, "attention_similarity") for path in diagnostics if path.exists()]
    found = [arrays["attention_similarity"] for arrays in read if arrays]
    return collapse_sentence(np.mean(found, 0)) if found else None


def collapse_sentence(
    similarity: Sequence[float] | NDArray[Any],  # shape: (L,)
) -> str | None:
    """State in which layers attention returns the same to every token: such layers see a bag of tokens."""
    layers = [str(place) for place, value in enumerate(similarity, 1) if value > _SAME]
    if not layers:
        return None
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {', '.join(layers)}"
    return f"attention returns the same to every token (mean cosine similarity above {_SAME}) in {where}"


def _of_one_length(examples: Examples, count: int) -> Iterator[Any]:
    """Batches of inputs that have as many tokens each, so that none of them is padding."""
    count = min(count, len(examples))
    chosen = torch.arange(count) * len(examples) // count
    lengths = torch.zeros(count, dtype=torch.long)
    if not isinstance(examples.inputs, Tensor):
        lengths = (~examples.inputs["padding_mask"][chosen]).sum(-1).cpu()
    for length in lengths.unique().tolist():
        for part in chosen[lengths == length].split(_TOGETHER):
            yield batch(examples, part)[0]


def _measured(model: nn.Module, layers: Sequence[TransformerLayer], inputs: Any) -> _Measured:
    blocks: list[Attention] = [layer.attention for layer in layers]
    watched = [*layers, *blocks, *(layer.attention_norm for layer in layers)]
    moved = to_device(inputs, model_device(model))
    named = moved if isinstance(moved, dict) else {}
    seen = layer_outputs(model, watched, *(() if named else (moved,)), **named)
    tokens, attended, reaching = (seen[place : place + len(layers)] for place in range(0, len(seen), len(layers)))
    matrices = [attention_matrix(block, x) for block, x in zip(blocks, reaching, strict=True)]
    return _Measured(
        torch.stack([token_similarity(x) for x in tokens]).cpu(),
        torch.stack([token_similarity(x) for x in attended]).cpu(),
        torch.stack([torch.linalg.svdvals(matrix).mean(1) for matrix in matrices]).cpu(),
    )
