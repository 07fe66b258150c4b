"""`python -m experiments.studies.dinov2 fit|learning|assess|scalings|maps`."""

from experiments.runs.parsing import run_functions
from experiments.studies.dinov2.learning import learning
from experiments.studies.dinov2.network import fit
from experiments.studies.dinov2.study import assess, maps, scalings

if __name__ == "__main__":
    run_functions([fit, learning, assess, scalings, maps], "studies.dinov2")
