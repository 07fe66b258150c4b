"""Imputers side by side on tables whose hidden values are known: scikit-learn's, statsmodels' and PyPOTS's."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from cgp import CorrelatedGPImputer
from experiments.studies.regression.methods import outputs
from experiments.studies.regression.multioutput import SETS
from experiments.studies.regression.problems import SITES, Array, Gaps, gap_scores, standardised, with_gaps
from experiments.studies.regression.referee import WINDOWS
from experiments.studies.regression.report import cached_row, with_peers, write_results
from experiments.studies.regression.series import METHODS

__all__ = ["ENDS", "IMPUTERS", "ends", "imputer_scores", "imputers"]

Imputer = Callable[[Array, Array], tuple[Array, Array | None]]

_EPOCHS = 100
_STEPS = 24  # rows of a window that a network sees
_HELD_OUT = 0.1  # share of the values by which a training ends


def imputers(
    data: Path,
    out: Path,
    sets: Sequence[str] = ("weather", "air", "exchange"),
    gaps: Sequence[str] = ("random", "stretch"),
    methods: Sequence[str] | None = None,
) -> None:
    """Squared error, NLL, coverage and processor time of imputers, one window of each set.

    Args:
        data: folder with ``multioutput``.
        out: folder of tables and rows.
        sets: of the study "multioutput", on the windows of "referee".
        gaps: of them.
        methods: names of the methods to run; None is all whose package is installed: statsmodels for "dynamic factor",
            pypots for "SAITS" and "BRITS".
    """
    rows = []
    for name in sets:
        for gap in gaps:
            problem = with_gaps(*SETS[name](data / "multioutput", WINDOWS[name]), gap, seed=WINDOWS[name])
            for method in _chosen(IMPUTERS, methods):
                key = {"set": name, "gap": gap, "method": method}
                rows.append(cached_row(out / "imputers", key, partial(imputer_scores, problem, IMPUTERS[method])))
    rows = with_peers(rows, ("set", "gap"), dict.fromkeys(IMPUTERS, "cgp"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "gaps-imputers", "Imputers side by side", rows, ("set", "gap", "method"), columns)


def ends(
    data: Path,
    out: Path,
    windows: Sequence[int] = (0, 1, 2, 3, 4),
    methods: Sequence[str] | None = None,
) -> None:
    """Logarithms of nine exchange rates on a hundred days, the last twenty days of four of them hidden.

    Args:
        data: the folder that holds ``multioutput``.
        out: where tables and rows go.
        windows: numbers of the hundreds of days, from 0 to 4.
        methods: names of those to run; None means all that are installed.
    """
    rows = []
    for window in windows:
        inputs, complete = SETS["exchange"](data / "multioutput", window)
        problem = with_gaps(inputs, complete, "end", seed=window)
        for name in _chosen(ENDS, methods):
            key = {"set": "exchange", "gap": "end", "window": window, "method": name}
            rows.append(cached_row(out / "ends", key, partial(imputer_scores, problem, ENDS[name])))
    rows = [{name: value for name, value in row.items() if name != SITES} for row in rows]
    rows = with_peers(rows, ("set", "gap", "window"), dict.fromkeys(ENDS, "cgp, Matérn 3/2"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "regression-ends", "Ends of exchange rates", rows, ("set", "gap", "method"), columns)


def imputer_scores(problem: Gaps, method: Imputer) -> dict[str, Any]:
    """Scores of an imputer; of one without an uncertainty the squared error."""
    mean, sd = method(problem.inputs, problem.targets)
    scores = gap_scores(problem, mean, np.ones_like(mean) if sd is None else sd)
    return scores if sd is not None else {"smse": scores["smse"]}


def _chosen(methods: Mapping[str, Imputer], names: Sequence[str] | None) -> list[str]:
    """The methods of these names, or those whose package is installed."""
    needed = {"dynamic factor": "statsmodels", "SAITS": "pypots", "BRITS": "pypots"}
    packages = {name: needed.get(name, "statsmodels" if name.startswith("statsmodels") else "cgp") for name in methods}
    return [name for name in methods if find_spec(packages[name]) is not None] if names is None else list(names)


def _cgp(inputs: Array, targets: Array) -> tuple[Array, Array]:
    imputer = CorrelatedGPImputer(inputs=tuple(range(inputs.shape[1])), random_state=0)
    filled = imputer.fit_transform(np.column_stack([inputs, targets]))
    return filled[:, inputs.shape[1] :], imputer.std_


def _trees(inputs: Array, targets: Array) -> tuple[Array, None]:
    imputer = IterativeImputer(ExtraTreesRegressor(50, random_state=0), max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of rounds
        return imputer.fit_transform(np.column_stack([targets, inputs]))[:, : targets.shape[1]], None


def _neighbours(inputs: Array, targets: Array) -> tuple[Array, None]:
    """Nearest rows by all columns and the inputs, in units of their standard deviations."""
    table = np.column_stack([targets, inputs])
    scaled, centre, unit = standardised(table)
    filled = KNNImputer(weights="distance").fit_transform(scaled) * unit + centre
    return filled[:, : targets.shape[1]], None


def _dynamic_factor(inputs: Array, targets: Array, factor_order: int, maxiter: int) -> tuple[Array, Array]:
    """One autoregressive factor and an autoregressive error of each output, by maximum likelihood of statsmodels."""
    api = import_module("statsmodels.tsa.api")  # not declared: it is here for comparison only
    options = {"k_factors": 1, "factor_order": factor_order, "error_order": 1}
    return _smoothed(targets, lambda z: api.DynamicFactor(z, **options), maxiter)


def _dynamic_factor_em(inputs: Array, targets: Array) -> tuple[Array, Array]:
    """The same model with a memory of one row, by expectation maximisation."""
    api = import_module("statsmodels.tsa.api")

    def model(z: Array) -> Any:
        months = pd.period_range("2000-01", periods=len(z), freq="M")  # it asks for months or quarters
        return api.DynamicFactorMQ(pd.DataFrame(z, index=months), factors=1, standardize=False)

    return _smoothed(targets, model, 500)


def _smoothed(targets: Array, model: Callable[[Array], Any], maxiter: int) -> tuple[Array, Array]:
    """Means and standard deviations of standardised outputs, noise included."""
    scaled, centre, unit = standardised(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps, frequencies, and starting values that are not stationary
        found = model(scaled).fit(disp=False, maxiter=maxiter).smoother_results
    design, noise = found.design[:, :, 0], found.obs_cov[:, :, 0].diagonal()
    variance = np.einsum("pk,kln,pl->np", design, found.smoothed_state_cov, design) + noise
    mean = (design @ found.smoothed_state).T * unit + centre
    return mean, np.sqrt(variance.clip(min=1e-12)) * unit  # rounding where an output is known


def _network(inputs: Array, targets: Array, *, name: str) -> tuple[Array, None]:
    """A network of PyPOTS, trained on overlapping windows of the table itself; windows of every place are averaged."""
    scaled, centre, unit = standardised(targets)
    windows = np.stack([scaled[start : start + _STEPS] for start in range(len(scaled) - _STEPS + 1)])
    sizes: dict[str, Any] = {
        "SAITS": {"n_layers": 2, "d_model": 64, "n_heads": 4, "d_k": 16, "d_v": 16, "d_ffn": 64},
        "BRITS": {"rnn_hidden_size": 64},
    }[name]
    torch.manual_seed(0)
    seen = np.where(np.random.default_rng(0).random(windows.shape) < _HELD_OUT, np.nan, windows)
    options = {"n_steps": _STEPS, "n_features": targets.shape[1], "epochs": _EPOCHS, "patience": 20, "verbose": False}
    network = getattr(import_module("pypots.imputation"), name)(**options, **sizes, device="cpu")
    network.fit({"X": seen}, {"X": seen, "X_ori": windows})
    filled = network.predict({"X": windows})["imputation"]
    total, count = np.zeros_like(scaled), np.zeros((len(scaled), 1))
    for start, window in enumerate(np.asarray(filled)):
        total[start : start + _STEPS] += window
        count[start : start + _STEPS] += 1
    return total / count * unit + centre, None


IMPUTERS: Mapping[str, Imputer] = {
    "cgp": _cgp,
    "interpolation": lambda inputs, targets: METHODS["interpolation"](inputs[:, 0], targets),
    "IterativeImputer, ridge": lambda inputs, targets: METHODS["ridge on the others"](inputs[:, 0], targets),
    "IterativeImputer, trees": _trees,
    "KNNImputer": _neighbours,
    "dynamic factor": partial(_dynamic_factor, factor_order=2, maxiter=200),
    "SAITS": partial(_network, name="SAITS"),
    "BRITS": partial(_network, name="BRITS"),
}

ENDS: Mapping[str, Imputer] = {
    "cgp, Matérn 3/2": partial(outputs, kernel="matern32"),
    "cgp, Matérn 1/2": partial(outputs, kernel="matern12"),
    "statsmodels DynamicFactor": partial(_dynamic_factor, factor_order=1, maxiter=500),
    "statsmodels DynamicFactorMQ": _dynamic_factor_em,
}
"""Those of the ends of exchange rates."""
