"""The runner: rows of the papers' tables as runs in folders, resumable at any moment."""

from experiments.runs.experiment import CONFIGS, Experiment
from experiments.runs.folder import RunFolder
from experiments.runs.parsing import HintingParser, expanded, experiment_from, experiment_of
from experiments.runs.rows import config_arguments, config_files, row_names
from experiments.runs.trained_run import TrainedRun

__all__ = [
    "CONFIGS",
    "Experiment",
    "HintingParser",
    "RunFolder",
    "TrainedRun",
    "config_arguments",
    "config_files",
    "expanded",
    "experiment_from",
    "experiment_of",
    "row_names",
]
