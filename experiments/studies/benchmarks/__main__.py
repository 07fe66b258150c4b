"""`python -m experiments.studies.benchmarks COMMAND --out DIR`, on one thread."""

import torch

from experiments.runs.parsing import run_functions
from experiments.studies.benchmarks.guangzhou import guangzhou
from experiments.studies.benchmarks.imputegap import imputegap
from experiments.studies.benchmarks.parts import parts
from experiments.studies.benchmarks.patients import patients
from experiments.studies.benchmarks.tsi import tsi

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_functions(
        {"tsi": tsi, "imputegap": imputegap, "guangzhou": guangzhou, "patients": patients, "parts": parts},
        "studies.benchmarks",
    )
