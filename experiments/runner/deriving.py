"""Rows that need no training of their own: they are derived from trained runs of another row."""

from pathlib import Path
from typing import Any

from experiments.baselines import DERIVED
from experiments.provenance import provenance
from experiments.runner.experiment import Experiment
from experiments.runner.folder import RunFolder
from experiments.runner.trained_run import needed_runs

__all__ = ["derive_run"]


def derive_run(experiment: Experiment, out: Path, folder: RunFolder) -> None:
    """Write the predictions and the summary of a derived row.

    Args:
        experiment: the row.
        out: folder of all runs.
        folder: of this run.

    Raises:
        ValueError: if a run that is needed is missing.
    """
    runs = needed_runs(experiment, out)
    options = {name: value for name, value in experiment.method.options.items() if name != "members"}
    derive = DERIVED[experiment.method.kind]
    chosen: dict[str, Any] = derive(runs, experiment.data, experiment.evaluation, folder.path, **options) or {}
    first = runs[0].summary
    inherited = {name: first.get(name) for name in ("parameters", "data", "examples", "sources", "corruptions")}
    words = [*experiment.departures, *experiment.reduced, *first["reduced"]]
    folder.complete(
        {
            "label": experiment.method.label,
            **inherited,
            "reduced": list(dict.fromkeys(words)),
            "derived_from": [str(run.folder) for run in runs],
            "chosen": chosen,
            **provenance(),
        }
    )
