"""`python -m experiments.studies.dinov2 fit|learning|assess|scalings|maps`."""

from jsonargparse import auto_cli

from experiments.studies.dinov2.learning import learning
from experiments.studies.dinov2.network import fit
from experiments.studies.dinov2.study import assess, maps, scalings

if __name__ == "__main__":
    auto_cli([fit, learning, assess, scalings, maps], as_positional=False, prog="python -m experiments.studies.dinov2")
