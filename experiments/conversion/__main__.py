"""`python -m experiments.conversion train|compare --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.conversion.training import train

if __name__ == "__main__":
    auto_cli([train], as_positional=False, prog="python -m experiments.conversion")
