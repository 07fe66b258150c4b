"""PhysioNet's stays in intensive care: one panel of patients, and what else a user would do.

Protocol, written before the runs of the results page.

Data: imputegap's 7,824 rows of 35 columns, standardised there: 163 stays of 48 hours, four fifths of the cells missing.
A tenth of the known values is hidden at random; every method learns from the rest, all stays with their gaps, and fills
what is hidden. Methods: the panel (all defaults); the same with one column at a time, so that each has a process of its
own ("one process per column"); the default imputer on all rows as one table ("long table"); lines within a stay and the
last value carried forward (0, the mean, before and without any); the mean.

MAE, RMSE of hidden values, and negative log-likelihood, CRPS and coverage of 95 % of the normal law with our means and
standard deviations. Beside each: its absolute error less the panel's, with a standard error over stays, in the first
masking. CPU seconds of learning and filling, and of filling one stay.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cgp.comparisons import Difference
from cgp.tables import CorrelatedGPImputer
from experiments.atomic_files import write_text

from .sets import append_row, imputegap_file
from .tsi import scores

__all__ = ["patients", "patients_table", "stays"]

Array = NDArray[np.float64]
Filled = tuple[Array, Array | None]
_HOURS, _HIDDEN = 48, 0.1
_NAMES = {
    "panel": "panel of stays",
    "columns": "panel, one process per column",
    "long": "default, one long table",
    "lines": "lines",
    "carried": "last value carried forward",
    "mean": "mean",
}


def stays() -> Array:
    """The stays ``(163, 48, 35)``, NaN where nothing was measured."""
    rows = np.genfromtxt(imputegap_file("z_physionet_saits_small.txt"))
    return rows.reshape(-1, _HOURS, rows.shape[1])


def patients(out: Path, maskings: int = 2, methods: tuple[str, ...] = tuple(_NAMES)) -> None:
    """PhysioNet's stays: ``patients.csv``, a line for each masking and method, and ``patients.md``, the page's table.

    Lines that the CSV has are left as they are, so that a run can be continued.

    Args:
        out: folder of the results.
        maskings: number of them.
        methods: which of the methods; the panel comes first.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, truth = out / "patients.csv", stays()
    for masking in range(maskings):
        hidden = ~np.isnan(truth) & (np.random.default_rng(masking).random(truth.shape) < _HIDDEN)
        known = np.where(hidden, np.nan, truth)
        for method in methods:
            if path.exists() and (pd.read_csv(path)[["masking", "method"]] == [masking, method]).all(axis=1).any():
                continue
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of what looks like a code
                mean, sd = _METHODS[method](known)
            seconds = time.process_time() - start
            error = np.abs(mean - truth)
            saved = out / f"panel_{masking}.npy"  # its errors, for the differences of a later run
            if method == "panel":
                np.save(saved, error)
            paired = Difference.of_groups((error - np.load(saved))[hidden], np.nonzero(hidden)[0])
            row = {"masking": masking, "method": method, "seconds": seconds}
            row |= scores(truth[hidden], mean[hidden], None if sd is None else sd[hidden])
            append_row(path, row | {"difference": paired.mean, "error": paired.error}, _COLUMNS)
    write_text(out / "patients.md", patients_table(pd.read_csv(path)))


_COLUMNS = (*("masking", "method", "mae", "mse", "mre", "nll", "crps", "coverage", "seconds", "difference", "error"),)


def patients_table(rows: pd.DataFrame) -> str:
    """The results page's table, means over maskings."""
    names = "", "MAE", "less the panel's", "RMSE", "NLL", "CRPS", "in 95 %", "CPU s"
    lines = [f"| {' | '.join(names)} |", "| --- |" + " ---: |" * (len(names) - 1)]
    first = rows[rows.masking == 0].set_index("method")
    mean = rows.assign(rmse=rows.mse**0.5).groupby("method").mean()
    for method, name in _NAMES.items():
        if method not in mean.index:
            continue
        row, paired = mean.loc[method], first.loc[method]
        law = (f"{row[part]:.3f}" if np.isfinite(row[part]) else "" for part in ("nll", "crps", "coverage"))
        ahead = "" if method == "panel" else f"{paired.difference:+.3f} ± {paired.error:.3f}"
        lines.append(f"| {name} | {row.mae:.3f} | {ahead} | {row.rmse:.3f} | {' | '.join(law)} | {row.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def _panel(known: Array) -> Filled:
    imputer = CorrelatedGPImputer(random_state=0, verbose=False)
    return imputer.fit_transform(known), imputer.std_


def _columns(known: Array) -> Filled:
    parts = [_panel(known[..., [column]]) for column in range(known.shape[-1])]
    means, sds = zip(*parts, strict=True)
    return np.concatenate(means, -1), np.concatenate(sds, -1)


def _long(known: Array) -> Filled:
    mean, sd = _panel(known.reshape(-1, known.shape[-1]))
    return mean.reshape(known.shape), None if sd is None else sd.reshape(known.shape)


def _each(filled: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Array], Filled]:
    return lambda known: (np.stack([filled(pd.DataFrame(stay)).fillna(0.0).to_numpy() for stay in known]), None)


_METHODS: dict[str, Callable[[Array], Filled]] = {
    "panel": _panel,
    "columns": _columns,
    "long": _long,
    "lines": _each(lambda stay: stay.interpolate(limit_direction="both")),
    "carried": _each(lambda stay: stay.ffill()),
    "mean": lambda known: (np.broadcast_to(np.nanmean(known, (0, 1)), known.shape), None),
}
