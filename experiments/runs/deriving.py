"""Rows that need no training of their own: they are derived from trained runs of another row."""

from pathlib import Path

from experiments.methods import DERIVED, OF_PREDICTIONS, Request
from experiments.data import requested_ood
from experiments.runs.provenance import provenance
from experiments.runs.experiment import Experiment
from experiments.runs.folder import RunFolder
from experiments.runs.predicting import recorded_inputs
from experiments.runs.trained_run import TrainedRun, needed_runs

__all__ = ["derive_run"]


def derive_run(experiment: Experiment, out: Path, folder: RunFolder) -> None:
    """Write the predictions and the summary of a derived row.

    Args:
        experiment: the row.
        out: folder of all runs.
        folder: of this run.

    Raises:
        ValueError: if a run that is needed is missing, or has not predicted what is to be taken from it.
    """
    runs = needed_runs(experiment, out)
    if experiment.method.kind in OF_PREDICTIONS:
        for run in runs:
            _check_inputs(experiment, run)
    options = {name: value for name, value in experiment.method.options.items() if name != "members"}
    before = folder.read_summary() if folder.is_complete else {}
    asked = Request(experiment.data, experiment.evaluation, folder.path, before.get("sources") or {})
    made = DERIVED[experiment.method.kind](runs, asked, **options)
    first = runs[0].summary
    inherited = {name: first.get(name) for name in ("parameters", "data", "examples")}
    words = [*experiment.deviations, *experiment.reduced, *first["reduced"], *made.remarks]
    folder.complete(
        {
            **({"images": before["images"]} if "images" in before else {}),
            "label": experiment.method.label,
            **inherited,
            "reduced": list(dict.fromkeys(words)),
            "derived_from": [str(run.folder) for run in runs],
            "chosen": made.chosen,
            **recorded_inputs(made.sources),
            **provenance(),
        }
    )


def _check_inputs(experiment: Experiment, run: TrainedRun) -> None:
    """Fail where more is asked for than a run has predicted."""
    there = requested_ood(run.config.data)
    missing = [name for name in requested_ood(experiment.data) if name not in there]
    full = experiment.evaluation.full and not run.config.evaluation.full
    if missing or full:
        wanted = [f"--ood '[{','.join(missing)}]'"] * bool(missing) + ["--full"] * full
        raise ValueError(
            f"{experiment.name}: expected to find what is asked for in {run.folder}, which has not predicted it; first "
            f"python -m experiments predict {run.folder} {' '.join(wanted)}"
        )
