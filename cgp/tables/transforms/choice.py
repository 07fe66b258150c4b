"""Which transform a column has: declared, or chosen by the likelihood of its values given those next to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

from cgp.comparisons import Difference
from cgp.regression.conventions import Accepted
from cgp.regression.covariances.wide import WIDE
from cgp.spelling import meant
from cgp.tables.frames.copies import copies_of
from cgp.tables.frames.gaps import ordered_rows
from cgp.tables.frames.table import Table

from .columns import Transforms
from .kinds import BoxCox, Logit, Rectified, Transform, Unchanged, YeoJohnson
from .names import AUTO, check_name

__all__ = [
    "as_they_are",
    "asked_to_change",
    "check_transforms",
    "chosen_transforms",
    "has_atoms",
    "restored_setting",
    "setting_content",
]

Array = NDArray[Any]

_FEWEST = 100  # values between two others below which nothing is chosen
_MOST = 2000  # that are enough to choose by
_TIED = 0.3  # rank correlation from which another column depends on whether a value is 0
_ATOM = 0.05  # share of values that are the same, such as no rain
_FEW_VALUES = 30  # distinct ones: a code or a count
_FEW_STEPS = 10  # distinct ones above 0: a gauge counts tenths of a millimetre
_OTHERS = 5  # columns that a value is predicted from, the most correlated ones
_LEAST_GAIN, _CLEAR = 0.1, 2.0  # nats a value, and standard errors above: smaller gains were none in filled values
_GROUPS = 20  # of successive values, for the error of a gain
_POWERS, _SHIFTS = (0.0, 0.25, 0.5), (0.02, 0.1, 0.3)  # shifts in standard deviations
_SIDED = (0.5, 0.75, 1.25, 1.5)
_RANGES = (1.0, 100.0)  # of shares and of percentages
_NEAR_ITS_END = 0.9


def chosen_transforms(asked: Any, table: Table, summed: Sequence[int] = ()) -> Transforms:
    """The transforms of a table's columns.

    Args:
        asked: of all columns, or by name, others being "auto": a name, an object, or None.
        table: n rows, P columns.
        summed: columns whose sums are known: "auto" leaves them as they are.

    Returns:
        The transforms.

    Raises:
        ValueError: if a transform is not known, does not take a value of its column, or is of one with sums only.
    """
    names, order = tuple(table.names), ordered_rows(table.inputs)
    inputs, values = table.inputs[order], table.values[order]
    wishes, kinds, candidates = _options(asked, table, values, summed)
    copies = [copy for copy in copies_of(values) if AUTO in (wishes[copy.column], wishes[copy.of])]
    for copy in copies:
        candidates[copy.column if wishes[copy.column] == AUTO else copy.of] = []  # it has what the other one has
    single = values.copy()
    single[:, [copy.column for copy in copies]] = np.nan
    for _ in range(2 * any(candidates)):  # the second time with the others transformed
        features = _features(kinds, single)
        kinds = [
            _best(options, inputs, values, p, features, cautious=wishes[p] == AUTO) if options else kinds[p]
            for p, options in enumerate(candidates)
        ]
    for column, of, slope, shift in copies:
        if wishes[column] == AUTO:
            alike, other = kinds[of].moved(slope, shift), column
        else:
            alike, other = kinds[column].moved(1.0 / slope, -shift / slope), of
        kinds[other] = alike or Unchanged()
        if alike is None and wishes[of] == wishes[column] == AUTO:
            kinds[of] = Unchanged()
    return Transforms(tuple(kinds), names)


def check_transforms(asked: Any, table: Table, summed: Sequence[int] = ()) -> None:
    """Refuse what :func:`chosen_transforms` refuses, without the work of choosing."""
    _options(asked, table, table.values[ordered_rows(table.inputs)], summed)


def as_they_are(asked: Any, table: Table) -> dict[Any, Any]:
    """The argument by column, with None for "auto"."""
    pairs = zip(table.keys, _by_column(asked, table), strict=True)
    return {key: None if each == AUTO else each for key, each in pairs}


def asked_to_change(asked: Any, table: Table, summed: Sequence[int]) -> list[int]:
    """The columns, of those whose sums are known, that have a transform: "auto" leaves them as they are."""
    wishes = _by_column(asked, table)
    return [p for p in summed if _wish(wishes[p]) not in (AUTO, Unchanged())]


def has_atoms(asked: Any, table: Table, summed: Sequence[int] = ()) -> bool:
    """Whether a column has a bound that many of its values are at, asked for or by their number."""
    wishes = _wishes(asked, table, table.values[ordered_rows(table.inputs)], with_ends=not len(summed))
    return any(each == Rectified.name or isinstance(each, Rectified) for each in wishes)


def setting_content(asked: Any) -> Any:
    """The argument as values for JSON."""
    if isinstance(asked, Transform):
        return asked.content()
    if isinstance(asked, Mapping):
        return [[name, setting_content(each)] for name, each in asked.items()]
    return asked


def restored_setting(content: Any) -> Any:
    """The argument of :func:`setting_content`."""
    if isinstance(content, list):
        return {name: restored_setting(each) for name, each in content}
    return Transform.of_content(content) if isinstance(content, dict) else content


def _by_column(asked: Any, table: Table) -> list[Any]:
    """What is asked of each column; of one that is not named, "auto"."""
    keys = table.keys
    if not isinstance(asked, Mapping):
        return [asked] * len(keys)
    absent = [name for name in asked if name not in keys]
    if absent:
        raise ValueError(f"transforms: expected columns to fill, {list(keys)}, got {absent}{meant(absent, keys)}")
    return [asked.get(key, AUTO) for key in keys]


def _options(
    asked: Any, table: Table, values: Array, summed: Sequence[int]
) -> tuple[list[str | Transform], list[Transform], list[Sequence[Transform]]]:
    """What each column, of ordered values, is to have, what it has so far, and what it may have where that is open."""
    wishes = _wishes(asked, table, values, with_ends=not len(summed))  # with sums an end of a column is a value
    for p in summed:
        if wishes[p] == AUTO:
            wishes[p] = Unchanged()
        elif wishes[p] != Unchanged() and np.isnan(table.values[:, p]).all():
            raise ValueError(
                f"totals: expected readings in a column that is transformed, got none for {table.names[p]!r}: totals "
                f"do not say what its values are like; transforms={{{table.keys[p]!r}: None}}, or add readings"
            )
    kinds = [wish if isinstance(wish, Transform) else Unchanged() for wish in wishes]
    _check_values(Transforms(tuple(kinds), tuple(table.names)), table.values)
    candidates = [
        [] if isinstance(wish, Transform) else _candidates(wish, column, name, key)
        for wish, column, name, key in zip(wishes, values.T, table.names, table.keys, strict=True)
    ]
    return wishes, kinds, candidates


def _wishes(asked: Any, table: Table, values: Array, *, with_ends: bool = True) -> list[str | Transform]:
    """What each column, of ordered values, is to have: of "auto", the end that many are at, but in wide tables."""
    wishes = [_wish(each) for each in _by_column(asked, table)]
    if AUTO not in wishes or not with_ends or len(wishes) > WIDE:
        return wishes
    return [Rectified() if wish == AUTO and _has_zeros_of_its_own(values, p) else wish for p, wish in enumerate(wishes)]


def _wish(asked: Any) -> str | Transform:
    if asked is None or (isinstance(asked, str) and asked == Unchanged.name):
        return Unchanged()
    if isinstance(asked, Transform):
        return asked
    check_name(asked)
    return str(asked)


def _candidates(wish: str, column: Array, name: Any, key: Any) -> Sequence[Transform]:
    """What a column may have, the first being what it has unless another is better."""
    seen = column[~np.isnan(column)]
    if wish != AUTO and len(seen):
        made = _FAMILIES[wish](seen)
        if not made:
            end = f" to {_RANGES[-1]:g}" if wish == Logit.name else " on"
            raise ValueError(
                f"transforms: expected values from 0{end} in column {name!r} for {wish!r}, got {seen.min():g} to "
                f"{seen.max():g}: transforms={ {key: YeoJohnson.name}!r} takes any, transforms={ {key: None}!r} leaves "
                "the column as it is"
            )
        return made
    if not _is_continuous(seen):
        return [Unchanged()]
    bounded = [kind for kind in _logits(seen) if seen.max() > _NEAR_ITS_END * kind.upper]
    return [Unchanged(), *_powers(seen, _POWERS), *_sided(seen), *bounded]


def _powers(seen: Array, powers: Sequence[float]) -> list[Transform]:
    if seen.min() < 0.0:
        return []
    return [BoxCox(power=power, shift=shift * _unit(seen)) for power in powers for shift in _SHIFTS]


def _sided(seen: Array) -> list[Transform]:
    return [YeoJohnson(power=power, centre=float(np.median(seen)), unit=_unit(seen)) for power in _SIDED]


def _logits(seen: Array) -> list[Logit]:
    """That of shares or of percentages."""
    return [Logit(upper=end) for end in _RANGES if seen.min() >= 0.0 and seen.max() <= end][:1]


def _unit(seen: Array) -> float:
    return float(np.std(seen)) or 1.0


_FAMILIES: Mapping[str, Callable[[Array], Sequence[Transform]]] = {
    "log": lambda seen: _powers(seen, (0.0,)),
    "box-cox": lambda seen: _powers(seen, _POWERS),
    "yeo-johnson": _sided,
    "logit": _logits,
    "rectified": lambda seen: [Rectified()] if seen.min() >= 0.0 else [],
}


def _has_zeros_of_its_own(values: Array, p: int) -> bool:
    """Whether a column is often 0, never below and of many values above, as rain, and the others do not know when."""
    # To others that depend on it, as heat on light, a recorded zero says more than a value that is at most 0.
    column = values[:, p]
    seen = ~np.isnan(column)
    zeros, above = (column[seen] == 0.0).sum(), column[column > 0.0]
    if zeros <= _ATOM * seen.sum() or (column[seen] < 0.0).any() or not _varies(above, _FEW_STEPS):
        return False
    return all(abs(_rank_correlation(column, other)) < _TIED for other in np.delete(values, p, axis=1).T)


def _rank_correlation(one: Array, other: Array) -> float:
    """Spearman's, of the rows where both are seen; 0 where a column does not vary."""
    both = _some(np.flatnonzero(~(np.isnan(one) | np.isnan(other))))
    if len(both) < _FEW_VALUES or np.ptp(one[both]) == 0.0 or np.ptp(other[both]) == 0.0:
        return 0.0
    return float(spearmanr(one[both], other[both]).statistic)


def _is_continuous(seen: Array) -> bool:
    """Whether no value is frequent or a gross error, they are many, and they are enough."""
    return _varies(seen, _FEW_VALUES) and np.unique(seen, return_counts=True)[1].max() <= _ATOM * len(seen)


def _varies(seen: Array, distinct: int) -> bool:
    """Whether values are enough, so many are distinct, and none is a gross error."""
    if len(seen) < _FEWEST or len(np.unique(seen)) < distinct:
        return False
    accepted = Accepted.of(seen[:, None])
    return bool(seen.min() >= accepted.low[0] and seen.max() <= accepted.high[0])


def _best(
    candidates: Sequence[Transform], inputs: Array, values: Array, p: int, features: Array, *, cautious: bool
) -> Transform:
    """The most likely candidate; the first unless the gain is clear, where that is asked."""
    rows, before, after = _neighbours(inputs, values[:, p])
    if len(candidates) == 1 or len(rows) < (_FEWEST if cautious else 3):
        return candidates[0]
    others = _correlated(features, p)[rows]
    column = values[:, p]
    likelihoods = np.array([_log_densities(each, column, rows, before, after, others) for each in candidates])
    best = int(np.argmax(likelihoods.mean(axis=1)))
    if not cautious or best == 0:
        return candidates[best]
    gain = Difference.of_groups(likelihoods[best] - likelihoods[0], np.arange(len(rows)) * _GROUPS // len(rows))
    return candidates[best if gain.mean - _CLEAR * gain.error > _LEAST_GAIN else 0]


def _log_densities(
    transform: Transform, column: Array, rows: Array, before: Array, after: Array, others: Array
) -> Array:
    """Log-densities of values, means of those given their neighbours and other columns, and given these only."""
    z = transform.forward(column)
    one = np.ones((len(rows), 1))
    near = np.column_stack([one, z[before], z[after], others])
    total = transform.log_slope(column[rows])
    for design in (near, np.column_stack([one, others])):
        weights = np.linalg.lstsq(design, z[rows], rcond=None)[0]
        error = z[rows] - design @ weights
        variance = max(float(error @ error) / max(len(rows) - design.shape[1], 1), np.finfo(np.float64).tiny)
        total = total - 0.25 * (error**2 / variance + np.log(2.0 * np.pi * variance))
    return total


def _neighbours(inputs: Array, column: Array) -> tuple[Array, Array, Array]:
    """Rows with a value, at most 2,000, and for each of them two rows next to it that have one."""
    seen = np.flatnonzero(~np.isnan(column))
    if len(seen) < 3:
        return seen[:0], seen[:0], seen[:0]
    if inputs.shape[1] == 1:
        rows, before, after = seen[1:-1], seen[:-2], seen[2:]
    else:
        near = cKDTree(inputs[seen]).query(inputs[seen], 3)[1]
        rows, before, after = seen, seen[near[:, 1]], seen[near[:, 2]]
    return _some(rows), _some(before), _some(after)


def _some(rows: Array) -> Array:
    """At most 2,000 of the rows, evenly."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).astype(np.int64))]


def _features(kinds: list[Transform], values: Array) -> Array:
    """Standardised transforms of the columns, gaps on straight lines, 0 for one without values, ``(n, P)``."""
    rows = np.arange(len(values))
    filled = []
    for kind, column in zip(kinds, values.T, strict=True):
        seen = ~np.isnan(column)
        filled.append(np.interp(rows, rows[seen], kind.forward(column[seen])) if seen.any() else 0.0 * rows)
    table = np.column_stack(filled)
    unit = table.std(axis=0)
    return (table - table.mean(axis=0)) / np.where(unit > 0.0, unit, 1.0)


def _correlated(features: Array, p: int) -> Array:
    """The columns that are most correlated with one, in the order of the table."""
    others = np.delete(features, p, axis=1)
    strength = np.abs(features[:, p] @ others)
    return others[:, np.sort(np.argsort(-strength, kind="stable")[:_OTHERS])]


def _check_values(transforms: Transforms, values: Array) -> None:
    """Refuse declared transforms that do not take the values of their columns."""
    for kind, name, column in zip(transforms.kinds, transforms.names, values.T, strict=True):
        beyond = (column < kind.ends[0]) | (column > kind.ends[1])
        if beyond.any():
            raise ValueError(
                f"transforms: expected values from {kind.ends[0]:g} to {kind.ends[1]:g} in column {name!r} for {kind}, "
                f"got {column[beyond][0]:g}"
            )
    transforms.forward(values)
