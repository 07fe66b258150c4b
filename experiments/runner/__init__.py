"""The runner: rows of the papers' tables as runs in folders, resumable at any moment."""

from experiments.runner.experiment import CONFIGS, Experiment
from experiments.runner.folder import RunFolder
from experiments.runner.parsing import HintingParser, expanded, experiment_from, experiment_of
from experiments.runner.rows import config_arguments, config_files, row_names
from experiments.runner.trained_run import TrainedRun

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
