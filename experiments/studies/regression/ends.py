"""The ends of exchange rates, some known and some not: our regressor beside statsmodels' dynamic factors."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.studies.regression.cached_rows import cached_row
from experiments.studies.regression.methods import outputs
from experiments.studies.regression.multioutput import SETS, gap_scores, with_gaps
from experiments.studies.regression.report import SITES, with_peers, write_results

__all__ = ["METHODS", "ends"]

Array = NDArray[np.float64]


def ends(
    data: Path,
    out: Path,
    windows: Sequence[int] = (0, 1, 2, 3, 4),
    methods: Sequence[str] | None = None,
    threads: int = 1,
) -> None:
    """Logarithms of nine exchange rates on a hundred days, the last twenty days of four of them hidden.

    Args:
        data: the folder that holds ``multioutput``.
        out: where tables and rows go.
        windows: numbers of the hundreds of days, from 0 to 4.
        methods: names of those to run; None means all that are installed.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    if methods is None:
        installed = importlib.util.find_spec("statsmodels") is not None
        methods = [name for name in METHODS if installed or not name.startswith("statsmodels")]
    rows = []
    for window in windows:
        inputs, complete = SETS["exchange"](data / "multioutput", window)
        problem = with_gaps(inputs, complete, "end", seed=window)
        for name in methods:
            key = {"set": "exchange", "gap": "end", "window": window, "method": name}
            rows.append(cached_row(out / "ends", key, partial(_row, problem, METHODS[name])))
    rows = [{name: value for name, value in row.items() if name != SITES} for row in rows]
    rows = with_peers(rows, ("set", "gap", "window"), dict.fromkeys(METHODS, "cgp, Matérn 3/2"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "regression-ends", "Ends of exchange rates", rows, ("set", "gap", "method"), columns)


def _row(problem: Any, method: Callable[[Array, Array], tuple[Array, Array]]) -> dict[str, Any]:
    return gap_scores(problem, *method(problem.inputs, problem.targets))


def _dynamic_factor(inputs: Array, targets: Array) -> tuple[Array, Array]:
    """One autoregressive factor, and an autoregressive error of each output, by maximum likelihood."""
    api = importlib.import_module("statsmodels.tsa.api")  # not declared: it is here for comparison only
    return _smoothed(targets, lambda z: api.DynamicFactor(z, k_factors=1, factor_order=1, error_order=1))


def _dynamic_factor_em(inputs: Array, targets: Array) -> tuple[Array, Array]:
    """The same model by expectation maximisation."""
    api, pandas = (importlib.import_module(name) for name in ("statsmodels.tsa.api", "pandas"))

    def model(z: Array) -> Any:
        months = pandas.period_range("2000-01", periods=len(z), freq="M")  # it asks for months or quarters
        return api.DynamicFactorMQ(pandas.DataFrame(z, index=months), factors=1, standardize=False)

    return _smoothed(targets, model)


def _smoothed(targets: Array, model: Callable[[Array], Any]) -> tuple[Array, Array]:
    """Means and standard deviations of standardised outputs, noise included."""
    centre, unit = np.nanmean(targets, axis=0), np.nanstd(targets, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of frequencies and of convergence
        found = model((targets - centre) / unit).fit(disp=0, maxiter=500).smoother_results
    design, noise = found.design[:, :, 0], np.diag(found.obs_cov[:, :, 0])
    mean = (design @ found.smoothed_state).T
    variance = np.einsum("pk,kln,pl->np", design, found.smoothed_state_cov, design) + noise
    return mean * unit + centre, np.sqrt(variance.clip(min=0.0)) * unit  # rounding where an output is known


METHODS: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "cgp, Matérn 3/2": partial(outputs, kernel="matern32"),
    "cgp, Matérn 1/2": partial(outputs, kernel="matern12"),
    "statsmodels DynamicFactor": _dynamic_factor,
    "statsmodels DynamicFactorMQ": _dynamic_factor_em,
}
