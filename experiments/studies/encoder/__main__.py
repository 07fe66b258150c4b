"""`python -m experiments.studies.encoder fit|table|assess`."""

from jsonargparse import auto_cli

from experiments.studies.encoder.fitting import assess, fit
from experiments.studies.encoder.table import table

if __name__ == "__main__":
    auto_cli([fit, table, assess], as_positional=False, prog="python -m experiments.studies.encoder")
