"""`python -m experiments.studies.encoder fit|table|assess`."""

from experiments.runs.parsing import run_functions
from experiments.studies.encoder.study import assess, fit, table

if __name__ == "__main__":
    run_functions([fit, table, assess], "studies.encoder")
