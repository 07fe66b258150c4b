"""`python -m experiments.studies.encoder fit|table|assess`."""

from jsonargparse import auto_cli

from experiments.studies.encoder.study import assess, fit, table

if __name__ == "__main__":
    auto_cli([fit, table, assess], as_positional=False, prog="python -m experiments.studies.encoder")
