"""`python -m experiments.studies.in_context train|table`."""

from jsonargparse import auto_cli

from experiments.studies.in_context.running import train
from experiments.studies.in_context.table import table

if __name__ == "__main__":
    auto_cli([train, table], as_positional=False, prog="python -m experiments.studies.in_context")
