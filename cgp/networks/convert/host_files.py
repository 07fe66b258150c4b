"""Converted models on disk, in the host library's layout if it has one: safetensors and JSON, no pickle."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_model
from torch import Tensor, nn

from cgp.atomic_files import write_aside
from cgp.extras import needs_extra
from cgp.networks.model.structural_copy import structural_copy
from cgp.weights import check_weights, save_weights

from .convert import put_heads
from .heads import ConvertedHeads
from .sites import attention_sites

__all__ = ["check_adapters", "is_converted", "load_converted", "save_converted"]

_CONFIG, _WEIGHTS, _ADAPTER = "cgp_config.json", "model.safetensors", "adapter_config.json"
_VERSION = 3

_TIMM = ("model_name", "num_classes")  # all that a folder may say of timm's model
_CHOICES = ("attn_implementation", "experts_implementation")  # of transformers, which downloads "owner/name"


def is_converted(model: nn.Module) -> bool:
    """Whether :func:`cgp.convert` made the model."""
    return any(isinstance(module, ConvertedHeads) for module in model.modules())


def check_adapters(model: nn.Module) -> None:
    """Refuse a model of which only an adapter would be written."""
    places = [name for name, module in model.named_modules() if isinstance(module, ConvertedHeads)]
    is_adapted = any(hasattr(module, "peft_config") for module in model.modules())
    if is_adapted and (_is_of_transformers(model) or not all(f".{name}".endswith(".gp") for name in places)):
        raise ValueError(
            "model: expected no adapter, which writes itself: give peft's configuration modules_to_save=['gp'], write "
            "by model.save_pretrained, and read by peft.PeftModel.from_pretrained(cgp.convert(host), folder)"
        )


def save_converted(model: nn.Module, path: Path) -> None:
    """Write a model, converted or not, to a folder, as :func:`cgp.save_pretrained` says."""
    path.mkdir(parents=True, exist_ok=True)
    if _is_of_transformers(model):
        cast(Any, model).save_pretrained(str(path))
        return
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture")
    timm = architecture and {"model_name": architecture, "num_classes": model.num_classes}
    text = json.dumps({"format_version": _VERSION, "host": type(model).__qualname__, "timm": timm}, indent=2)
    write_aside(path / _WEIGHTS, lambda file: save_weights(model, file))
    write_aside(path / _CONFIG, lambda file: file.write_text(f"{text}\n"))


def _is_of_transformers(model: nn.Module) -> bool:
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


def load_converted(path: Path, model: nn.Module | None, *, needs_heads: bool = True) -> nn.Module:
    """Read what :func:`save_converted` wrote; without ``needs_heads``, the folder may hold no converted layer."""
    is_of_transformers = (path / "config.json").exists()
    if not is_of_transformers and (path / _WEIGHTS).exists():
        check_weights(path / _WEIGHTS)
    saved = _saved_heads(path)
    if needs_heads and not saved:
        raise ValueError(f"folder: expected safetensors of a converted model, got none in {path}")
    converted = structural_copy(_from_transformers(path, model) if is_of_transformers else _host(path, model))
    _put_saved(converted, saved)
    if not is_of_transformers:
        load_model(converted, str(path / _WEIGHTS))
    return converted.eval()


def _saved_heads(path: Path) -> dict[int, dict[str, Tensor]]:
    """Tensors of every converted layer, by the layer's number."""
    by_place: dict[str, dict[str, Tensor]] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(str(file), "pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 (no dict)
                place, _, name = key.rpartition(".")
                if f".{place}".endswith(".gp"):
                    by_place.setdefault(place, {})[name] = tensors.get_tensor(key)
    return {int(tensors["layer"]): tensors for tensors in by_place.values()}


def _put_saved(model: nn.Module, saved: dict[int, dict[str, Tensor]]) -> None:
    able = {site.number: site for site in attention_sites(model) if site.state == "softmax"}
    if missing := sorted(saved.keys() - able.keys()):
        raise ValueError(
            f"model: expected the architecture that was saved, where attention layer {missing[0]} is converted, got a "
            f"{type(model).__name__} with such layers {sorted(able)}"
        )
    heads = [ConvertedHeads(len(t["raw_noise"]), inducing=t.get("inducing")) for t in saved.values()]
    put_heads(model, [able[number] for number in saved], heads)
    for layer_heads, tensors in zip(heads, saved.values(), strict=True):
        tensors.setdefault("cgp_weights", torch.tensor(0))  # of files from before it was kept
        layer_heads.load_state_dict(tensors)


def _from_transformers(path: Path, model: nn.Module | None) -> nn.Module:
    with needs_extra("text", "from_pretrained"):
        library = importlib.import_module("transformers")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    _check_config(config)
    if (path / _ADAPTER).exists():
        raise ValueError(f"folder: expected a whole model, got {_ADAPTER} (peft.PeftModel.from_pretrained reads it)")
    kind = _named_class(library, config) if model is None else type(model)
    level = library.logging.get_verbosity()
    library.logging.set_verbosity_error()  # it would warn that it does not know the heads' tensors
    try:
        host: nn.Module = cast(Any, kind).from_pretrained(str(path), use_safetensors=True, local_files_only=True)
    finally:
        library.logging.set_verbosity(level)
    return host


def _named_class(library: Any, config: dict[str, Any]) -> type[nn.Module]:
    """The class of transformers' models that a configuration names."""
    name = str((config.get("architectures") or ["?"])[0])
    kind: Any = getattr(library, name, None)
    if not (isinstance(kind, type) and issubclass(kind, library.PreTrainedModel)):
        raise ValueError(f"model: expected the host, whose class {name} is no model of transformers, got None")
    return kind


def _check_config(value: Any) -> None:
    """Refuse a configuration by which a library would read other files, or run code that it downloads."""
    if isinstance(value, list):
        for item in value:
            _check_config(item)
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        is_path = name == "checkpoint_path" or (name in ("architecture", "backbone") and ":" in str(item))
        if is_path or (any(choice in name for choice in _CHOICES) and "/" in str(item)):
            raise ValueError(f"config.json: expected {name} to name no file and nothing to download, got {item!r}")
        _check_config(item)


def _host(path: Path, model: nn.Module | None) -> nn.Module:
    """A copy of the given host, or the host that timm builds."""
    config: dict[str, Any] = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    if config.get("format_version") != _VERSION:
        raise ValueError(f"{_CONFIG}: expected format_version {_VERSION}, got {config.get('format_version')!r}")
    if model is None and not config["timm"]:
        raise ValueError(f"model: expected the host ({config['host']}), which the folder does not hold, got None")
    return _of_timm(config["timm"]) if model is None else copy.deepcopy(model)


def _of_timm(named: dict[str, Any]) -> nn.Module:
    """A model of timm by its name: a file may say nothing else, such as a checkpoint that would be read."""
    with needs_extra("vision", "from_pretrained"):
        library = importlib.import_module("timm")
    if sorted(named) != sorted(_TIMM):
        raise ValueError(f"{_CONFIG}: expected timm's {' and '.join(_TIMM)}, got {', '.join(map(repr, named))}")
    name, classes = named["model_name"], named["num_classes"]
    if not isinstance(name, str) or not library.is_model(name) or type(classes) is not int:
        raise ValueError(f"{_CONFIG}: expected the name of a model of timm and a number of classes, got {named}")
    created: nn.Module = library.create_model(name, num_classes=classes, pretrained=False)
    return created
