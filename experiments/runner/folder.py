"""A run's folder: what lies where, and whose it is."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from experiments.collapse import DIAGNOSTICS
from experiments.runner.experiment import Experiment, plain
from experiments.storage import write_json, write_text

__all__ = ["RunFolder"]

_WORDS = ("departures", "reduced")
_ASIDE = {"method": ("label",), "data": ("root", "cache", "download")}


class RunFolder:
    """Paths of a run, and the configuration that it belongs to.

    Args:
        path: the folder, `<out>/<data>/<method>/seed-<n>`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.summary = path / "config.yaml", path / "run.json"
        self.weights = path / "weights.safetensors"
        self.checkpoints, self.logs, self.predictions = path / "checkpoints", path / "logs", path / "predictions"
        self.diagnostics = path / DIAGNOSTICS

    @property
    def is_complete(self) -> bool:
        """Whether everything of the run is done."""
        return self.summary.exists()

    @property
    def _is_begun(self) -> bool:
        """Whether there is something of the configuration's own in the folder."""
        made = (self.checkpoints, self.weights, self.predictions, self.summary)
        return self.config.exists() and any(path.exists() for path in made)

    def claim(self, experiment: Experiment) -> None:
        """Write the configuration into a new folder, or check that it is the one that is there.

        Its words (label, departures, reductions) and the places of its data may be others: the run takes them over. So
        may everything where nothing was trained yet.

        Args:
            experiment: the configuration.

        Raises:
            ValueError: if the folder holds a run of another configuration; names what differs.
        """
        wanted = experiment.plain()
        if not self._is_begun:
            write_text(self.config, yaml.safe_dump(wanted, sort_keys=False))
            return
        there = _completed(self.plain_config(), Experiment)
        differences = _differences(_decisive(there), _decisive(wanted))
        if differences:
            raise ValueError(
                f"out: {self.path} holds a run of another configuration ({'; '.join(differences)}). "
                "Choose another --out, or remove that folder"
            )
        if there != wanted:
            self._say(there, wanted)

    def _say(self, there: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Take over what a row says in words today: a departure may be found out after a run."""
        write_text(self.config, yaml.safe_dump(wanted, sort_keys=False))
        if self.is_complete:
            summary = self.read_summary()
            before = {word for name in _WORDS for word in there.get(name) or []}
            own = [word for name in _WORDS for word in wanted[name]]
            rest = [word for word in summary["reduced"] if word not in before and word not in own]
            write_json(self.summary, summary | {"reduced": [*own, *rest], "label": wanted["method"]["label"]})

    def plain_config(self) -> dict[str, Any]:
        """Return the resolved configuration, of plain values.

        Raises:
            ValueError: if there is none.
        """
        if not self.config.exists():
            raise ValueError(
                f"run: expected the folder of a run (<data>/<method>/seed-<n>), got {self.path} without "
                f"{self.config.name}"
            )
        return yaml.safe_load(self.config.read_text(encoding="utf-8"))

    def complete(self, summary: dict[str, Any]) -> None:
        """Mark the run as complete.

        Args:
            summary: what `run.json` shall hold.
        """
        write_json(self.summary, summary)

    def read_summary(self) -> dict[str, Any]:
        """Return what `run.json` holds.

        Raises:
            ValueError: if the run is not complete.
        """
        if not self.is_complete:
            raise ValueError(
                f"run: expected a complete run (<data>/<method>/seed-<n>), got {self.path} without {self.summary.name}"
            )
        return json.loads(self.summary.read_text(encoding="utf-8"))


def _completed(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Add the settings that came after a run, at the defaults with which it was made."""
    types = get_type_hints(kind)
    defaults: dict[str, Any] = {}
    for setting in dataclasses.fields(kind):
        if dataclasses.is_dataclass(types[setting.name]):
            defaults[setting.name] = _completed(values.get(setting.name, {}), types[setting.name])
        elif setting.name in values:
            defaults[setting.name] = values[setting.name]
        elif setting.default is not dataclasses.MISSING:
            defaults[setting.name] = plain(setting.default)
        elif setting.default_factory is not dataclasses.MISSING:
            defaults[setting.name] = setting.default_factory()
    return values | defaults


def _decisive(plain: dict[str, Any]) -> dict[str, Any]:
    """What decides the numbers of a run: not its words, nor where its data lie."""
    parts = {name: plain.get(name) or {} for name in _ASIDE}
    kept = {name: {key: part[key] for key in part if key not in _ASIDE[name]} for name, part in parts.items()}
    return {key: value for key, value in plain.items() if key not in _WORDS} | kept


def _differences(there: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> list[str]:
    """Name the values in which two configurations differ."""
    found = []
    for key in sorted({*there, *wanted}):
        one, other = there.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found += _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            found.append(f"{prefix}{key}: {one!r} there, {other!r} asked for")
    return found
