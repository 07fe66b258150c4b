"""ImputeGAP's data, gaps and algorithms beside the default imputer.

Protocol, written before the runs of the results page.

Data: the fourteen sets that the index of imputegap 1.1.2 lists, z-scored and cut to their first 1,000 values and 20
series by its own loader (its benchmark cuts, too: to 2,000 and 200). Gaps: its module GenGap with the arguments of its
benchmark, that is .4 of the series lose .4 of their values after the first tenth, in blocks of ten ("mcar"; two in
sets of fewer than 250 values), in one stretch for all ("aligned"), in stretches that overlap by a twentieth
("overlap") or follow each other ("disjoint", one stretch in each series), and single values, more of them in the
middle ("gaussian"); and, run last, one stretch that all series lose ("blackout"). numpy's global generator is seeded
with 42 before each.

Methods: CDRec, IterativeSVD, SoftImpute, SVT, ROSL, GROUSE, TRMF, STMVL, DynaMMo, KNNImpute, MICE, XGBOOST,
Interpolation and MeanImputeBySeries with the package's defaults, and `CorrelatedGPImputer(random_state=0)`. IIM,
MissForest and BayOTIDE run, but take 20 to 40 CPU seconds a cell, and SPIRIT and TKCM give NaN where several series
have gaps: they were tried once and are left out, as deep models are.

RMSE of the hidden values as theirs. The sets are z-scored before values are hidden, so that every column has mean 0 and
variance 1 with what is hidden. Methods that take this as given read from it what they are to find; a user has no such
scores. Each algorithm is therefore run a second time, on columns that are standardised by what they show ("shown"; this
was added after half of the cells had been seen). Beside each: its difference from ours, with a standard error over
groups of hidden values (a tenth of the rows of one series). Best within the error: no method is ahead of ours by more
than one error.
In the first round each set has one pattern, the next one in the list for each next set, in the second round the one
after, and so on: where time ends, whole rounds or their ends are cut. (The order was pattern by pattern in the first
three cells; it was changed before any other, as the machine allowed for a third of the grid.) After a rate of .4 came
.1, to be followed by .8.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cgp.tables import CorrelatedGPImputer
from experiments.atomic_files import write_text

from .sets import installed

__all__ = ["GPImputer", "algorithm", "grouped_difference", "imputegap", "imputegap_table", "part", "shown_rmse"]

Array = NDArray[np.float64]
DATASETS = (
    *("airq", "bafu", "chlorine", "climate", "drift", "eeg-alcohol", "electricity", "meteo", "motion", "soccer"),
    *("sport-activity", "stock-exchange", "temperature", "traffic"),
)
PATTERNS = ("mcar", "aligned", "overlap", "disjoint", "gaussian", "blackout")
ALGORITHMS = (
    *("CDRec", "IterativeSVD", "SoftImpute", "SVT", "ROSL", "GROUSE", "TRMF", "STMVL", "DynaMMo", "KNNImpute"),
    *("MICE", "XGBOOST", "Interpolation", "MeanImputeBySeries"),
)
_STRETCHES = 10  # of the rows, whose errors of one series are one group


class GPImputer:
    """The default imputer for users of ImputeGAP: ``GPImputer(incomplete).impute().recov_data``, and ``score``.

    Its data are values by series, NaN where missing, as ImputeGAP's; ``impute(params=...)`` takes arguments of
    :class:`.CorrelatedGPImputer`. ``std`` has the standard deviations of what is filled.
    """

    algorithm = "CorrelatedGP"

    def __init__(self, incomp_data: Array) -> None:
        self.incomp_data = incomp_data
        self.recov_data = self.std = np.empty(0)
        self.metrics: dict[str, float] = {}

    def impute(self, params: dict[str, Any] | None = None) -> GPImputer:
        """Fill the gaps."""
        imputer = CorrelatedGPImputer(**{"random_state": 0, "verbose": False} | (params or {}))
        self.recov_data, self.std = imputer.fit_transform(self.incomp_data), imputer.std_
        return self

    def score(self, input_data: Array, recov_data: Array | None = None) -> None:
        """ImputeGAP's scores of what was filled, in ``metrics``."""
        filled = self.recov_data if recov_data is None else recov_data
        evaluation = part("recovery.evaluation").Evaluation(input_data, filled, self.incomp_data, self.algorithm)
        self.metrics = evaluation.compute_all_metrics()


def imputegap(
    out: Path,
    datasets: tuple[str, ...] = DATASETS,
    patterns: tuple[str, ...] = PATTERNS,
    rates: tuple[float, ...] = (0.4,),
    algorithms: tuple[str, ...] = ALGORITHMS,
) -> None:
    """ImputeGAP: ``imputegap.csv``, a line for each cell and method, and ``imputegap.md``, the results page's table.

    Cells that the CSV has are left as they are, so that a run can be continued.

    Args:
        out: folder of the results.
        datasets: which of the sets.
        patterns: which of the patterns.
        rates: of the series, and of the values of each.
        algorithms: which of ImputeGAP's.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / "imputegap.csv"
    for rate, first, (number, dataset) in itertools.product(rates, range(len(patterns)), enumerate(datasets)):
        pattern = patterns[(first + number) % len(patterns)]
        cell = {"dataset": dataset, "pattern": pattern, "rate": rate}
        if path.exists() and (pd.read_csv(path)[list(cell)] == pd.Series(cell)).all(axis=1).any():
            continue
        rows = pd.DataFrame([cell | row for row in _cell(dataset, pattern, rate, algorithms)])
        rows.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.4f")
        print(rows.to_string(index=False), flush=True)
    write_text(out / "imputegap.md", imputegap_table(pd.read_csv(path)))


def imputegap_table(rows: pd.DataFrame) -> str:
    """The results page's table: of each cell our RMSE, and the lowest of the others, twice."""
    names = "set", "gaps", "rate", "ours", "in 95 %", "CPU s", "lowest of the others", "difference", "lowest by shown"
    lines = [f"| {' | '.join(names)} |", "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | --- |"]
    for (rate, pattern, dataset), cell in rows.groupby(["rate", "pattern", "dataset"]):
        method = cell.set_index("method")
        ours = method.loc["cgp"]
        others = method.drop(index="cgp").sort_values("rmse")
        best, is_behind = others.iloc[0], (others.difference < -others.error).any()
        score = f"{ours.rmse:.3f}" if is_behind else f"**{ours.rmse:.3f}**"
        paired, shown = f"{best.difference:+.3f} ± {best.error:.3f}", others.sort_values("shown").iloc[0]
        lowest = f"{best.name} {best.rmse:.3f} | {paired} | {shown.name} {shown.shown:.3f}"
        cells = dataset, pattern, f"{rate:g}", score, f"{ours.coverage:.3f}", f"{ours.seconds:.0f}", lowest
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def grouped_difference(truth: Array, filled: Array, ours: Array, gaps: NDArray[np.bool_]) -> tuple[float, float]:
    r"""How far a RMSE is above ours, with its standard error over groups of hidden values.

    .. math:: r - r_0 = \frac{1}{n (r + r_0)} \sum_g D_g, \qquad D_g = \sum_{i \in g} (e_i^2 - e_{0i}^2)

    Args:
        truth: values by series, ``(T, P)``.
        filled: by the method.
        ours: by the default imputer.
        gaps: what was hidden.

    Returns:
        The difference, and its error.
    """
    rows, series = np.nonzero(gaps)
    theirs, own = ((each[gaps] - truth[gaps]) ** 2 for each in (filled, ours))
    groups = series * _STRETCHES + rows * _STRETCHES // len(truth)
    counts = np.bincount(groups)
    sums = np.bincount(groups, theirs - own)[counts > 0]
    counts = counts[counts > 0]
    mean = sums.sum() / counts.sum()
    spread = np.sqrt(((sums - mean * counts) ** 2).sum() * len(counts) / max(len(counts) - 1, 1)) / counts.sum()
    scale = np.sqrt(theirs.mean()) + np.sqrt(own.mean())
    return float(mean / scale), float(spread / scale)


def _cell(dataset: str, pattern: str, rate: float, algorithms: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Every method's row of a set with gaps, ours first."""
    truth, incomplete = _contaminated(dataset, pattern, rate)
    gaps = np.isnan(incomplete)
    ours = GPImputer(incomplete)
    filled, seconds = _timed(lambda: ours.impute().recov_data)
    inside = np.abs(filled - truth)[gaps] < 1.96 * ours.std[gaps]
    yield {"method": "cgp", "rmse": _rmse(truth, filled, gaps), "seconds": seconds, "coverage": inside.mean()}
    for name in algorithms:
        other, seconds = _timed(algorithm(name, incomplete))
        difference, error = grouped_difference(truth, other, filled, gaps)
        row = {"method": name, "rmse": _rmse(truth, other, gaps), "seconds": seconds}
        yield row | {"difference": difference, "error": error, "shown": shown_rmse(name, truth, incomplete)}


def shown_rmse(name: str, truth: Array, incomplete: Array) -> float:
    """The RMSE of an algorithm on columns that are standardised by what they show, in the units of the truth."""
    centre, unit = np.nanmean(incomplete, 0), np.nanstd(incomplete, 0).clip(min=1e-12)
    filled, _ = _timed(algorithm(name, (incomplete - centre) / unit))
    return _rmse(truth, filled * unit + centre, np.isnan(incomplete))


def _rmse(truth: Array, filled: Array, gaps: NDArray[np.bool_]) -> float:
    return float(np.sqrt(np.mean((filled - truth)[gaps] ** 2)))


def _contaminated(dataset: str, pattern: str, rate: float) -> tuple[Array, Array]:
    """A set of imputegap, cut, and the same with gaps."""
    utils, series = part("tools.utils"), part("recovery.manager").TimeSeries(verbose=False)
    series.load_series(utils.search_path(dataset), nbr_series=20, nbr_val=1000, normalizer="z_score", verbose=False)
    np.random.seed(42)  # noqa: NPY002 (imputegap draws from it)
    block = 2 if len(series.data) < 250 else 10
    options = {"dataset_rate": rate, "series_rate": rate, "block_size": block, "verbose": False}
    return series.data, utils.config_contamination(ts=series, pattern=pattern, **options)


def algorithm(name: str, incomplete: Array) -> Callable[[], Array]:
    """What an algorithm of imputegap fills, when it is called."""

    def filled() -> Array:
        options = {"incomp_data": incomplete.copy(), "algorithm": name, "verbose": False}
        imputer = part("tools.utils").config_impute_algorithm(**options)
        imputer.impute()
        return np.asarray(imputer.recov_data)

    return filled


def part(name: str) -> Any:
    """A module of imputegap, whose own 50 requirements nothing here needs: it is no requirement of ours."""
    installed("imputegap")
    return importlib.import_module(f"imputegap.{name}")


def _timed(fill: Callable[[], Array]) -> tuple[Array, float]:
    start = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        filled = fill()
    return filled, time.process_time() - start
