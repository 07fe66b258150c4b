"""`python -m experiments.conversion train|compare|timing|variance --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.conversion.compare import compare
from experiments.conversion.timing import timing
from experiments.conversion.training import train
from experiments.conversion.variance import variance

if __name__ == "__main__":
    auto_cli([train, compare, timing, variance], as_positional=False, prog="python -m experiments.conversion")
