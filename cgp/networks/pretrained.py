"""Models on disk with all that :func:`cgp.predict` needs: posteriors, temperature, read-out, detectors.

A converted model is in the host library's layout if it has one: safetensors and JSON, no pickle.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_model
from torch import Tensor, nn

from cgp.atomic_files import write_aside
from cgp.extras import needs_extra
from cgp.networks.convert.convert import put_heads
from cgp.networks.convert.heads import ConvertedHeads
from cgp.networks.convert.sites import attention_sites
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
from cgp.networks.model.repeated import keep_keys, kept_keys
from cgp.networks.model.structural_copy import structural_copy, uncompiled
from cgp.networks.predict.method import Settings, as_assessed, has_settings, settings_of, with_settings
from cgp.networks.predict.prediction import Prediction, TokenLayout
from cgp.spelling import first_of
from cgp.weights import check_weights, load_tensors, part_of, save_tensors, save_weights

__all__ = ["from_pretrained", "save_pretrained"]

_FILE, _VERSION = "cgp_calibration.safetensors", 2
_CONFIG, _WEIGHTS, _ADAPTER = "cgp_config.json", "model.safetensors", "adapter_config.json"
_HOST_VERSION = 3
_TIMM = ("model_name", "num_classes")  # all that a folder may say of timm's model
_PLAIN = (bool, int, float, str, tuple, type(None))  # options that a module keeps
_FEW = 3  # tensors that are named
_CHOICES = ("attn_implementation", "experts_implementation")  # of transformers, which downloads "owner/name"
_KEPT = ("mean", "probabilities", "total", "aleatoric", "epistemic", "labels")  # of held-out inputs


def save_pretrained(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write a model to a folder, with its calibration and attached detectors.

    A model of transformers writes itself (``model.save_pretrained`` does, too, and so does its Trainer): the folder is
    its own, with some more tensors if it is converted. Any other model is written to ``model.safetensors``;
    ``cgp_config.json`` names a host of timm, if its name and number of classes build it. The temperature of a converted
    model is among its tensors; what else was calibrated is in ``cgp_calibration.safetensors``, which only this function
    writes, with a number of eight bytes for each input that it was fitted to, by which :func:`cgp.with_held_out` knows
    it again.

    Args:
        model: a model of :func:`cgp.convert`, :func:`cgp.calibrate` or :meth:`cgp.Assessment.apply`, trained or not.
        folder: folder to write; created if it does not exist.

    Raises:
        ValueError: if there is nothing of this package in the model, what would be written is only an adapter, or a
            read-out or detector has functions of its own, which are not written.
    """
    model = uncompiled(model)
    temperature = logit_temperature(model)
    if not (_is_converted(model) or has_settings(model) or temperature != 1.0):
        kind = type(model).__name__
        raise ValueError(
            f"model: expected one that cgp.convert, cgp.calibrate or report.apply returned, got {kind} (any other "
            "module, such as of cgp.replace_attention, is saved by torch.save(model.state_dict(), file))"
        )
    settings, path = settings_of(model), Path(folder)
    config, tensors = _settings_state(settings)
    keys = kept_keys(model)
    tensors |= {"keys": torch.from_numpy(keys)} if len(keys) else {}
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
    _check_adapters(model)
    (path / _FILE).unlink(missing_ok=True)  # of a model that was there before
    _save_converted(as_assessed(model), path)
    if has_settings(model) or len(keys) or not _is_converted(model):
        write_aside(path / _FILE, lambda file: save_tensors(stored, file, {"cgp": text}))


def from_pretrained(folder: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Read a model written by :func:`cgp.save_pretrained`.

    Args:
        folder: what :func:`save_pretrained` wrote, or a converted model of transformers itself, or a checkpoint of its
            Trainer.
        model: a network of the saved architecture, with any weights; it is copied. None where the folder names it:
            models of transformers, and those of ``timm.create_model`` that were built with no other option than their
            number of classes.

    Returns:
        The model, bitwise equal to the saved one, in eval mode.

    Raises:
        FileNotFoundError: if a file is missing.
        TypeError: if the folder is a model.
        ValueError: if the weights are damaged, the configuration is of another version, the folder does not say what
            the architecture is, or it has neither a converted layer nor a calibration.
    """
    if isinstance(folder, nn.Module):
        raise TypeError(
            f"folder: expected a path before the model, cgp.from_pretrained(folder, model), got {type(folder).__name__}"
        )
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(f"folder: expected one that cgp.save_pretrained wrote, got {path}, which is none")
    if not (path / _FILE).exists():
        return _load_converted(path, model)
    tensors, metadata = load_tensors(path / _FILE)
    config = json.loads(metadata["cgp"])
    if config["format_version"] != _VERSION:
        raise ValueError(f"{_FILE}: expected format_version {_VERSION}, got {config['format_version']!r}")
    tensors = {name: tensors[place] for name, place in config["places"].items()}
    loaded = _load_converted(path, model, needs_heads=False)
    loaded = with_settings(loaded, _settings_of_state(config, tensors))
    set_logit_temperature(loaded, config["temperature"])
    keep_weights(loaded, config["weights"])
    if "keys" in tensors:
        keep_keys(loaded, tensors["keys"].tolist())
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


def _is_converted(model: nn.Module) -> bool:
    """Whether :func:`cgp.convert` made the model."""
    return any(isinstance(module, ConvertedHeads) for module in model.modules())


def _check_adapters(model: nn.Module) -> None:
    """Refuse a model of which only an adapter would be written."""
    places = [name for name, module in model.named_modules() if isinstance(module, ConvertedHeads)]
    is_adapted = any(hasattr(module, "peft_config") for module in model.modules())
    if is_adapted and (_is_of_transformers(model) or not all(f".{name}".endswith(".gp") for name in places)):
        raise ValueError(
            "model: expected no adapter, which writes itself: give peft's configuration modules_to_save=['gp'], write "
            "by model.save_pretrained, and read by peft.PeftModel.from_pretrained(cgp.convert(host), folder)"
        )


def _save_converted(model: nn.Module, path: Path) -> None:
    """Write a model, converted or not, to a folder, as :func:`cgp.save_pretrained` says."""
    path.mkdir(parents=True, exist_ok=True)
    if _is_of_transformers(model):
        cast(Any, model).save_pretrained(str(path))
        return
    config = {"format_version": _HOST_VERSION, "host": type(model).__qualname__, "timm": _named_by_timm(model)}
    text = json.dumps(config, indent=2)
    write_aside(path / _WEIGHTS, lambda file: save_weights(model, file))
    write_aside(path / _CONFIG, lambda file: file.write_text(f"{text}\n"))


def _named_by_timm(model: nn.Module) -> dict[str, Any] | None:
    """The name and the number of classes by which timm builds a model, or None if it had other options."""
    library: Any = sys.modules.get("timm")
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture")
    classes = getattr(model, "num_classes", None)
    if library is None or type(classes) is not int or not architecture or not library.is_model(architecture):
        return None
    named = {"model_name": architecture, "num_classes": classes}
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        built = _of_timm(named)
    return named if _options(built).items() <= _options(model).items() and _shapes(built) == _shapes(model) else None


def _options(model: nn.Module) -> dict[tuple[str, str], str]:
    """The classes of all modules, and the options that they keep."""
    found = dict[tuple[str, str], str]()
    for name, module in model.named_modules():
        kept = {key: value for key, value in vars(module).items() if isinstance(value, _PLAIN) and key != "training"}
        found |= {(name, key): repr(value) for key, value in kept.items()} | {(name, ""): type(module).__qualname__}
    return found


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors but those of converted layers."""
    state = model.state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if ".gp." not in f".{name}"}


def _is_of_transformers(model: nn.Module) -> bool:
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


def _load_converted(path: Path, model: nn.Module | None, *, needs_heads: bool = True) -> nn.Module:
    """Read what :func:`_save_converted` wrote; without ``needs_heads``, the folder may hold no converted layer."""
    is_of_transformers = (path / "config.json").exists()
    if not is_of_transformers and (path / _WEIGHTS).exists():
        check_weights(path / _WEIGHTS)
    saved = _saved_heads(path)
    if needs_heads and not saved:
        raise ValueError(f"folder: expected safetensors of a converted model, got none in {path}")
    converted = structural_copy(_from_transformers(path, model) if is_of_transformers else _host(path, model))
    _put_saved(converted, saved)
    if not is_of_transformers:
        try:
            load_model(converted, str(path / _WEIGHTS))
        except RuntimeError:
            host, got = json.loads((path / _CONFIG).read_text(encoding="utf-8"))["host"], type(converted).__qualname__
            advice = "" if model is not None else ": pass model=, a network of that architecture"
            raise ValueError(
                f"model: expected the architecture that was saved ({host}), with tensors of its names and shapes, got "
                f"{'another' if got == host else 'a'} {got} {_differences(path, converted)}{advice}"
            ) from None
    return converted.eval()


def _differences(path: Path, model: nn.Module) -> str:
    """What is different in a model than in the saved one: a few tensors by name."""
    with safe_open(str(path / _WEIGHTS), "pt") as tensors:
        names = tensors.keys()
        saved = {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    both = own.keys() & saved.keys()
    others = {f"{name} {own[name]} in place of {saved[name]}" for name in both if own[name] != saved[name]}
    for words, names in (("with", others), ("without", saved.keys() - both), ("with", own.keys() - both)):
        if found := sorted(names):
            return f"{words} {first_of(found, _FEW)}"
    return "of the same tensors"


def _saved_heads(path: Path) -> dict[int, dict[str, Tensor]]:
    """Tensors of every converted layer, by the layer's number."""
    by_place: dict[str, dict[str, Tensor]] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(str(file), "pt") as tensors:
            names = tensors.keys()
            for each in names:
                place, _, name = each.rpartition(".")
                if f".{place}".endswith(".gp"):
                    by_place.setdefault(place, {})[name] = tensors.get_tensor(each)
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
        raise ValueError(
            f"model: expected the architecture that was saved, got {name}, which is no model of transformers: "
            "pass model="
        )
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
    if config.get("format_version") != _HOST_VERSION:
        raise ValueError(f"{_CONFIG}: expected format_version {_HOST_VERSION}, got {config.get('format_version')!r}")
    if model is None and not config["timm"]:
        raise ValueError(
            f"model: expected the architecture that was saved ({config['host']}), of which the folder has the weights "
            "only, got None: pass model=, such a network with any weights"
        )
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
