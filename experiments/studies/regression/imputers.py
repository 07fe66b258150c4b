"""Imputers side by side on tables whose hidden values are known: scikit-learn's, statsmodels' and PyPOTS's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from cgp import CorrelatedGPImputer
from experiments.studies.regression.cached_rows import cached_row
from experiments.studies.regression.multioutput import SETS, Gaps, gap_scores, with_gaps
from experiments.studies.regression.referee import WINDOWS
from experiments.studies.regression.report import with_peers, write_results
from experiments.studies.regression.series import METHODS

__all__ = ["IMPUTERS", "imputer_scores", "imputers"]

Array = NDArray[np.float64]
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
    threads: int = 1,
) -> None:
    """Squared error, NLL, coverage and processor time of imputers, one window of each set.

    Args:
        data: folder with ``multioutput``.
        out: folder of tables and rows.
        sets: of the study "multioutput", on the windows of "referee".
        gaps: of them.
        methods: names of the methods to run; None is all whose package is installed: statsmodels for "dynamic factor",
            pypots for "SAITS" and "BRITS".
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    chosen = [name for name in IMPUTERS if _installed(name)] if methods is None else methods
    rows = []
    for name in sets:
        for gap in gaps:
            problem = with_gaps(*SETS[name](data / "multioutput", WINDOWS[name]), gap, seed=WINDOWS[name])
            for method in chosen:
                key = {"set": name, "gap": gap, "method": method}
                rows.append(cached_row(out / "imputers", key, partial(imputer_scores, problem, IMPUTERS[method])))
    rows = with_peers(rows, ("set", "gap"), dict.fromkeys(IMPUTERS, "cgp"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "gaps-imputers", "Imputers side by side", rows, ("set", "gap", "method"), columns)


def imputer_scores(problem: Gaps, method: Imputer) -> dict[str, Any]:
    """Scores of an imputer; of one without an uncertainty the squared error."""
    mean, sd = method(problem.inputs, problem.targets)
    scores = gap_scores(problem, mean, np.ones_like(mean) if sd is None else sd)
    return scores if sd is not None else {"smse": scores["smse"]}


def _installed(name: str) -> bool:
    needed = {"dynamic factor": "statsmodels", "SAITS": "pypots", "BRITS": "pypots"}
    return name not in needed or find_spec(needed[name]) is not None


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
    centre, unit = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    filled = KNNImputer(weights="distance").fit_transform((table - centre) / unit) * unit + centre
    return filled[:, : targets.shape[1]], None


def _dynamic_factor(inputs: Array, targets: Array) -> tuple[Array, Array]:
    """One factor with a memory of two rows and errors with one of a row each: statsmodels' smoother, its variance."""
    centre, unit = np.nanmean(targets, axis=0), np.nanstd(targets, axis=0)
    model = import_module("statsmodels.tsa.statespace.dynamic_factor").DynamicFactor(
        (targets - centre) / unit, k_factors=1, factor_order=2, error_order=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps, and of starting values that are not stationary
        fit = model.fit(maxiter=200, disp=False)
    design = fit.smoother_results.design[:, :, 0]
    states, covariance = fit.smoother_results.smoothed_state, fit.smoother_results.smoothed_state_cov
    variance = np.einsum("pi,ijt,pj->tp", design, covariance, design)
    variance += fit.smoother_results.obs_cov[:, :, 0].diagonal()
    return (design @ states).T * unit + centre, np.sqrt(np.maximum(variance, 1e-12)) * unit


def _network(inputs: Array, targets: Array, *, name: str) -> tuple[Array, None]:
    """A network of PyPOTS, trained on overlapping windows of the table itself; windows of every place are averaged."""
    centre, unit = np.nanmean(targets, axis=0), np.nanstd(targets, axis=0)
    scaled = (targets - centre) / unit
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
    "dynamic factor": _dynamic_factor,
    "SAITS": partial(_network, name="SAITS"),
    "BRITS": partial(_network, name="BRITS"),
}
