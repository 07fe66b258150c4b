"""Rows of the tables by name: `<data>/<method>[-variant]`, from `configs/data`, `configs/method` and variants."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml

from experiments.atomic_files import read_yaml
from experiments.registry import BLOCKS

__all__ = ["CONFIGS", "composed", "derivation", "described", "is_row", "label_of", "merged", "row_names"]

CONFIGS = Path(__file__).parents[1] / "configs"
_LABELS = {"ensemble": "Ensemble of {}", "temperature": "{}, temperature"}
_OPTIONS: Mapping[str, dict[str, Any]] = {"ensemble": {"members": 5}, "temperature": {}}
_OF_ROWS = ("extends", "rows", "variants", "where")


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values overridden by others; `key+` adds to a list, `key=` replaces the whole entry.

    Example:
        >>> merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d+": [2]})
        {'a': {'b': 3, 'c': 2}, 'd': [1, 2]}
        >>> merged({"a": {"b": 1, "c": 2}}, {"a=": {"b": 3}})
        {'a': {'b': 3}}
    """
    result = dict(values)
    for key, value in over.items():
        if key.endswith("+"):
            result[key[:-1]] = [*result.get(key[:-1], []), *value]
        elif key.endswith("="):
            result[key[:-1]] = value
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def composed(configs: Sequence[str]) -> dict[str, Any]:
    """Merge rows, overrides of rows ("reduced/cola") and other files, in this order."""
    values: dict[str, Any] = {}
    for config in configs:
        values = merged(values, _row(config) if is_row(config) else _file(config))
    return values


def row_names(pattern: str = "*/*") -> list[str]:
    """List the rows of a pattern; the name of a data set means its rows without variants and ensembles.

    Example:
        >>> row_names("cola/soft*"), row_names("cola/scgpt-inducing-3")
        (['cola/softmax'], ['cola/scgpt-inducing-3'])
        >>> len(row_names("cola")) < len(row_names("cola/*"))
        True
    """
    parts = ("rows", "variants") if "/" in pattern else ("rows",)
    names = [f"{data}/{row}" for data in _settings() for part in parts for row in _setting(data).get(part, [])]
    names += [pattern] if is_row(pattern) and pattern not in names else []
    matching = sorted(name for name in names if fnmatch(name, pattern if "/" in pattern else f"{pattern}/*"))
    if not matching:
        data, _, row = pattern.partition("/")  # of a known data set the rows are compared, not the name before them
        rows = [name.removeprefix(f"{data}/") for name in names if name.startswith(f"{data}/")]
        near = [f"{data}/{each}" for each in get_close_matches(row, rows, n=1)]
        near = near if rows else get_close_matches(pattern, [*names, *_settings()], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        hint = hint or (f"; `python -m experiments list --rows {data}` shows those of {data}" if rows else "")
        raise ValueError(f"rows: expected rows such as cola, cola/softmax or '*/sgpa', got {pattern!r}{hint}")
    return matching


def is_row(name: str) -> bool:
    """Whether a name is that of a row, a variant or a derived row.

    Example:
        >>> is_row("cola/softmax"), is_row("cola/ensemble_sgpa-inducing-3"), is_row("reduced/imdb")
        (True, True, False)
    """
    data, _, method = name.partition("/")
    return data in _settings() and _layers(data, method) is not None


def derivation(method: str) -> tuple[str | None, str]:
    """Return how a method is derived from another, and the name of the other.

    Example:
        >>> derivation("ensemble_kep_svgp"), derivation("kep_svgp"), derivation("temperature")
        (('ensemble', 'kep_svgp'), (None, 'kep_svgp'), (None, 'temperature'))
    """
    kind, separator, base = method.partition("_")
    return (kind, base) if separator and kind in _LABELS else (None, method)


def label_of(method: str) -> str:
    """Return the name of a method in tables and pictures."""
    kind, base = derivation(method)
    if kind is not None:
        return _LABELS[kind].format(label_of(base))
    name, _, variant = method.partition("-")
    label = _methods()[name]["method"]["label"] if name in _methods() else name
    return f"{label}, {variant.replace('-', ' ')}" if variant else label


def described(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the methods of rows, without variants: name, label, and block with its options, if not softmax changed.

    Example:
        >>> list(described(["digits/kernel_asymmetric", "cola/temperature_kernel_asymmetric"]))
        [('kernel_asymmetric', 'Kernel (asymmetric)', 'KernelAttention(normalized=False)')]
    """
    methods = {derivation(name.partition("/")[2])[1].partition("-")[0] for name in names}
    for name in sorted(methods & _methods().keys()):
        values = _methods()[name]["method"]
        options = ", ".join(f"{option}={value!r}" for option, value in values.get("options", {}).items())
        block = f"{BLOCKS[values['attention']].class_name}({options})" if "attention" in values else ""
        yield name, values["label"], f"{block}, from runs of {values['init_from']}" if "init_from" in values else block


def _row(name: str) -> dict[str, Any]:
    data, _, method = name.partition("/")
    values = reduce(merged, _layers(data, method) or [], _setting(data))
    return {key: value for key, value in values.items() if key not in _OF_ROWS} | {"name": name}


def _layers(data: str, method: str) -> list[Mapping[str, Any]] | None:
    """The values by which a method overrides those of a data set; None if there is no such method."""
    label = {"method": {"label": label_of(method)}}
    kind, base = derivation(method)
    if kind is not None:
        below = _layers(data, base)
        derived = {"method": {"kind": kind, "base": base, "options=": _OPTIONS[kind]}}
        return None if below is None else [*below, derived, label]
    name, _, variant = method.partition("-")
    values, changes = _methods().get(name), _variant(variant)
    if values is None or changes is None:
        return None
    places = values.get("where", {}).items()
    here = [addition for pattern, addition in places if any(fnmatch(setting, pattern) for setting in _lineage(data))]
    return [values, *here, changes, label]


def _variant(name: str) -> dict[str, Any] | None:
    """The values of a variant, with the numbers of its name; None if there is no such variant."""
    numbers = [part for part in name.split("-") if part.replace(".", "", 1).isdigit()]
    pattern = "-".join("{}" if part in numbers else part for part in name.split("-"))
    values = _read(CONFIGS / "variants.yaml").get(pattern) if name else {}
    return None if values is None else _filled(values, numbers)


def _filled(values: Any, numbers: Sequence[str]) -> Any:
    if isinstance(values, Mapping):
        return {key: _filled(value, numbers) for key, value in values.items()}
    return yaml.safe_load(values.format(*numbers)) if isinstance(values, str) else values


def _lineage(data: str) -> list[str]:
    """The setting of a data set, and the settings that it extends."""
    parent = _read(CONFIGS / "data" / f"{data}.yaml").get("extends")
    return [data, *(_lineage(parent) if parent else [])]


def _setting(data: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in reversed(_lineage(data)):
        values = merged(values, _read(CONFIGS / "data" / f"{name}.yaml"))
    return values


def _file(config: str) -> dict[str, Any]:
    """Overrides of rows: a file of `configs`, or another file."""
    path = Path(config) if Path(config).suffix == ".yaml" else CONFIGS / f"{config}.yaml"
    if not path.is_file():
        near = get_close_matches(config, row_names(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m experiments list` shows them"
        raise ValueError(f"config: expected a file or a row ({hint}), got {config!r}")
    return read_yaml(path)


@cache
def _settings() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in (CONFIGS / "data").glob("*.yaml")))


@cache
def _methods() -> Mapping[str, Any]:
    return {file.stem: _read(file) for file in (CONFIGS / "method").glob("*.yaml")}


_read = cache(read_yaml)
