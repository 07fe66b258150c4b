"""The runner: rows of the papers' tables as runs in folders, resumable at any moment."""

from experiments.runs.run import Run, find_runs

__all__ = ["Run", "find_runs"]
