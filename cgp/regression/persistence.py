"""A fitted estimator on disk: safetensors for the arrays, JSON for the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from .inference import Fitted
from .scaling import Scaling

if TYPE_CHECKING:
    from .estimator import CorrelatedGPRegressor

__all__ = ["FORMAT", "load_estimator", "save_estimator"]

FORMAT = 1


def save_estimator(estimator: CorrelatedGPRegressor, path: Path) -> None:
    """Write ``NAME.safetensors`` and ``NAME.json``, each aside and then renamed.

    Args:
        estimator: a fitted one.
        path: the file; its suffix is replaced.

    Raises:
        ValueError: if the kernel is an object.
    """
    arguments = estimator.get_params(deep=False)
    if not isinstance(arguments["kernel"], str):
        raise ValueError(f"kernel: expected a name to save, got a {type(arguments['kernel']).__name__}: pickle it")
    if not isinstance(arguments["random_state"], int | None):
        arguments["random_state"] = None
    packed = estimator.fitted_.packed()
    tensors = {"inputs": packed["inputs"], "targets": packed["targets"]}
    tensors |= {f"state/{name}": value for name, value in packed["state"].items()}
    tensors |= {f"chains/{name}": value for name, value in (packed["chains"] or {}).items()}
    for side in ("x", "y"):
        scaling: Scaling = getattr(estimator, f"{side}_scaling_")
        tensors |= {f"{side}/{name}": torch.as_tensor(value) for name, value in scaling._asdict().items()}
    description = {
        "format": FORMAT,
        "arguments": arguments,
        "signs": estimator.signs_.tolist(),
        "single": estimator._single,
        "fit": packed["fit"],
        "diagnostics": packed["diagnostics"],
        "feature_names": getattr(estimator, "feature_names_in_", np.array([])).tolist(),
    }
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    _aside(path.with_suffix(".safetensors"), lambda file: save_file(contiguous, file))
    text = json.dumps(description, indent=2) + "\n"
    _aside(path.with_suffix(".json"), lambda file: file.write_text(text, encoding="utf-8"))


def load_estimator(kind: type[CorrelatedGPRegressor], path: Path) -> CorrelatedGPRegressor:
    """Read what :func:`save_estimator` wrote.

    Args:
        kind: class of the estimator.
        path: the file; its suffix is replaced.

    Returns:
        The fitted estimator.

    Raises:
        ValueError: if the files are of another format.
    """
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if description.get("format") != FORMAT:
        raise ValueError(f"path: expected a description of format {FORMAT}, got {description.get('format')!r}")
    tensors = load_file(path.with_suffix(".safetensors"))
    estimator = kind(**description["arguments"])
    estimator.x_scaling_, estimator.y_scaling_ = (
        Scaling(**{name: value.numpy() for name, value in _under(tensors, side).items()}) for side in ("x", "y")
    )
    estimator.signs_ = np.asarray(description["signs"])
    estimator._single = description["single"]
    estimator.n_outputs_ = len(estimator.signs_)
    estimator.n_features_in_ = len(estimator.x_scaling_.centre)
    if description["feature_names"]:
        estimator.feature_names_in_ = np.asarray(description["feature_names"], dtype=object)
    packed = {
        "inputs": tensors["inputs"],
        "targets": tensors["targets"],
        "state": _under(tensors, "state"),
        "chains": _under(tensors, "chains") or None,
        "fit": description["fit"],
        "diagnostics": description["diagnostics"],
    }
    estimator._accept(Fitted.unpacked(packed, estimator.get_params(deep=False), estimator.signs_))
    return estimator


def _under(tensors: dict[str, Any], folder: str) -> dict[str, Any]:
    return {name.removeprefix(f"{folder}/"): value for name, value in tensors.items() if name.startswith(f"{folder}/")}


def _aside(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        write(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
