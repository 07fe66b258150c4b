"""Folders of runs: `<root>/<data>/<method>/seed-<n>/`, with a record, a configuration and predictions."""

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from experiments.reports.papers.names import kind_name, plain
from experiments.storage import read_arrays

__all__ = ["Predictions", "Run", "find_runs", "logits_shape", "read_predictions"]

_SEED = re.compile(r"seed-(\d+)")
_CORRUPTED = re.compile(r"corrupted-(.+)-(\d+)")


class Predictions(NamedTuple):
    """Predictions of one input set.

    Attributes:
        logits: (S, N, C), one for each draw.
        labels: (N,), or nothing for OOD inputs.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64] | None


class Run(NamedTuple):
    """A complete run.

    Attributes:
        folder: where it lies.
        data: name of its data folder.
        method: name of its method folder.
        seed: its number.
        record: what `run.json` holds.
        config: what `config.yaml` holds.
        files: predictions by the plain name of their input set.
    """

    folder: Path
    data: str
    method: str
    seed: int
    record: Mapping[str, Any]
    config: Mapping[str, Any]
    files: Mapping[str, Path]

    def file(self, name: str) -> Path | None:
        """Predictions of an input set, whatever its case, hyphens and underscores; nothing if there are none."""
        return self.files.get(plain(name))

    def corrupted(self) -> dict[str, dict[int, Path]]:
        """Predictions on corrupted inputs by kind and severity, both ascending in severity."""
        found: dict[str, dict[int, Path]] = {}
        for path in self.files.values():
            match = _CORRUPTED.fullmatch(path.stem)
            if match:
                found.setdefault(kind_name(match[1]), {})[int(match[2])] = path
        return {kind: dict(sorted(files.items())) for kind, files in found.items()}


def find_runs(root: Path) -> list[Run]:
    """Complete runs beneath a folder, by data, method and seed. A run without its `run.json` is not complete.

    Args:
        root: the folder of all runs.

    Raises:
        ValueError: If it is no folder, or a record cannot be read.
    """
    if not root.is_dir():
        raise ValueError(f"runs: expected a folder of runs (<data>/<method>/seed-<n>/), got {root}")
    records = [path for path in root.glob("*/*/seed-*/run.json") if _SEED.fullmatch(path.parent.name)]
    return sorted((_run(path) for path in records), key=lambda run: (run.data, run.method, run.seed))


def _run(record: Path) -> Run:
    folder = record.parent
    seed = int(_SEED.fullmatch(folder.name)[1])  # type: ignore[index]
    config = folder / "config.yaml"
    return Run(
        folder,
        folder.parent.parent.name,
        folder.parent.name,
        seed,
        _mapping(record, json.loads),
        _mapping(config, yaml.safe_load) if config.exists() else {},
        {plain(path.stem): path for path in sorted((folder / "predictions").glob("*.npz"))},
    )


def _mapping(path: Path, parse: Any) -> Mapping[str, Any]:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected a readable record of a run, got {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a mapping, got {type(content).__name__}")
    return content


def read_predictions(paths: Sequence[Path]) -> Predictions:
    """Read files of predictions and join them to one set.

    Args:
        paths: at least one file; all have as many draws and classes.

    Returns:
        Logits and, where all files have them, labels.

    Raises:
        ValueError: If a file is damaged or does not hold logits (S, N, C), or files do not fit each other.
    """
    parts = [_read(path) for path in paths]
    shapes = {(part.logits.shape[0], part.logits.shape[2]) for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"predictions: expected as many draws and classes in all files, got {sorted(shapes)} in {paths[0].parent}"
        )
    labels = [part.labels for part in parts if part.labels is not None]
    joined = np.concatenate([part.logits for part in parts], axis=1)
    return Predictions(joined, np.concatenate(labels) if len(labels) == len(parts) else None)


def _read(path: Path) -> Predictions:
    content = read_arrays(path, "logits", "labels")
    logits, labels = content.get("logits"), content.get("labels")
    if logits is None or logits.ndim != 3:
        raise ValueError(
            f"{path}: expected logits (draws, samples, classes), got {None if logits is None else logits.shape}"
        )
    if labels is not None and labels.shape != logits.shape[1:2]:
        raise ValueError(f"{path}: expected {logits.shape[1]} labels, got shape {labels.shape}")
    return Predictions(logits, labels)


def logits_shape(path: Path) -> tuple[int, int, int]:
    """Draws, samples and classes of a file of predictions, from its header alone.

    Args:
        path: the file.

    Raises:
        ValueError: If the file is damaged or holds no logits (S, N, C).
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open("logits.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            draws, samples, classes = read(file)[0]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: expected a file of logits (draws, samples, classes), got {error}") from error
    return draws, samples, classes
