"""Synthetic folders of runs: predictions with known metrics, and the configuration of their setting."""

import json
from functools import cache

import numpy as np
import yaml

from experiments import runs
from experiments.atomic_files import read_json
from experiments.runs.parsing import config_of, resolve
from experiments.runs.rows import merged


@cache
def resolved(name):
    return resolve([name])


class Run(runs.Run):
    """A run of which only what its files say is known."""

    record = property(lambda self: read_json(self.record_file))
    label = property(lambda self: self.record.get("label", self.method))
    deviations = property(lambda self: self.record.get("deviations", []))

    @property
    def config(self):
        content = yaml.safe_load(self.config_file.read_text())
        setting = resolved(f"{self.setting}/softmax")
        return config_of(merged(setting.plain(), content)) if content else setting


def find_runs(folders):
    """Complete runs in folders, whatever their configuration."""
    return [Run(run.folder) for run in runs.find_runs(folders)]


def confident(labels, right, *, classes=10, margin=4.0, num_samples=1):
    """Logits (S, N, C) that choose the label where `right`, else the class after it, all equally sure."""
    chosen = np.where(right, labels, (labels + 1) % classes)
    return np.repeat(margin * np.eye(classes)[chosen][None], num_samples, axis=0).astype(np.float32)


def random_logits(*, samples=200, classes=10, num_samples=10, seed=0, signal=2.0):
    """Logits (S, N, C) that know something of their labels, and the labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=samples)
    mean = signal * np.eye(classes)[labels] + generator.normal(size=(samples, classes))
    return (mean + 0.5 * generator.normal(size=(num_samples, samples, classes))).astype(np.float32), labels


def write_run(root, data, method, seed=0, *, sets=None, record=None, config=None, diagnostics=None):
    """Write a run's folder; `sets` maps names of input sets to (logits, labels or None)."""
    folder = root / data / method / f"seed-{seed}"
    (folder / "predictions").mkdir(parents=True)
    for name, (logits, labels) in (sets or {}).items():
        content = {"logits": logits, "ids": np.arange(logits.shape[1])} | ({} if labels is None else {"labels": labels})
        np.savez(folder / "predictions" / f"{name}.npz", **content)
    (folder / "config.yaml").write_text(yaml.safe_dump(config or {}))
    if diagnostics:
        np.savez(folder / "diagnostics.npz", **diagnostics)
    (folder / "run.json").write_text(json.dumps(record or {}))
    return folder
