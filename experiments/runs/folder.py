"""A run's folder: what lies where, and whose it is."""

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from experiments.evaluation.diagnostics import DIAGNOSTICS
from experiments.data.examples import DataSplits
from experiments.runs.experiment import Experiment, as_plain
from experiments.storage import read_json, write_json, write_text

__all__ = ["RunFolder"]

_WORDS = ("deviations", "reduced")
_PLACES = ("root", "folder")
_ASIDE = {"method": ("label",), "data": (*_PLACES, "cache", "download")}
_PREDICTED = {
    "data": ("ood", "limit_ood"),
    "corruptions": ("kinds", "severities", "limit", "source"),
    "evaluation": ("draws", "strengths", "batch_size", "full"),
}
"""What decides which inputs are predicted, and how often, by a model that may be trained long since."""


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
        self.diagnostics, self.data = path / DIAGNOSTICS, path / "data.json"

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

        Its words (label, deviations, reductions), the places of its data and what is predicted beside the test set may
        be others: the run takes them over. So may everything where nothing was trained yet.

        Args:
            experiment: the configuration.

        Raises:
            ValueError: if the folder holds a run of another configuration; names what differs.
        """
        wanted = experiment.plain()
        if not self._is_begun:
            self.data.unlink(missing_ok=True)  # nothing has been learned from them
            write_text(self.config, yaml.safe_dump(wanted, sort_keys=False))
            return
        self.check(experiment)
        there = self._there()
        if there != wanted:
            self._say(there, wanted)

    def check(self, experiment: Experiment) -> None:
        """Check that the folder is free for a configuration, or holds a run of it; nothing is written.

        Args:
            experiment: the configuration.

        Raises:
            ValueError: if the folder holds a run of another configuration; names what differs.
        """
        if not self._is_begun:
            return
        differences = _differences(_decisive(self._there()), _decisive(experiment.plain()))
        if differences:
            raise ValueError(
                f"out: {self.path} holds a run of another configuration ({'; '.join(differences)}). "
                "Choose another --out, or remove that folder"
            )

    def check_data(self, splits: DataSplits) -> None:
        """Check that data are those of the run, wherever they lie now; note which they are where nobody did.

        Args:
            splits: what was read.

        Raises:
            ValueError: if the run has seen others.
        """
        parts = {name: len(getattr(splits, name)) for name in ("train", "validation", "test")}
        found = {"examples": parts, "fingerprint": splits.fingerprint()}
        if not self.data.exists():
            write_json(self.data, found)
            return
        there = read_json(self.data)
        if there != found:
            sizes = [", ".join(f"{size:,} {name}" for name, size in one["examples"].items()) for one in (there, found)]
            raise ValueError(
                f"data: expected the examples of {self.path} ({sizes[0]}), got others ({sizes[1]}). Choose another "
                "--name or --out, or remove that folder"
            )

    def is_moved(self, experiment: Experiment) -> bool:
        """Say whether a configuration has its data elsewhere than the run that is there.

        Args:
            experiment: the configuration.
        """
        there, wanted = self._there()["data"], experiment.plain()["data"]
        return any(there[name] != wanted[name] for name in _PLACES)

    def lacks(self, experiment: Experiment) -> bool:
        """Say whether a configuration asks for other predictions than that of the run that is there.

        Args:
            experiment: the configuration.
        """
        return self._is_begun and _predicted(self._there()) != _predicted(experiment.plain())

    def _there(self) -> dict[str, Any]:
        """The configuration of the run, with the settings that came after it."""
        return _completed(self.plain_config(), Experiment)

    def _say(self, there: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Take over what a row says in words today: a deviation may be found out after a run."""
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
        found = read_json(self.summary)
        if "label" not in found:
            raise ValueError(f"{self.summary}: expected what a run of a row writes, got something else")
        return found


def _completed(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Add the settings that came after a run, at the defaults with which it was made.

    Settings that are no more stay, to be named as differences: the parser would stop at them.
    """
    types = get_type_hints(kind)
    defaults: dict[str, Any] = {}
    for setting in dataclasses.fields(kind):
        if dataclasses.is_dataclass(types[setting.name]):
            defaults[setting.name] = _completed(values.get(setting.name, {}), types[setting.name])
        elif setting.name in values:
            defaults[setting.name] = values[setting.name]
        elif setting.default is not dataclasses.MISSING:
            defaults[setting.name] = as_plain(setting.default)
        elif setting.default_factory is not dataclasses.MISSING:
            defaults[setting.name] = setting.default_factory()
    return values | defaults


def _decisive(plain: dict[str, Any]) -> dict[str, Any]:
    """What decides the weights of a run: not its words, nor where its data lie, nor what else is predicted."""
    kept = {name: _without(plain.get(name), _ASIDE[name]) for name in _ASIDE}
    data = _without(kept["data"], _PREDICTED["data"])
    data["corruptions"] = _without(data.get("corruptions"), _PREDICTED["corruptions"])
    rest = {key: value for key, value in plain.items() if key not in (*_WORDS, "evaluation")}
    return rest | kept | {"data": data}


def _predicted(plain: dict[str, Any]) -> list[Any]:
    """What decides which inputs are predicted, and how often."""
    data = plain["data"]
    parts = {"data": data, "corruptions": data["corruptions"], "evaluation": plain["evaluation"]}
    return [parts[name].get(key) for name, keys in _PREDICTED.items() for key in keys]


def _without(part: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in (part or {}).items() if key not in names}


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
