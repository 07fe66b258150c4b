"""Weights on disk as safetensors with a checksum, so that a damaged file is not read as other weights."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_file, save_model
from torch import Tensor, nn

from .atomic_files import write_aside

__all__ = [
    "check_weights",
    "load_content",
    "load_tensors",
    "load_weights",
    "part_of",
    "save_content",
    "save_tensors",
    "save_weights",
]

_KEY = "sha256"
_PLAIN, _VERSION = "cgp", 2


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by what follows it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_weights(model: nn.Module, file: str | os.PathLike[str]) -> None:
    """Write the tensors of a model, with their checksum.

    Args:
        model: any module; tensors that share memory are written once.
        file: path of the file; an existing one is replaced.

    Raises:
        OSError: if the file cannot be written.
    """
    try:
        save_model(model, os.fspath(file))
        tensors, metadata = _content(file)
        save_tensors(tensors, file, metadata)
    except SafetensorError as error:
        raise OSError(f"{file}: {error}") from error


def save_tensors(tensors: Mapping[str, Tensor], file: str | os.PathLike[str], metadata: Mapping[str, str]) -> None:
    """Write tensors and text, with their checksum.

    Args:
        tensors: by name; they share no memory.
        file: is written over.
        metadata: text by name.

    Raises:
        OSError: if it cannot be written.
    """
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(kept, file, {**metadata, _KEY: _checksum(kept, metadata)})
    except SafetensorError as error:
        raise OSError(f"{file}: {error}") from error


def load_tensors(file: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the text that :func:`save_tensors` wrote; raises as :func:`check_weights` does."""
    check_weights(file)
    return _content(file)


def save_content(file: Path, plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write plain values and tensors to a file, atomically; its folder is made if it is not there.

    Raises:
        ValueError: if a value cannot be written as JSON.
    """
    try:
        text = json.dumps({"format_version": _VERSION, **plain})
    except TypeError as error:
        raise ValueError(f"save: expected settings and names that are text or numbers: {error}") from error
    file.parent.mkdir(parents=True, exist_ok=True)
    write_aside(file, lambda aside: save_tensors(tensors, aside, {_PLAIN: text}))


def load_content(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`save_content` wrote.

    Returns:
        Values and tensors.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or of another version.
    """
    if not file.is_file():
        raise FileNotFoundError(f"folder: expected one that save wrote, got {str(file.parent)!r} without {file.name}")
    tensors, metadata = load_tensors(file)
    plain = json.loads(metadata.get(_PLAIN, "{}"))
    version = plain.get("format_version")
    if version != _VERSION:
        raise ValueError(f"{file}: expected a file of format_version {_VERSION}, got {version!r}")
    return plain, tensors


def load_weights(model: nn.Module, file: str | os.PathLike[str]) -> None:
    """Load a file of :func:`save_weights` into a model with the same tensors; raises as :func:`check_weights` does."""
    check_weights(file)
    load_model(model, os.fspath(file))


def check_weights(file: str | os.PathLike[str]) -> None:
    """Check that a file is bitwise what :func:`save_weights` wrote.

    Args:
        file: path of the weights.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file is damaged or has no checksum.
    """
    try:
        tensors, metadata = _content(file)
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged header may raise anything in the parser
        raise ValueError(f"{file}: expected weights, got a damaged file ({error})") from error
    written = metadata.pop(_KEY, None)
    if written is None:
        raise ValueError(f"{file}: expected weights with a checksum, got a file of another version, or a damaged one")
    if written != _checksum(tensors, metadata):
        raise ValueError(f"{file}: expected weights, got a damaged file (its checksum is another)")


def _content(file: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(os.fspath(file), "pt") as content:
        names = content.keys()
        return {name: content.get_tensor(name).clone() for name in names}, dict(content.metadata() or {})


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
