"""Long series with gaps: errors in hidden blocks, of our regressor and of common methods."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import BayesianRidge

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.conventions import Accepted
from experiments.studies.regression.multioutput import stations
from experiments.studies.regression.problems import NORMAL, Array, losses
from experiments.studies.regression.report import cached_row, with_peers, write_results

__all__ = ["METHODS", "SERIES", "Blocks", "block_scores", "series", "with_blocks"]

_Answer = tuple[Array, Array | None]  # means and, of most methods, standard deviations

_APART = 100  # smallest number of rows between two blocks of an output
_EDGE = 500  # rows without blocks at either end, or a tenth of a short series
_SINGLE = 0.02  # share of the values that are hidden one by one
_RIDGE_DRAWS = 8


class Blocks(NamedTuple):
    """A table with hidden blocks.

    Attributes:
        inputs: (n,).
        targets: (n, P), NaN where not observed or hidden.
        complete: (n, P), NaN where not observed.
        hidden: (n, P) booleans for each length of blocks.
    """

    inputs: Array
    targets: Array
    complete: Array
    hidden: Mapping[str, NDArray[np.bool_]]


class Series(NamedTuple):
    """A data set.

    Attributes:
        read: reads inputs (n,) and outputs (n, P) from the folder.
        lengths: lengths of the blocks in rows, by name.
    """

    read: Callable[[Path], tuple[Array, Array]]
    lengths: Mapping[str, int]


def series(
    data: Path,
    out: Path,
    sets: Sequence[str] = ("year",),
    maskings: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    methods: Sequence[str] = ("cgp", "ridge on the others", "interpolation"),
) -> None:
    """Hidden blocks of long series: squared error over variance, NLL, coverage, processor time and memory.

    In every output one block of each length is hidden, at different places, and 2 % single values. Sets with values
    that our regressor leaves out as codes of failed sensors are scored with these, and without.

    Args:
        data: folder with ``multioutput`` (weather), and ``series`` with ``bafu.txt`` (rivers),
            ``temperature.txt`` and ``drift.txt``, whose columns are outputs.
        out: folder of tables and rows.
        sets: names of sets, among "year", "rivers", "one river", "20 outputs", "25 outputs", "100 outputs".
        maskings: seeds of the hidden values.
        methods: names of the methods to run.
    """
    rows = []
    for name in sets:
        for masking in maskings:
            problem = with_blocks(*SERIES[name].read(data), SERIES[name].lengths, masking)
            for label in methods:
                key = {"set": name, "window": masking, "method": label}
                row = cached_row(out / "series", key, partial(_scored, problem, METHODS[label]))
                scores = row.pop("scores", {"–": {}})
                rows += [row | {"gap": gap} | values for gap, values in scores.items()]
    rows = with_peers(rows, ("set", "gap", "window"), dict.fromkeys(METHODS, "cgp"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds", "memory_mb")
    write_results(out, "regression-series", "Long series with gaps", rows, ("set", "gap", "method"), columns)


def with_blocks(inputs: Array, complete: Array, lengths: Mapping[str, int], seed: int) -> Blocks:
    """Hide separated blocks of every length in every output, and single values."""
    generator = np.random.default_rng(seed)
    taken, hidden = np.isnan(complete), {}
    edge = min(_EDGE, len(complete) // 10)
    for name, length in lengths.items():
        hidden[name] = np.zeros_like(taken)
        apart = min(_APART, length)
        for output in range(complete.shape[1]):
            starts = [
                start
                for start in range(edge, len(complete) - length - edge, max(length // 48, 1))
                if taken[start - apart : start + length + apart, output].mean() < 0.05
            ]
            start = int(generator.choice(starts))
            hidden[name][start : start + length, output] = True
        taken |= hidden[name]
    hidden["single"] = (generator.random(complete.shape) < _SINGLE) & ~taken
    hidden = {name: block & ~np.isnan(complete) for name, block in hidden.items()}
    every = np.logical_or.reduce(list(hidden.values()))
    return Blocks(inputs, np.where(every, np.nan, complete), complete, hidden)


def block_scores(problem: Blocks, mean: Array, sd: Array | None) -> dict[str, dict[str, float]]:
    """For each length of blocks: squared error over the output's variance, NLL in units of its sd, coverage of 95 %.

    If some values are such as our regressor leaves out as codes of failed sensors, then also without these.
    """
    scores = _all_scores(problem, mean, sd)
    codes = _codes(problem.complete)
    if not codes.any():
        return scores
    hidden = {f"{name}, without codes": block & ~codes for name, block in problem.hidden.items()}
    readings = problem._replace(complete=np.where(codes, np.nan, problem.complete), hidden=hidden)
    return scores | _all_scores(readings, mean, sd)


def _codes(values: Array) -> NDArray[np.bool_]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of how many there are
        return Accepted.of(values).errors(values)


def _all_scores(problem: Blocks, mean: Array, sd: Array | None) -> dict[str, dict[str, float]]:
    unit = np.nanstd(problem.complete, axis=0)
    error, scores = (mean - problem.complete) / unit, {}
    for name, block in problem.hidden.items():
        scores[name] = {"smse": float(np.square(error[block]).mean())}
        if sd is None:
            continue
        spread = (sd / unit)[block]
        inside = np.abs(error[block]) < NORMAL * spread
        scores[name] |= {"nll": float(losses(error[block], spread).mean()), "coverage": float(inside.mean())}
    return scores


def _scored(problem: Blocks, method: Callable[[Array, Array], tuple[Array, Array | None]]) -> dict[str, Any]:
    return {"scores": block_scores(problem, *method(problem.inputs, problem.targets))}


def _cgp(inputs: Array, targets: Array) -> tuple[Array, Array]:
    regressor = CorrelatedGPRegressor(random_state=0).fit(inputs[:, None], targets)
    mean, sd = regressor.predict(inputs[:, None], return_std=True)
    return mean.reshape(targets.shape), sd.reshape(targets.shape)


def _ridge(inputs: Array, targets: Array) -> tuple[Array, Array]:
    """Bayesian ridge regression of each output on the others, iterated; mean and spread of eight draws."""
    draws = []
    for seed in range(_RIDGE_DRAWS):
        imputer = IterativeImputer(BayesianRidge(), sample_posterior=True, max_iter=5, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # draws do not converge
            draws.append(imputer.fit_transform(targets))
    return np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1) + 1e-9


def _interpolation(inputs: Array, targets: Array) -> tuple[Array, None]:
    columns = [np.interp(inputs, inputs[~np.isnan(column)], column[~np.isnan(column)]) for column in targets.T]
    return np.column_stack(columns), None


def _ridge_without_codes(inputs: Array, targets: Array) -> _Answer:
    """Ridge regression of what our regressor keeps: codes of failed sensors are left out before."""
    return _ridge(inputs, np.where(_codes(targets), np.nan, targets))


METHODS: Mapping[str, Callable[[Array, Array], _Answer]] = {
    "cgp": _cgp,
    "ridge on the others": _ridge,
    "interpolation": _interpolation,
    "ridge on the others, given no codes": _ridge_without_codes,
}


def _year(data: Path) -> tuple[Array, Array]:
    """Air temperature at four stations on a coast, half-hourly over a year; inputs in hours."""
    grid = np.arange(0.0, 8760.0, 0.5)
    return grid, stations(data / "multioutput", grid, "ATMP")


def _text(data: Path, name: str, rows: int | None, outputs: int) -> tuple[Array, Array]:
    """The first rows and columns of a text file."""
    values = np.loadtxt(data / "series" / f"{name}.txt")[:rows, :outputs]
    return np.arange(float(len(values))), values


SERIES: dict[str, Series] = {
    "year": Series(_year, {"week": 336}),
    "rivers": Series(partial(_text, name="bafu", rows=None, outputs=12), {"day": 48, "week": 336, "month": 1440}),
    "one river": Series(partial(_text, name="bafu", rows=50_000, outputs=1), {"500": 500}),
    "20 outputs": Series(partial(_text, name="temperature", rows=300, outputs=20), {"40": 40}),
    "25 outputs": Series(partial(_text, name="temperature", rows=None, outputs=25), {"30": 30, "365": 365}),
    "100 outputs": Series(partial(_text, name="drift", rows=300, outputs=100), {"40": 40}),
}
