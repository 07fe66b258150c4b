"""`python -m experiments.regression jura|weather|uci|scaling --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.regression.jura import jura
from experiments.regression.scaling import scaling
from experiments.regression.uci import uci
from experiments.regression.weather import weather

if __name__ == "__main__":
    auto_cli([jura, weather, uci, scaling], as_positional=False, prog="python -m experiments.regression")
