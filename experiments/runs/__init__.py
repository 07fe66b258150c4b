"""The runner: rows of the papers' tables as runs in folders, resumable at any moment.

Errors of the user are ValueError, OSError or ImportError with a message that the command line prints as one line.
"""

from experiments.runs.run import Run, find_runs

__all__ = ["Run", "find_runs"]
