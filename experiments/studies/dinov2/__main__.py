"""`python -m experiments.studies.dinov2 fit|assess|maps`."""

from jsonargparse import auto_cli

from experiments.studies.dinov2.assessing import assess
from experiments.studies.dinov2.fitting import fit
from experiments.studies.dinov2.maps import maps

if __name__ == "__main__":
    auto_cli([fit, assess, maps], as_positional=False, prog="python -m experiments.studies.dinov2")
