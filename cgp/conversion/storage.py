"""Converted models on disk: tensors as safetensors, what was done as JSON, no pickle."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from torch import nn

from cgp.model.temperature import logit_temperature, set_logit_temperature

from .blocks import AttentionChoice
from .convert import RECORD, convert

__all__ = ["from_pretrained", "save_pretrained"]

_CONFIG, _WEIGHTS = "cgp_config.json", "model.safetensors"
_VERSION = 1


def save_pretrained(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write a converted model to a folder: ``model.safetensors`` and ``cgp_config.json``.

    Each file is written aside and renamed, the configuration last, so that a folder with one is whole.

    Args:
        model: what :func:`cgp.convert` returned, trained or not.
        folder: is created if need be.

    Raises:
        ValueError: if the model is not a converted one, or an option is nothing that JSON has.
    """
    records = getattr(model, RECORD, None)
    if not records:
        raise ValueError(f"model: expected one that cgp.convert returned, got {type(model).__name__}")
    config = {"format_version": _VERSION, "conversions": records, "temperature": logit_temperature(model)}
    try:
        text = json.dumps(config, indent=2) + "\n"
    except TypeError as error:
        raise ValueError(f"options: expected values that JSON has, got {records}") from error
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    _write_aside(path / _WEIGHTS, lambda aside: save_model(model, str(aside)))
    _write_aside(path / _CONFIG, lambda aside: aside.write_text(text, encoding="utf-8"))


def from_pretrained(
    folder: str | os.PathLike[str], model: nn.Module, *, attention: AttentionChoice | None = None
) -> nn.Module:
    """Read a converted model: the host is converted as it was, then every tensor is loaded.

    Args:
        folder: what :func:`save_pretrained` wrote.
        model: the host, not converted, with any weights; it is copied.
        attention: the factory, for a model that was converted by one; None takes the saved name.

    Returns:
        The model, equal to the saved one to the bit, in eval mode.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the configuration is of another version, the host of another class, or a factory is missing.
    """
    path = Path(folder)
    config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    if config.get("format_version") != _VERSION:
        raise ValueError(f"{_CONFIG}: expected format_version {_VERSION}, got {config.get('format_version')!r}")
    host, given = config["conversions"][0]["host"], f"{type(model).__module__}.{type(model).__qualname__}"
    if host != given:
        raise ValueError(f"model: expected a {host}, as was saved, got a {given}")
    for index, record in enumerate(config["conversions"]):
        model = convert(model, _choice(record, attention), record["layers"], copy=index == 0, **record["options"])
    load_model(model, str(path / _WEIGHTS))
    set_logit_temperature(model, config.get("temperature", 1.0))
    return model.eval()


def _choice(record: dict[str, Any], attention: AttentionChoice | None) -> AttentionChoice:
    choice = record["attention"] if attention is None or record["attention"] is not None else attention
    if choice is None:
        raise ValueError("attention: expected the factory that the model was converted by, got None")
    return choice


def _write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name in its folder, then rename it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    aside = Path(name)
    try:
        write(aside)
        aside.chmod(0o644)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
