"""Predictions of hidden values by imputers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from cgp.regression.sums import Sums
from cgp.tables.frames.table import Table
from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.masking import HiddenBlocks
from cgp.tables.transforms.columns import ValueScores

from .scores import BlockScores, Residuals, Spread
from .summed import with_hidden_blocks

__all__ = ["Trial", "is_part_of", "run_trials"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class Trial(NamedTuple):
    """Predictions of the hidden values by a method.

    Attributes:
        errors: in units of the columns' standard deviations, ``(m,)``.
        sd: predictive standard deviations, likewise, ``(m,)``.
        standardised: errors where the predictive distribution is standard normal, ``(m,)``.
        scores: of every block.
        seconds: of the processor, for a fit.
        spread: spread of its errors, if it has no uncertainty of its own.
    """

    errors: Array
    sd: Array
    standardised: Array
    scores: BlockScores
    seconds: float
    spread: Spread | None


def run_trials(
    table: Table,
    hidden: HiddenBlocks,
    methods: Mapping[str, Any],
    *,
    known: Sums | None = None,
    reported: Callable[[str, int], object] | None = None,
) -> tuple[dict[str, Trial], dict[str, str]]:
    """Let every method fill every masking of a table.

    Args:
        table: n rows, P columns.
        hidden: the blocks.
        methods: imputers by name; all take totals if there are any.
        known: totals of the table; hidden blocks of their columns have theirs too.
        reported: is told what is being fitted, and the number of the masking.

    Returns:
        The trial of each method, and the errors of those that failed.
    """
    trials: dict[str, Trial] = {}
    failures: dict[str, str] = {}
    fits = _Fits(table, hidden, known, reported or (lambda what, masking: None))
    order = sorted(methods, key=lambda name: getattr(methods[name], "structure", "") != "auto")
    for number, name in enumerate(order, start=1):
        try:
            trials[name] = _trial(fits, f"{number} of {len(methods)}, {name}", methods[name])
        except (ValueError, RuntimeError, np.linalg.LinAlgError) as error:
            failures[name] = f"{type(error).__name__}: {error}"
    return {name: trials[name] for name in methods if name in trials}, failures


def _trial(fits: _Fits, name: str, method: Any) -> Trial:
    table, hidden, unit = fits.table, fits.hidden, fits.table.units
    masking_of = hidden.maskings[hidden.blocks]
    errors, sd, *own = np.full((5, len(hidden.rows)), np.nan)
    seconds = []
    for masking in range(int(hidden.maskings.max()) + 1):
        fits.reported(f"{name}, masking {masking + 1} of {int(hidden.maskings.max()) + 1}", masking)
        values = masking_of == masking
        cells = hidden.rows[values], hidden.columns[values]
        filling, took = fits.filled(masking, method)
        errors[values] = ((filling.mean - table.values) / unit)[cells]
        if filling.sd is not None:
            sd[values] = (filling.sd / unit)[cells]
        if filling.scores is not None:
            for part, score in zip(own, filling.scores.in_units(unit), strict=True):
                part[values] = score[cells]
        seconds.append(took)
    if not np.isfinite(errors).all():
        raise ValueError("expected a finite value in every gap")
    learned = None
    if not (np.isfinite(sd) & (sd > 0)).all():
        residuals = Residuals(errors, hidden.columns, hidden.distances, hidden.blocks)
        sd, learned = _cross_fitted(residuals, hidden.maskings, len(unit)), Spread.of(residuals, len(unit))
    values = ValueScores(*own) if np.isfinite(own).all() else ValueScores.of(errors, sd)
    scores = BlockScores.of(errors, values, hidden.blocks, len(hidden.labels))
    return Trial(errors, sd, values.errors, scores, float(np.mean(seconds)), learned)


class _Filling(NamedTuple):
    """What an imputer fills in, ``(n, P)`` each.

    Attributes:
        mean: the values.
        sd: their standard deviations, if it has any.
        scores: of the true values, if it has a distribution of its own.
    """

    mean: Array
    sd: Array | None
    scores: ValueScores | None


class _Fits:
    """Fits to the maskings of a table; an imputer that compared structures provides each without a fit."""

    def __init__(
        self, table: Table, hidden: HiddenBlocks, known: Sums | None, reported: Callable[[str, int], object]
    ) -> None:
        self.table, self.hidden, self.known, self.reported = table, hidden, known, reported
        self.compared: list[tuple[int, CorrelatedGPImputer, float]] = []

    def filled(self, masking: int, method: Any) -> tuple[_Filling, float]:
        """What a method fills in, in a masking, and its seconds."""
        cells = self.hidden.cells(masking, self.table.values.shape)
        for number, imputer, seconds in self.compared:
            if number == masking and is_part_of(method, imputer, imputer.regressor_.criteria_):
                masked = self.table._replace(values=np.where(cells, np.nan, self.table.values))
                imputer = imputer._with_structure(method.structure)
                filled = imputer._given_by(imputer.regressor_, masked)
                return _Filling(*filled.moments, filled.scored(self.table.values)), seconds
        start = time.process_time()
        known = None if self.known is None else with_hidden_blocks(self.known, self.table, self.hidden, masking)
        imputer, filling = _fitted(self.table.hiding(cells), self.table, method, known)
        seconds = time.process_time() - start
        is_point = isinstance(imputer, CorrelatedGPImputer) and imputer.regressor_.inference_ == "map"
        if is_point and known is None and imputer.regressor_.criteria_:
            self.compared.append((masking, imputer, seconds))
        return filling, seconds


def is_part_of(method: Any, imputer: CorrelatedGPImputer, structures: Container[Any]) -> bool:
    """Whether an imputer fits a method, too, as one of the structures that it compares."""
    if not isinstance(method, CorrelatedGPImputer) or method.structure not in structures:
        return False
    first, second = (each.get_params(deep=False) for each in (method, imputer))
    return all(first[name] is second[name] or first[name] == second[name] for name in first if name != "structure")


def _cross_fitted(residuals: Residuals, maskings: Integers, num_columns: int) -> Array:
    """Standard deviations ``(m,)`` of errors, learned in each masking from those of the others."""
    sd = np.empty_like(residuals.errors)
    for masking in np.unique(maskings):
        spread = Spread.of(residuals.of_blocks(maskings != masking), num_columns)
        values = maskings[residuals.blocks] == masking
        sd[values] = spread.at(residuals.distances[values], residuals.columns[values])
    return sd


def _fitted(given: Any, table: Table, method: Any, known: Sums | None) -> tuple[Any, _Filling]:
    """An imputer fitted to a table with hidden values, and what it fills in."""
    imputer = clone(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # the fit to the whole table says the same
        filled = imputer.fit_transform(given) if known is None else imputer.fit(given, totals=known).transform(given)
    sd = getattr(imputer, "std_", None)
    sd = None if sd is None else np.asarray(sd, dtype=np.float64).reshape(table.values.shape)
    scores = imputer._filled.scored(table.values) if isinstance(imputer, CorrelatedGPImputer) else None
    return imputer, _Filling(table.values_of(filled), sd, scores)
