"""TSI-Bench with parts of ours switched off: what each of them is for.

Protocol, written before the runs of the results page. Two cells (ItalyAir's blocks, ETT_h1 with half of its values),
the maskings of the first masking of :mod:`.tsi`. Of the panel the learned parametric covariance stays, and what the
evidence chose about it goes: the covariance that is learned freely, the means of the cells, the scales of the windows,
and all three. Of the default imputer on the whole table: the distributions of errors by class of gap ("tails"; they
change no mean), and the transforms of columns. Parameters are those that are learned, of the free covariance and the
means one for each number.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from cgp.functional.gappy_tables import TableLaw
from cgp.regression.inference.panels import FREEDOM, batches_of
from cgp.tables import CorrelatedGPImputer
from cgp.tables.tails import Tails
from experiments.atomic_files import write_text

from .sets import append_row
from .tsi import PATTERN_NAMES, Windows, hidden, scores, tsi_windows

__all__ = ["parts", "parts_table"]

Array = NDArray[np.float64]
_CELLS = (("ItalyAir", "block05"), ("ETT_h1", "point05"))
_COLUMNS = ("dataset", "pattern", "method", "parameters", "mae", "mse", "mre", "nll", "crps", "coverage")
_EM_STEPS, _MEAN_WEIGHT, _NO_MEANS = 4, 20.0, 1e12


def parts(out: Path, data: str | None = None, cells: tuple[tuple[str, str], ...] = _CELLS) -> None:
    """Ours without each part: ``parts.csv``, a line for each, and ``parts.md``, the results page's table.

    Args:
        out: folder of the results.
        data: folder of the data; None is CGP_DATA.
        cells: sets and patterns.
    """
    out.mkdir(parents=True, exist_ok=True)
    for dataset, pattern in cells:
        windows = tsi_windows(dataset, data)
        np.random.seed(2024)  # noqa: NPY002 (pygrinder draws from it)
        known = np.concatenate([hidden(part, dataset, pattern) for part in windows[:2]])
        test = hidden(windows.test, dataset, pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of -200, which is a value here
            for row in [*_of_panel(known, test, windows), *_of_table(known, test, windows)]:
                append_row(out / "parts.csv", {"dataset": dataset, "pattern": pattern} | row, _COLUMNS)
    write_text(out / "parts.md", parts_table(pd.read_csv(out / "parts.csv")))


def parts_table(rows: pd.DataFrame) -> str:
    """The results page's table."""
    names = "set, gaps", "", "parameters", "MAE", "MSE", "NLL", "CRPS", "in 95 %"
    lines = [f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * (len(names) - 2)]
    for row in rows.itertuples():
        cell = f"{row.dataset}, {PATTERN_NAMES[row.pattern]} | {row.method} | {row.parameters:,.0f}"
        lines.append(
            f"| {cell} | {row.mae:.3f} | {row.mse:.3f} | {row.nll:.3f} | {row.crps:.3f} | {row.coverage:.3f} |"
        )
    return "\n".join(lines) + "\n"


def _of_panel(known: Array, test: Array, windows: Windows) -> list[dict[str, Any]]:
    imputer = CorrelatedGPImputer(random_state=0, verbose=False).fit(known)
    panel = imputer.panel_
    assert panel.grid is not None
    assert panel.law is not None
    tables = torch.as_tensor(panel.scaling.apply(known.reshape(-1, known.shape[-1])).reshape(len(known), -1))
    covariance = panel.covariance(torch.as_tensor(panel.grid) / panel.lag).detach()
    varies, weight = panel.law.freedom < math.inf, panel.weight
    options = {
        "panel": (weight, panel.has_means, varies),
        "panel, no free covariance": (math.inf, panel.has_means, varies),
        "panel, no means of cells": (weight, False, varies),
        "panel, no scales of windows": (weight, panel.has_means, False),
        "panel, parametric covariance alone": (math.inf, False, False),
    }
    size, base = len(covariance), sum(each.numel() for each in panel.covariance.parameters())
    rows = []
    for name, (own, means, scales) in options.items():
        law = _law(covariance, tables, own, means, scales)
        imputer.panel_ = replace(panel, law=law)
        count = base + means * size + (own < math.inf) * size * (size + 1) // 2
        mean, sd = imputer.transform(test), imputer.update(test).std_[-len(test) :]
        rows.append({"method": name, "parameters": count} | _scored(windows.test, test, mean, sd))
    return rows


def _law(covariance: torch.Tensor, tables: torch.Tensor, weight: float, means: bool, scales: bool) -> TableLaw:
    """The law of tables about a parametric covariance, with some of its freedoms."""
    centre = TableLaw(covariance.new_zeros(len(covariance)), covariance)
    law = centre = centre.varying(FREEDOM) if scales else centre
    for _ in range(_EM_STEPS if means or weight < math.inf else 0):
        law = law.refined(centre, batches_of(tables), weight, _MEAN_WEIGHT if means else _NO_MEANS)
    return law


def _of_table(known: Array, test: Array, windows: Windows) -> list[dict[str, Any]]:
    table = np.concatenate([known, test]).reshape(-1, test.shape[-1])
    rows = []
    for name, transforms in (("whole table", "auto"), ("whole table, no transforms", "none")):
        imputer = CorrelatedGPImputer(random_state=0, verbose=False, transforms=transforms).fit(table)
        model = imputer.regressor_.model_
        count = sum(each.numel() for each in model.parameters())
        parts = {name: imputer.tails_} | ({"whole table, no tails": Tails({})} if transforms == "auto" else {})
        for each, tails in parts.items():
            imputer.tails_, imputer._known = tails, None
            mean, sd = (part[-test.shape[0] * test.shape[1] :] for part in (imputer.transform(table), imputer.std_))
            scored = _scored(windows.test, test, mean.reshape(test.shape), sd.reshape(test.shape))
            rows.append({"method": each, "parameters": count} | scored)
    return rows


def _scored(truth: Array, test: Array, mean: Array, sd: Array) -> dict[str, float]:
    gaps = np.isnan(test)
    return scores(truth[gaps], mean[gaps], sd[gaps])
