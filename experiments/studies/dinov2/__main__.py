"""`python -m experiments.studies.dinov2 fit|assess|scalings|maps`."""

from jsonargparse import auto_cli

from experiments.studies.dinov2.assessing import assess
from experiments.studies.dinov2.fitting import fit
from experiments.studies.dinov2.maps import maps
from experiments.studies.dinov2.scalings import scalings

if __name__ == "__main__":
    auto_cli([fit, assess, scalings, maps], as_positional=False, prog="python -m experiments.studies.dinov2")
