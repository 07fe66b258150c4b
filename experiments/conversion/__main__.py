"""`python -m experiments.conversion train|compare|timing --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.conversion.compare import compare
from experiments.conversion.timing import timing
from experiments.conversion.training import train

if __name__ == "__main__":
    auto_cli([train, compare, timing], as_positional=False, prog="python -m experiments.conversion")
