"""`python -m experiments.studies.regression COMMAND --data DIR --out DIR`, on one thread."""

import torch

from experiments.runs.parsing import run_functions
from experiments.studies.regression.annual import annual
from experiments.studies.regression.costs import fits, forms
from experiments.studies.regression.disaggregation import disaggregation
from experiments.studies.regression.files import files
from experiments.studies.regression.growth import growth
from experiments.studies.regression.imputers import ends, imputers
from experiments.studies.regression.known import energy, known
from experiments.studies.regression.multioutput import jura, multioutput
from experiments.studies.regression.nowcast import nowcast
from experiments.studies.regression.referee import referee
from experiments.studies.regression.series import series
from experiments.studies.regression.sparse import scaling, uci
from experiments.studies.regression.tables import tables
from experiments.studies.regression.tails import tails
from experiments.studies.regression.totals import totals
from experiments.studies.regression.transforms import transforms

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_functions(
        [
            annual,
            disaggregation,
            ends,
            energy,
            files,
            fits,
            forms,
            growth,
            imputers,
            jura,
            known,
            multioutput,
            nowcast,
            referee,
            series,
            tables,
            tails,
            totals,
            transforms,
            uci,
            scaling,
        ],
        "studies.regression",
    )
