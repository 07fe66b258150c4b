"""Whether the referee of gaps chooses well: its method beside the best one, on values that it has not seen."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cgp import CorrelatedGPImputer, GapReport, assess_gaps
from cgp.tables.frames.gaps import runs_of
from cgp.tables.frames.table import read_table
from cgp.tables.masking import HiddenBlocks
from experiments.studies.regression.multioutput import SETS
from experiments.studies.regression.problems import GAPS, Array, losses, with_gaps
from experiments.studies.regression.report import cached_row, write_results

__all__ = ["WINDOWS", "referee"]

WINDOWS = {"weather": 6, "wind": 6, "tide": 3, "air": 7, "exchange": 1, "jura": 0}
_KERNEL, _MASKINGS = "matern32", 3
_RIVERS = slice(20_000, 21_000)  # half-hours
_RIVER_BLOCKS = (48, 120, 16)  # half-hours that are missing together in each river
_PATIENTS = 5  # of 48 hours each
_FEWEST = 0.2  # of the hours in which a quantity was measured
_TESTED = 0.1  # of the values of a table with gaps of its own


def referee(
    data: Path,
    out: Path,
    sets: Sequence[str] = ("weather", "wind", "tide", "air", "exchange", "jura", "rivers", "patients"),
    gaps: Sequence[str] = GAPS,
) -> None:
    """What ``cgp.assess_gaps`` recommends, beside the method that fills the hidden values of a table best.

    Args:
        data: the folder that holds ``multioutput``, and ``series`` with ``bafu.txt`` (rivers) and
            ``physionet.txt`` (patients).
        out: where tables and rows go.
        sets: those of the study "multioutput", "rivers" (1,000 half-hours of twelve rivers) and "patients" (five of
            them for 48 hours, what was measured in a fifth of the hours, with the gaps that it has).
        gaps: of the sets of "multioutput": "random", "stretch", "end"; the soil has the first only.
    """
    rows = []
    for name in sets:
        for gap in _gaps_of(name, gaps):
            key = {"set": name, "gap": gap}
            compute = partial(_row, partial(_problem, data, name, gap))
            rows.append(cached_row(out / "referee", key, compute, kernel=_KERNEL, maskings=_MASKINGS))
    rows = [{name: value for name, value in row.items() if not isinstance(value, dict | list)} for row in rows]
    columns = ("chosen_nll", "best_nll", "behind", "processor_seconds")
    write_results(out, "gaps", "What the referee chooses", rows, ("set", "gap", "chosen", "best"), columns)


def _gaps_of(name: str, gaps: Sequence[str]) -> Sequence[str]:
    if name in ("rivers", "patients"):
        return ("blocks",) if name == "rivers" else ("its own",)
    return [gap for gap in gaps if name != "jura" or gap == "random"]


def _problem(data: Path, name: str, gap: str) -> tuple[Array, Array, Array]:
    """Inputs (n, d), a table with gaps (n, P), and what was hidden in some of them (n, P), NaN elsewhere."""
    if name == "rivers":
        return _rivers(data)
    if name == "patients":
        return _patients(data)
    inputs, complete = SETS[name](data / "multioutput", WINDOWS[name])
    problem = with_gaps(inputs, complete, gap, seed=WINDOWS[name])
    return problem.inputs, problem.targets, problem.truth


def _rivers(data: Path) -> tuple[Array, Array, Array]:
    complete = np.loadtxt(data / "series" / "bafu.txt")[_RIVERS, :12]
    generator = np.random.default_rng(0)
    hidden = np.zeros(complete.shape, dtype=bool)
    for column in range(complete.shape[1]):
        for length in _RIVER_BLOCKS:
            start = int(generator.integers(50, len(complete) - length - 50))
            hidden[start : start + length, column] = True
    inputs = np.arange(float(len(complete)))[:, None]
    return inputs, np.where(hidden, np.nan, complete), np.where(hidden, complete, np.nan)


def _patients(data: Path) -> tuple[Array, Array, Array]:
    """Hours of patients one after the other; blocks like their gaps are hidden besides, to be tested on."""
    complete = np.loadtxt(data / "series" / "physionet.txt")[: 48 * _PATIENTS]
    complete = complete[:, (~np.isnan(complete)).mean(axis=0) >= _FEWEST]
    inputs = np.arange(float(len(complete)))[:, None]
    table, _ = read_table(complete, None)
    hidden = HiddenBlocks.of(table, 1, _TESTED, 1_000).cells(0, complete.shape)
    return inputs, np.where(hidden, np.nan, complete), np.where(hidden, complete, np.nan)


def _row(problem: Callable[[], tuple[Array, Array, Array]]) -> dict[str, Any]:
    inputs, targets, truth = problem()
    given = np.column_stack([inputs, targets])
    imputer = CorrelatedGPImputer(inputs=tuple(range(inputs.shape[1])), kernel=_KERNEL, random_state=0)
    report = assess_gaps(given, imputer, maskings=_MASKINGS)
    of_methods = {name: _losses(*filled, targets, truth) for name, filled in _fillings(report, given, inputs)}
    means = {name: float(np.nanmean(values)) for name, values in of_methods.items()}
    best = min(means, key=means.__getitem__)
    behind, error = _clustered(of_methods[report.method] - of_methods[best])
    return {
        "chosen": report.method,
        "best": best,
        "chosen_nll": means[report.method],
        "best_nll": means[best],
        "behind": behind,
        "behind_se": error,
        "sentence": report.sentence,
        "test": means,
        "blocks": {name: trial.scores.nll.tolist() for name, trial in report.trials.items()},
        "labels": report.hidden.labels.tolist(),
        "weights": dict(report.strata.weights),
        "failures": dict(report.failures),
    }


def _fillings(report: GapReport, given: Array, inputs: Array) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Means and standard deviations (n, P) by every method; structures from the fit that compared them."""
    compared = report.fitted(report.default)
    for name, method in report.methods.items():
        structure = method.get_params().get("structure")
        if name in report.trials and structure in compared.regressor_.criteria_:
            mean, sd = compared.regressor_.with_structure(structure).predict(inputs, return_std=True)
            yield name, (mean.reshape(len(inputs), -1), sd.reshape(len(inputs), -1))
        elif name in report.trials:
            imputer = compared if name == report.default else report.fitted(name)
            yield name, (imputer.transform(given)[:, inputs.shape[1] :], imputer.std_)


def _losses(mean: Array, sd: Array, targets: Array, truth: Array) -> Array:
    """The NLL ``(n, P)`` of what was hidden, in units of the columns' standard deviations."""
    unit = np.nanstd(targets, axis=0)
    return losses((mean - truth) / unit, np.where(np.isnan(truth), np.nan, sd / unit))


def _clustered(values: Array) -> tuple[float, float]:
    """The mean of values ``(n, P)``, NaN where there is none, and its standard error, their runs the units."""
    runs = runs_of(~np.isnan(values))
    cells = zip(runs.columns, runs.starts, runs.stops, strict=True)
    mean = float(np.nanmean(values))
    sums = np.array([np.sum(values[start:stop, column] - mean) for column, start, stop in cells])
    count = len(sums)
    return mean, float(np.sqrt(count / max(count - 1, 1) * np.sum(sums**2)) / np.sum(~np.isnan(values)))
