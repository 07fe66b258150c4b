"""The runner: rows of the papers' tables as runs in folders, resumable at any moment.

What cannot be done is a ValueError, OSError or ImportError that names it: the command line prints it as one line.
"""

from experiments.runs.run import Run, find_runs

__all__ = ["Run", "find_runs"]
