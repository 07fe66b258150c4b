"""A run: its folder, its configuration, and its record once it is complete."""

import contextlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from experiments.atomic_files import read_json, read_yaml, write_json, write_text
from experiments.configuration import RunConfig
from experiments.runs.identity import PLACES, PREDICTED, SPLIT, WORDS, changed, changes
from experiments.runs.parsing import config_of
from experiments.runs.rows import is_row
from experiments.saved_predictions import Predictions, load_predictions

if TYPE_CHECKING:
    from torch import nn

    from experiments.data.examples import DataDescription, DataSplits

__all__ = ["Run", "find_runs", "needed_runs"]

_FIRST = ("test", "validation")
_DEPTH = 4  # levels in a folder of runs: data, method, seed, and the folder itself


class Run:
    """A run in its folder, `<out>/<data>/<method>/seed-<n>`; files are read on access."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.config_file, self.record_file = self.folder / "config.yaml", self.folder / "run.json"
        self.weights, self.diagnostics = self.folder / "weights.safetensors", self.folder / "diagnostics.npz"
        self.checkpoints = self.folder / "checkpoints"
        self._predictions, self._data = self.folder / "predictions", self.folder / "data.json"

    @property
    def out(self) -> Path:
        """The folder of all runs."""
        return self.folder.resolve().parents[2]

    @property
    def setting(self) -> str:
        """The first part of its name: data and sizes."""
        return self.folder.resolve().parts[-3]

    @property
    def method(self) -> str:
        """The second part of its name."""
        return self.folder.resolve().parts[-2]

    @property
    def name(self) -> str:
        """`<data>/<method>`."""
        return f"{self.setting}/{self.method}"

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.folder.resolve().name.removeprefix("seed-"))

    @property
    def label(self) -> str:
        """The name of its method in tables and pictures."""
        return self.config.method.label

    @property
    def config(self) -> RunConfig:
        """Its configuration."""
        if not self.config_file.exists():
            raise ValueError(f"run: expected a run (<data>/<method>/seed-<n>), got {self.folder} without config.yaml")
        status = self.config_file.stat()
        return _read_config(self.config_file, (status.st_ino, status.st_mtime_ns, status.st_size))

    @property
    def is_complete(self) -> bool:
        """Whether everything of the run is done."""
        return self.record_file.exists()

    @property
    def record(self) -> dict[str, Any]:
        """Content of `run.json`."""
        if not self.is_complete:
            raise ValueError(f"run: expected a complete run (<data>/<method>/seed-<n>), got {self.folder}")
        record = read_json(self.record_file)
        if "deviations" not in record:
            raise ValueError(f"{self.record_file}: expected what a run of this version writes, got something else")
        return record

    @property
    def sources(self) -> dict[str, str]:
        """Descriptions of the predicted inputs, by the name of their set."""
        return dict(self.record.get("sources") or {})

    @property
    def deviations(self) -> list[str]:
        """Deviations from the paper, in words: of the row, of overridden values, of the data, of initial weights."""
        config = self.config
        words = [*config.deviations, *config.reduced, *changes(config), *self.record["deviations"]]
        return list(dict.fromkeys(words))

    @property
    def description(self) -> "DataDescription":
        """Description of the data."""
        from experiments.data.examples import DataDescription

        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in self.record["data"].items()
        }
        return DataDescription(**values)

    @property
    def predicted(self) -> list[str]:
        """Names of the input sets that were predicted, test and validation first."""
        names = {path.stem for path in self._predictions.glob("[!.]*.npz")}
        return [name for name in _FIRST if name in names] + sorted(names - set(_FIRST))

    def prediction_file(self, name: str) -> Path:
        """Return the path of the predictions on an input set."""
        return self._predictions / f"{name}.npz"

    def predictions(self, name: str) -> Predictions:
        """Read the predictions on an input set."""
        return load_predictions(self.prediction_file(name))

    def model(self) -> "nn.Module":
        """Build the model with its weights, in eval mode, on a GPU if there is one."""
        import torch

        from cgp.weights import load_weights
        from experiments.methods.build import network

        if not self.weights.exists():
            bases = self.record.get("derived_from")
            hint = f"; predict with {bases[0]}" if bases else ""
            raise ValueError(f"run: expected a trained model, got {self.folder} without weights{hint}")
        model = network(self.config, self.description)
        load_weights(model, self.weights)
        return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    @contextlib.contextmanager
    def locked(self, wait: bool) -> Iterator[None]:
        """Context with a lock on the folder, which is created."""
        from filelock import FileLock, Timeout

        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=-1 if wait else 0):
                yield
        except Timeout as error:
            raise ValueError(f"out: {self.folder} is being written by another process") from error

    def check(self, config: RunConfig) -> None:
        """Check that the folder is empty or holds a run of this configuration; nothing is written."""
        if not self._is_begun:
            return
        differing = changed(self.config, config, but=(*WORDS, *PLACES, *PREDICTED))
        words = "; ".join(
            f"{key}: {there!r} there, {wanted!r} asked for" for key, (there, wanted) in sorted(differing.items())
        )
        if words:
            raise ValueError(
                f"out: {self.folder} holds a run of another configuration ({words}). Choose another --out, or remove "
                "that folder"
            )

    def claim(self, config: RunConfig) -> None:
        """Write the configuration; description, location of the data and predictions may differ from before."""
        self.check(config)
        if not self._is_begun:
            self._data.unlink(missing_ok=True)  # nothing has been learned from them
        text = yaml.safe_dump(config.plain(), sort_keys=False)
        if not self.config_file.exists() or self.config_file.read_text(encoding="utf-8", errors="replace") != text:
            write_text(self.config_file, text)

    def check_data(self, splits: "DataSplits") -> None:
        """Check that the data are those of the run, in any location; record them if there is no record."""
        parts = {name: len(getattr(splits, name)) for name in ("train", "validation", "test")}
        current: dict[str, Any] = {"examples": parts, "fingerprint": splits.fingerprint()}
        if not self._data.exists():
            write_json(self._data, current)
            return
        there = read_json(self._data)
        if there != current:
            sizes = [
                ", ".join(f"{size:,} {name}" for name, size in data["examples"].items()) for data in (there, current)
            ]
            raise ValueError(
                f"data: expected the examples of {self.folder} ({sizes[0]}), got others ({sizes[1]}). Choose another "
                "--name or --out, or remove that folder"
            )

    def is_moved(self, config: RunConfig) -> bool:
        """Whether a configuration has another location of the data."""
        return bool(changed(self.config, config, only=PLACES))

    def lacks(self, config: RunConfig) -> bool:
        """Whether a configuration requests other predictions than the run's."""
        return self._is_begun and bool(changed(self.config, config, only=PREDICTED))

    def complete(self, record: dict[str, Any]) -> None:
        """Mark the run as complete."""
        write_json(self.record_file, record)

    @property
    def _is_begun(self) -> bool:
        """Whether the folder holds results of the configuration."""
        made = (self.checkpoints, self.weights, self._predictions, self.record_file)
        return self.config_file.exists() and any(path.exists() for path in made)


@lru_cache
def _read_config(path: Path, version: tuple[int, ...]) -> RunConfig:
    """Read and check a configuration, cached by the version of its file."""
    values = read_yaml(path)
    try:
        return config_of(values)
    except ValueError as error:
        raise ValueError(
            f"{path}: expected the configuration of a run of this version, got another ({error}); choose another "
            "--out, or remove that folder"
        ) from error


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Find the complete runs in folders, by name and seed."""
    runs: dict[Path, Run] = {}
    for folder in folders:
        here = [path for depth in range(_DEPTH) for path in _complete(Path(folder), depth)]
        if not here:
            raise ValueError(f"runs: expected a folder with complete runs, got {folder}, {_what_lies_in(Path(folder))}")
        runs |= {path.resolve(): Run(path) for path in here}
    return sorted(runs.values(), key=lambda run: (run.name, run.seed))


def _complete(folder: Path, depth: int) -> list[Path]:
    """Folders of complete runs so many levels below."""
    records = folder.glob("*/" * depth + "run.json")
    return [path.parent for path in records if path.with_name("config.yaml").exists()]


def _what_lies_in(folder: Path) -> str:
    """Where there may be runs instead."""
    if not folder.is_dir():
        return "which is not there; `demo`, `fit` and `sweep` make runs"
    below = sorted({path.relative_to(folder).parts[0] for path in _complete(folder, _DEPTH)})
    return f"which holds some in {' and in '.join(str(folder / name) for name in below)}" if below else "which has none"


def needed_runs(config: RunConfig, out: Path) -> list[Run]:
    """Return the runs that a run starts from or is derived from."""
    runs = []
    for name, seed in config.needs():
        run = Run(out / name / f"seed-{seed}")
        if not run.is_complete:
            row = f"--config {name}" if is_row(name) else f"--config .../{name.split('/')[1]} --name {name}"
            raise ValueError(
                f"{config.name}: expected a complete run in {run.folder}; make it first, by the same command with "
                f"{row} --seed {seed} (a sweep makes what its rows need)"
            )
        _check_data(config, run)
        runs.append(run)
    return runs


def _check_data(config: RunConfig, run: Run) -> None:
    """Raise if a run used other examples: its test examples may be among the training examples here."""
    differing = changed(run.config, config, only=SPLIT)
    words = "; ".join(f"{key} {there} there, {here} here" for key, (there, here) in differing.items())
    if words:
        raise ValueError(f"{config.name}: expected the data of {run.folder}, got others ({words})")
    if run.is_moved(config):
        from experiments.data import load

        run.check_data(load(config.data, run.config.seed))
