"""Models on disk with all that :func:`cgp.predict` needs: posteriors, temperature, read-out, detectors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cgp.atomic_files import write_aside
from cgp.networks.convert.host_files import check_adapters, is_converted, load_converted, save_converted
from cgp.networks.detect.detector import Detector
from cgp.networks.guarantees.guarantees import Source
from cgp.networks.methods import Method
from cgp.networks.model.fingerprints import (
    calibrated_weights,
    keep_weights,
    logit_temperature,
    set_logit_temperature,
)
from cgp.networks.model.named import State
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.method import Settings, as_assessed, has_settings, settings_of, with_settings
from cgp.networks.predict.prediction import Prediction, TokenLayout
from cgp.weights import load_tensors, part_of, save_tensors

__all__ = ["from_pretrained", "save_pretrained"]

_FILE, _VERSION = "cgp_calibration.safetensors", 2
_KEPT = ("mean", "probabilities", "total", "aleatoric", "epistemic", "labels")  # of held-out inputs


def save_pretrained(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write a model to a folder, with its calibration and attached detectors.

    A model of transformers writes itself (``model.save_pretrained`` does, too, and so does its Trainer): the folder is
    its own, with some more tensors if it is converted. Any other model is written to ``model.safetensors``;
    ``cgp_config.json`` has what a host of timm is built from. The temperature of a converted model is among its
    tensors; what else was calibrated is in ``cgp_calibration.safetensors``, which only this function writes.

    Args:
        model: a model of :func:`cgp.convert`, :func:`cgp.calibrate` or :meth:`cgp.Assessment.apply`, trained or not.
        folder: folder to write; created if it does not exist.

    Raises:
        ValueError: if there is nothing of this package in the model, what would be written is only an adapter, or a
            read-out or detector has functions of its own, which are not written.
    """
    model = uncompiled(model)
    temperature = logit_temperature(model)
    if not (is_converted(model) or has_settings(model) or temperature != 1.0):
        kind = type(model).__name__
        raise ValueError(f"model: expected one that cgp.convert, cgp.calibrate or report.apply returned, got {kind}")
    settings, path = settings_of(model), Path(folder)
    config, tensors = _settings_state(settings)
    places = _first_places(tensors)
    config |= {"temperature": temperature, "weights": calibrated_weights(model), "places": places}
    try:
        text = json.dumps({"format_version": _VERSION, **config})
    except TypeError as error:
        raise ValueError(
            "model: expected methods and scores whose fields are numbers, text or arrays, or which have a state() and "
            f"of_state() of their own, got others ({error})"
        ) from error
    stored = {name: tensors[name] for name in set(places.values())}
    check_adapters(model)
    (path / _FILE).unlink(missing_ok=True)  # of a model that was there before
    save_converted(as_assessed(model), path)
    if has_settings(model) or not is_converted(model):
        write_aside(path / _FILE, lambda file: save_tensors(stored, file, {"cgp": text}))


def from_pretrained(folder: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Read a model written by :func:`cgp.save_pretrained`.

    Args:
        folder: what :func:`save_pretrained` wrote, or a converted model of transformers itself, or a checkpoint of its
            Trainer.
        model: the host, with any weights; it is copied. None where the folder says what the host is: models of
            transformers, and those of ``timm.create_model`` that were built with no other option than their number of
            classes.

    Returns:
        The model, bitwise equal to the saved one, in eval mode.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the weights are damaged, the configuration is of another version, the folder does not say what
            the host is, or it has neither a converted layer nor a calibration.
    """
    path = Path(folder)
    if not (path / _FILE).exists():
        return load_converted(path, model)
    tensors, metadata = load_tensors(path / _FILE)
    config = json.loads(metadata["cgp"])
    if config["format_version"] != _VERSION:
        raise ValueError(f"{_FILE}: expected format_version {_VERSION}, got {config['format_version']!r}")
    tensors = {name: tensors[place] for name, place in config["places"].items()}
    loaded = load_converted(path, model, needs_heads=False)
    loaded = with_settings(loaded, _settings_of_state(config, tensors))
    set_logit_temperature(loaded, config["temperature"])
    keep_weights(loaded, config["weights"])
    return loaded


def _first_places(tensors: dict[str, Tensor]) -> dict[str, str]:
    """For each tensor the name of the first that shares its memory: detectors share what they were fitted by."""
    first: dict[tuple[int, torch.Size], str] = {}
    return {name: first.setdefault((tensor.data_ptr(), tensor.shape), name) for name, tensor in tensors.items()}


def _settings_state(settings: Settings) -> State:
    config: dict[str, Any] = {"task": settings.task, "has_variance_head": settings.has_variance_head}
    config |= {"method": None, "held_out": None, "detectors": []}
    tensors: dict[str, Tensor] = {} if settings.scale is None else {"scale": settings.scale}
    if settings.method is not None:
        config["method"], of_method = settings.method.saved()
        tensors |= _prefixed("method", of_method)
    if settings.held_out is not None:
        kept = settings.held_out
        source = None if kept.source is None else kept.source._asdict()
        config["held_out"] = {"task": kept.task, "num_samples": kept.num_samples, "source": source}
        fields = {name: getattr(kept, name) for name in _KEPT}
        tensors |= _prefixed("held_out", {name: value for name, value in fields.items() if value is not None})
    for number, detector in enumerate(settings.detectors.values()):
        options, of_detector = detector.state()
        config["detectors"].append(options)
        tensors |= _prefixed(f"detectors.{number}", of_detector)
    return config, tensors


def _settings_of_state(config: dict[str, Any], tensors: dict[str, Tensor]) -> Settings:
    method = config["method"] and Method.of_saved(config["method"], part_of(tensors, "method."))
    parts = [(options, part_of(tensors, f"detectors.{number}.")) for number, options in enumerate(config["detectors"])]
    detectors = {detector.name: detector for detector in (Detector.of_state(*part) for part in parts)}
    kept = config["held_out"] and _prediction(config["held_out"], part_of(tensors, "held_out."))
    options = {name: config[name] for name in ("task", "has_variance_head")}
    return Settings(method, detectors, kept, tensors.get("scale"), **options)


def _prediction(config: dict[str, Any], tensors: dict[str, Tensor]) -> Prediction:
    parts: dict[str, Any] = {name: tensors.get(name) for name in _KEPT if name != "mean"}
    absent: dict[str, Any] = {"draws": None, "token_variance": {}, "layout": TokenLayout(0, None)}
    source = config["source"] and Source(**config["source"])
    return Prediction(mean=tensors["mean"], **config | {"source": source}, **parts, **absent)


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
