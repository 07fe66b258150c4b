"""Which imputer fills a table's gaps best: the comparison on blocks that are hidden as its own gaps are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sklearn.base import clone

from cgp.functional.threads import threads_for
from cgp.regression.covariances import Auto, MultiScale, Structure
from cgp.regression.inference import MAP, Windows
from cgp.regression.inference.setting import COMPARED, chosen
from cgp.regression.observations import Observations
from cgp.regression.sums import Sums
from cgp.tables.frames.coordinates import PERIOD_NAMES, offered_periods
from cgp.tables.frames.table import Table, check_is_table, read_table
from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.known import known_sums
from cgp.tables.masking import HiddenBlocks, class_order
from cgp.tables.transforms.choice import as_they_are, chosen_transforms

from .baselines import CalendarTrees, LaggedRidge, LinearInterpolation, SeasonalMean
from .report import GapReport
from .scores import Strata
from .summed import SummedImputer, takes_totals
from .trials import Trial, is_part_of, run_trials

__all__ = ["assess_gaps", "comparison_seconds"]

_MASKINGS = 3
_LONG = 10.0  # seconds from which progress is shown on a terminal
_STRUCTURES = ("coregionalised", "shared", "shifted")  # compared by one fit
_CORRELATED, _ALONE = "the correlated GP", "the GP"
_SERIES_KERNEL = "matern32"
_FEWEST = 200  # rows that trees learn from


def assess_gaps(
    table: Any,
    imputer: CorrelatedGPImputer | None = None,
    *,
    methods: Mapping[str, Any] | None = None,
    totals: Any = None,
    maskings: int = _MASKINGS,
    share: float = 0.1,
    random_state: int = 0,
    verbose: bool | None = None,
) -> GapReport:
    r"""Score imputers on blocks of a table that are hidden in the pattern of its gaps.

    The pattern is read from the table: how long runs of missing rows are, which columns are missing together, and which
    runs are at an end. Blocks drawn from it are hidden where there are values, a tenth of them at most at a time, none
    twice; every method fills each masking, and is scored on the hidden blocks by its negative log predictive density.
    Classes of length weigh what is missing in them. Methods without an uncertainty get a Gaussian with the spread
    of their errors in the other maskings, by the distance to the nearest value.

    Compared are, the simplest first: linear interpolation (over several inputs the nearest row); the mean of the hour
    and the month, where the index is times; Bayesian ridge regression on the other columns at this and the two rows
    before and after; gradient-boosted trees on the ends of the gap, the other columns and the calendar, of series of
    200 rows and more; one Gaussian process per column; ``imputer`` without the transforms that it chooses, if there are
    any, and with them; and, up to 2,000 observations of an imputer that would average, each of the structures
    "coregionalised", "shared" and "shifted" by itself, and the cycles of a day, a week and a year of which the times
    span three, three and two.

    Args:
        table: a frame, a series, or an array ``(n, k)``; NaN is missing.
        imputer: not fitted, with the inputs, codes and kernel that it should have; None is the default one.
        methods: instead of those above, imputers in scikit-learn's convention by name, the simplest first. Those with
            ``std_`` have their own uncertainty.
        totals: of its columns, as :meth:`.CorrelatedGPImputer.fit` takes them. Blocks that are hidden in these columns
            have their totals, too, and what other methods fill is moved to have them, every value by as much.
        maskings: number of times that blocks are hidden, at least 2.
        share: largest share of the values that a masking hides.
        random_state: seed of the places of the blocks.
        verbose: whether progress is shown, with the seconds that are expected; None shows it on a terminal, for more
            than ten.

    Returns:
        The comparison, ending in a sentence; ``best()`` is the imputer that it recommends, with conformal intervals.

    Raises:
        ValueError: if the table or an argument cannot be used, or no method could fill the table.

    Example:
        >>> import numpy as np
        >>> t = np.arange(200.0)
        >>> table = np.column_stack([np.sin(t / 5), np.sin(t / 5 + 1)])
        >>> table[50:60, 0] = np.nan
        >>> report = assess_gaps(table, methods={"lines": LinearInterpolation(), "ridge": LaggedRidge()})
        >>> report.method
        'ridge'
    """
    imputer = CorrelatedGPImputer(random_state=0) if imputer is None else imputer
    if not isinstance(imputer, CorrelatedGPImputer):
        raise ValueError(f"imputer: expected a CorrelatedGPImputer(...) that is not fitted, got {imputer!r}")
    check_is_table(table)
    _check(maskings, share, methods)
    numbers, axis = read_table(table, imputer.inputs, imputer.missing_values)
    _check_columns(numbers)
    hidden = HiddenBlocks.of(numbers, maskings, share, random_state)
    compared = candidates(imputer, numbers, is_time=axis.is_time) if methods is None else dict(methods)
    options = {"inputs": imputer.inputs, "missing_values": imputer.missing_values}
    known = known_sums(totals, numbers, axis)
    if known is not None:
        compared = {n: each if takes_totals(each) else SummedImputer(each, **options) for n, each in compared.items()}
    with (
        threads_for(int(numbers.known.sum())),
        _progress(verbose, lambda: _seconds(compared, numbers, maskings, known)) as say,
    ):
        trials, failures = run_trials(numbers, hidden, compared, known=known, reported=say)
    if not trials:
        raise ValueError(f"methods: none could fill the table: {failures}")
    strata = _strata(hidden, has_gaps=bool(numbers.missing.any()))
    return GapReport(
        methods=compared,
        trials=trials,
        failures=failures,
        hidden=hidden,
        strata=strata,
        has_gaps=bool(numbers.missing.any()),
        default=_default(trials, strata),
        table=table,
        options=options,
        totals=totals,
    )


def comparison_seconds(
    table: Any, imputer: CorrelatedGPImputer, *, totals: Any = None, maskings: int = _MASKINGS
) -> float:
    """Seconds of one core that :func:`assess_gaps` is expected to take, within a factor of about two.

    Args:
        table: a frame, a series, or an array ``(n, k)``; NaN is missing.
        imputer: not fitted.
        totals: of its columns.
        maskings: number of times that blocks are hidden.

    Returns:
        The seconds.

    Raises:
        ValueError: if the table cannot be used.
    """
    numbers, axis = read_table(table, imputer.inputs, imputer.missing_values)
    known = known_sums(totals, numbers, axis)
    return _seconds(candidates(imputer, numbers, is_time=axis.is_time), numbers, maskings, known)


def candidates(imputer: CorrelatedGPImputer, table: Table, *, is_time: bool) -> dict[str, Any]:
    """The imputers that are compared with the correlated process, by name and not fitted, the simplest first."""
    methods, several = _simple(imputer, table, is_time=is_time), table.values.shape[1] > 1
    asked = taken = Structure.of(imputer.structure)
    if isinstance(asked, Auto):
        given = Observations(table.inputs, table.values)
        taken, _ = chosen(given, asked, imputer.inference, imputer.kernel, imputer.num_inducing)
    is_auto, is_long = asked == Auto(), isinstance(taken, MultiScale)
    if several:
        kernel = _SERIES_KERNEL if is_long and imputer.kernel is None else imputer.kernel
        inference = "auto" if isinstance(imputer.inference, Windows) else imputer.inference
        changed = {"structure": "independent", "kernel": kernel, "inference": inference}
        methods["one GP per column"] = clone(imputer).set_params(**changed)
    methods |= _forms(imputer, table, _CORRELATED if several else _ALONE)
    if several and not is_long and is_auto:
        for structure in _STRUCTURES:
            methods[f"the GP {structure!r}"] = clone(imputer).set_params(structure=structure)
    if is_time and not is_long and is_auto:
        methods |= _with_cycles(imputer, table)
    return methods


def _simple(imputer: CorrelatedGPImputer, table: Table, *, is_time: bool) -> dict[str, Any]:
    """Those that are no processes."""
    options = {"inputs": imputer.inputs, "missing_values": imputer.missing_values}
    several, ordered = table.values.shape[1] > 1, table.inputs.shape[1] == 1
    methods: dict[str, Any] = {"linear interpolation" if ordered else "the nearest row": LinearInterpolation(**options)}
    if is_time:
        methods["the seasonal mean"] = SeasonalMean(**options)
    if several:
        methods["ridge on the other columns"] = LaggedRidge(**options)
    if ordered and len(table.inputs) >= _FEWEST:
        methods["trees"] = CalendarTrees(**options) if is_time else CalendarTrees(**options, periods=())
    return methods


def _forms(imputer: CorrelatedGPImputer, table: Table, name: str) -> dict[str, CorrelatedGPImputer]:
    """The process, after the same without transforms where it chooses any."""
    forms, plain = {}, as_they_are(imputer.transforms, table)
    if chosen_transforms(imputer.transforms, table) != chosen_transforms(plain, table):
        which = "other columns" if any(plain.values()) else "columns"
        forms[f"{name} of {which} as they are"] = clone(imputer).set_params(transforms=plain)
    return forms | {name: clone(imputer)}


def _with_cycles(imputer: CorrelatedGPImputer, table: Table) -> dict[str, CorrelatedGPImputer]:
    """The process of many time scales with the cycles of the calendar that the times are enough for."""
    periods = offered_periods(table.inputs[:, 0], int((~table.missing).sum()))
    if not periods:
        return {}
    name = f"the GP with cycles of {' and '.join(PERIOD_NAMES[period] for period in periods)}"
    return {name: clone(imputer).set_params(structure=MultiScale(periods=periods), inference="auto")}


def _default(trials: Mapping[str, Trial], strata: Strata) -> str:
    """The correlated process where it is among what is compared, else the method of the lowest NLL."""
    lowest = min(trials, key=lambda name: strata.mean(trials[name].scores.nll))
    return next((name for name in (_CORRELATED, _ALONE) if name in trials), lowest)


def _strata(hidden: HiddenBlocks, *, has_gaps: bool) -> Strata:
    """The classes of the blocks, weighed by the missing values of the table."""
    labels, lengths = hidden.runs.labels, hidden.runs.lengths
    sizes = {label: float(lengths[labels == label].sum()) for label in set(labels.tolist())} if has_gaps else {}
    order = class_order([*labels.tolist(), *hidden.labels.tolist()])
    return Strata.of(hidden.labels.tolist(), order, sizes)


def _seconds(methods: Mapping[str, Any], table: Table, maskings: int, known: Sums | None) -> float:
    """Expected seconds of all fits; those of the simple imputers are neglected, and what a fit provides besides."""
    processes = [each for each in methods.values() if isinstance(each, CorrelatedGPImputer)]
    compared = [each for each in processes if known is None and _compares(each, table)]
    fitted = [each for each in processes if not any(is_part_of(each, other, COMPARED) for other in compared)]
    return maskings * sum(float(each.estimate(table.given, totals=known).seconds) for each in fitted)


def _compares(imputer: CorrelatedGPImputer, table: Table) -> bool:
    """Whether a fit has the most probable parameters of each of several structures."""
    if not isinstance(Structure.of(imputer.structure), Auto):
        return False
    setting, inference = imputer._regressor()._planned(table.inputs, table.outputs(), None)
    return setting.is_compared and inference.name == MAP.name


@contextmanager
def _progress(verbose: bool | None, seconds: Callable[[], float]) -> Iterator[Callable[[str, int], object] | None]:
    """Function that shows the step on the standard error stream, elsewhere than on terminals each method's first."""
    is_terminal = sys.stderr.isatty()
    if verbose is False or (verbose is None and not is_terminal):
        yield None
        return
    expected = seconds()
    if verbose is None and expected <= _LONG:
        yield None
        return
    sys.stderr.write(f"assess_gaps: about {expected:.0f} s\n")

    def say(what: str, masking: int) -> None:
        if is_terminal or masking == 0:
            start, end = ("\r\x1b[K", "") if is_terminal else ("", "\n")
            sys.stderr.write(f"{start}assess_gaps: {what}{end}")
            sys.stderr.flush()

    try:
        yield say
    finally:
        sys.stderr.write("\n" if is_terminal else "")


def _check(maskings: int, share: float, methods: Any) -> None:
    if methods is not None and not (
        isinstance(methods, Mapping) and all(hasattr(m, "fit_transform") for m in methods.values())
    ):
        raise ValueError(
            "methods: expected imputers by name, the simplest first, such as {'mean': SimpleImputer(), 'mine': ...}, "
            f"got {methods!r}"
        )
    if methods is not None and not methods:
        raise ValueError("methods: expected at least one imputer, got none")
    if maskings < 2:
        raise ValueError(f"maskings: expected at least 2, got {maskings}")
    if not 0.0 < share <= 0.5:
        raise ValueError(f"share: expected a number above 0, and at most 0.5, got {share}")


def _check_columns(table: Table) -> None:
    dead = [name for name, column in zip(table.names, table.missing.T, strict=True) if column.all()]
    if dead:
        raise ValueError(f"X: expected at least one value in each column, got none in {dead}: leave them out")
