"""Runs as the reports see them: `experiments.runs.Run` without a whole configuration."""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from experiments.runs.prediction import Predictions, load_predictions
from experiments.storage import read_json

__all__ = ["Run", "find_runs"]


class _Config:
    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def plain(self) -> dict[str, Any]:
        return self.content


class Run:
    """A run in its folder `<setting>/<method>/seed-<n>`."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.seed = int(self.folder.name.removeprefix("seed-"))
        self.method, self.setting = self.folder.parent.name, self.folder.parent.parent.name
        self.name = f"{self.setting}/{self.method}"
        self.diagnostics = self.folder / "diagnostics.npz"

    @cached_property
    def record(self) -> dict[str, Any]:
        return read_json(self.folder / "run.json")

    @cached_property
    def config(self) -> _Config:
        return _Config(yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8")) or {})

    @property
    def label(self) -> str:
        return self.record.get("label", self.method)

    @property
    def deviations(self) -> list[str]:
        return list(self.record.get("deviations") or [])

    @property
    def sources(self) -> dict[str, str]:
        return dict(self.record.get("sources") or {})

    @cached_property
    def predicted(self) -> list[str]:
        names = {path.stem for path in (self.folder / "predictions").glob("*.npz")}
        return [name for name in ("test", "validation") if name in names] + sorted(names - {"test", "validation"})

    def predictions(self, name: str) -> Predictions:
        return load_predictions(self.folder / "predictions" / f"{name}.npz")


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Complete runs beneath folders."""
    folders = list(folders)
    paths = {file.parent for folder in folders for file in Path(folder).rglob("run.json")}
    found = [Run(path) for path in paths if re.fullmatch(r"seed-\d+", path.name)]
    if not found:
        raise ValueError(f"runs: expected folders with complete runs, got {', '.join(map(str, folders))}")
    return sorted(found, key=lambda run: (run.name, run.seed))
