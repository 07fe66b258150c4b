"""`python -m experiments.studies.encoder fit|table|assess --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.studies.encoder.assessing import assess
from experiments.studies.encoder.comparing import table
from experiments.studies.encoder.training import fit

if __name__ == "__main__":
    auto_cli([fit, table, assess], as_positional=False, prog="python -m experiments.studies.encoder")
