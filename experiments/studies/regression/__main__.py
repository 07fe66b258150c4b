"""`python -m experiments.studies.regression COMMAND --data DIR --out DIR`."""

from jsonargparse import auto_cli

from experiments.studies.regression.ends import ends
from experiments.studies.regression.files import files
from experiments.studies.regression.fits import fits
from experiments.studies.regression.forms import forms
from experiments.studies.regression.growth import growth
from experiments.studies.regression.imputers import imputers
from experiments.studies.regression.jura import jura
from experiments.studies.regression.multioutput import multioutput
from experiments.studies.regression.referee import referee
from experiments.studies.regression.scaling import scaling
from experiments.studies.regression.series import series
from experiments.studies.regression.totals import totals
from experiments.studies.regression.uci import uci

if __name__ == "__main__":
    auto_cli(
        [ends, files, fits, forms, growth, imputers, jura, multioutput, referee, series, totals, uci, scaling],
        as_positional=False,
        prog="python -m experiments.studies.regression",
    )
