"""Where the rows lie: files, settings that share the rows of another folder, variants by their names."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from experiments.runs.derived import derivation, derived_label
from experiments.runs.experiment import CONFIGS

__all__ = ["config_arguments", "config_files", "is_row", "row_names"]

_COMMON = "common.yaml"
_NOT_ROWS = {"reduced"}
_DERIVED_OPTIONS = {"ensemble": '{"members": 5}', "temperature": "{}"}
_NUMBER = r"(\d+(?:\.\d+)?)"


def config_arguments(config: str) -> list[str]:
    """Return the command line that a name stands for.

    Args:
        config: a row ("cola/softmax"), a variant of one ("cifar10/sgpa-inducing-8"), an ensemble of one
            ("cola/ensemble_softmax"), a temperature for one ("cola/temperature_sgpa"), an override
            ("reduced/cifar10"), or the path of a file.

    Raises:
        ValueError: if there is no such row or file.

    Example:
        >>> config_arguments("cifar10/sgpa-inducing-8")[4:]
        ['--method.options.num_inducing=8', '--method.label=SGPA, inducing 8', '--name', 'cifar10/sgpa-inducing-8']
    """
    named = ["--name", config] if is_row(config) else []
    return [*_arguments(config), *named]


def config_files(config: str) -> list[Path]:
    """Find the files that a name stands for, in the order in which they are merged.

    Args:
        config: a row ("cola/softmax"), an override ("reduced/cifar10"), or the path of a file. What the rows of a
            folder share (`common.yaml`) comes before a row of it. A folder without rows, such as `cola-official`, has
            those of the folder that its name begins with.

    Raises:
        ValueError: if there is no such row or file, or it holds no settings.

    Example:
        >>> [file.name for file in config_files("cola/softmax")]
        ['common.yaml', 'softmax.yaml']
        >>> ["/".join(file.parts[-2:]) for file in config_files("cola-official/softmax")]
        ['cola/common.yaml', 'cola-official/common.yaml', 'cola/softmax.yaml']
    """
    path = _file(config)
    if not path.is_file():
        near = get_close_matches(config, row_names(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m experiments list` shows them"
        raise ValueError(f"config: expected a file or a row ({hint}), got {config!r}")
    _check_settings(path)
    own = path.parent if path == Path(config) else (CONFIGS / config).parent
    common = [folder / _COMMON for folder in dict.fromkeys([path.parent, own])]
    return [*(file for file in common if file.is_file() and file != path), path]


def _check_settings(path: Path) -> None:
    """Fail with the name of the file where it holds no settings: the parser would not name it."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"config: {path} cannot be read ({error}). Expected YAML") from error
    if not isinstance(found, dict):
        raise ValueError(f"config: expected settings by name in {path}, got {found!r}")


def row_names(pattern: str = "*/*") -> list[str]:
    """List the rows.

    Args:
        pattern: of a data set ("cola"), which means its rows without variants and ensembles, or of rows ("cola/*",
            "*/sgpa"); the name of any variant or ensemble means itself.

    Raises:
        ValueError: if none fits.

    Example:
        >>> row_names("cola/soft*"), row_names("cola/scgpt-inducing-3")
        (['cola/softmax'], ['cola/scgpt-inducing-3'])
        >>> len(row_names("cola")) < len(row_names("cola/*"))
        True
    """
    names = _written()
    if "/" in pattern:
        names |= {f"{data}/{method}" for data, listed in _variants()["listed"].items() for method in listed}
        names |= {pattern} if is_row(pattern) else set()
    found = sorted(name for name in names if fnmatch(name, pattern if "/" in pattern else f"{pattern}/*"))
    if not found:
        near = get_close_matches(pattern, [*names, *(name.partition("/")[0] for name in names)], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"rows: expected rows such as cola, cola/softmax or '*/sgpa', got {pattern!r}{hint}")
    return found


def is_row(config: str) -> bool:
    """Say whether a name is that of a row, a variant or a derived row; overrides and files are none.

    Args:
        config: the name.

    Example:
        >>> is_row("cola/softmax"), is_row("cola/ensemble_sgpa-inducing-3"), is_row("reduced/imdb")
        (True, True, False)
    """
    folder, _, method = config.rpartition("/")
    # An absolute folder joined to that of the rows would be itself.
    if Path(config).is_absolute() or folder in {"", *_NOT_ROWS} or method == Path(_COMMON).stem:
        return False
    if not (CONFIGS / folder).is_dir():
        return False
    _, base = _changes(method)
    return _file(config).is_file() or (base is not None and is_row(f"{folder}/{base}"))


def _written() -> set[str]:
    """The rows that have a file, and those of the settings."""
    names = {f"{file.parent.name}/{file.stem}" for file in _rows(CONFIGS.iterdir())}
    for setting, folder in _settings().items():
        names |= {f"{setting}/{file.stem}" for file in _rows([folder])}
    return names


def _arguments(config: str) -> list[str]:
    """The files of a row, and what makes a variant of it or a row derived from it."""
    folder, _, method = config.rpartition("/")
    values, base = _changes(method)
    if _file(config).is_file() or base is None or not is_row(f"{folder}/{base}"):
        return [part for file in config_files(config) for part in ("--config", str(file))]
    changed = [f"--{key}={value}" for key, value in (values | {"method.label": _label(config)}).items()]
    return [*_arguments(f"{folder}/{base}"), *changed]


def _changes(method: str) -> tuple[dict[str, str], str | None]:
    """The values of a variant or a derived row, and the method that has them; without, no method."""
    kind, derived_from = derivation(method)
    if kind is not None:
        options = _DERIVED_OPTIONS[kind]
        return {"method.kind": kind, "method.options": options, "method.base": derived_from}, derived_from
    base, _, variant = method.partition("-")
    for pattern, values in _variants()["variants"].items():
        numbers = re.fullmatch(re.escape(pattern).replace(r"\{\}", _NUMBER), variant)
        if numbers:
            return {key: value.format(*numbers.groups()) for key, value in values.items()}, base
    return {}, None


def _label(config: str) -> str:
    folder, _, method = config.rpartition("/")
    if _file(config).is_file():
        return yaml.safe_load(_file(config).read_text(encoding="utf-8"))["method"]["label"]
    kind, derived_from = derivation(method)
    if kind is not None:
        return derived_label(kind, _label(f"{folder}/{derived_from}"))
    base, _, variant = method.partition("-")
    return f"{_label(f'{folder}/{base}')}, {variant.replace('-', ' ')}"


def _file(config: str) -> Path:
    """The file of a row or an override, or the path itself."""
    if Path(config).suffix == ".yaml":
        return Path(config)
    folder, _, method = config.rpartition("/")
    return _settings().get(folder, CONFIGS / folder) / f"{method}.yaml"


def _rows(folders: Iterable[Path]) -> list[Path]:
    """The files of rows in folders."""
    inside = [file for folder in folders if folder.name not in _NOT_ROWS for file in folder.glob("*.yaml")]
    return [file for file in inside if file.name != _COMMON]


def _settings() -> dict[str, Path]:
    """The folders without rows, with the folder whose rows they have."""
    lone = [file.parent for file in CONFIGS.glob(f"*/{_COMMON}") if not _rows([file.parent])]
    return {folder.name: CONFIGS / folder.name.rpartition("-")[0] for folder in lone}


@cache
def _variants() -> Mapping[str, Any]:
    return yaml.safe_load((CONFIGS / "variants.yaml").read_text(encoding="utf-8"))
