"""`python -m experiments.studies.conversion train|compare|timing --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.studies.conversion.compare import compare, timing
from experiments.studies.conversion.training import train

if __name__ == "__main__":
    auto_cli([train, compare, timing], as_positional=False, prog="python -m experiments.studies.conversion")
