"""Observations of several outputs, made once for all that conditions on them: inputs, and values of outputs or NaN."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .sums import Bins, Sums, bins_of

__all__ = [
    "Grid",
    "Observations",
    "Parts",
    "Scaling",
    "Units",
    "column_order",
    "paired_correlation",
]

Array = NDArray[Any]

_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # of a column's largest magnitude: a smaller spread counts as zero
_WIDER = 60.0
_LEAST_SPREAD = 0.5  # standard deviation of the logarithms of scales, at least
_MEDIAN_DEVIATION = 1.4826  # standard deviations of a normal density for each median absolute deviation
_DIGITS = 6  # of standardised values, by which outputs are put in order


class Scaling(NamedTuple):
    """An affine map of each column to mean 0 and variance 1.

    Columns are divided by a power of two first, exactly, so that no square overflows or vanishes.

    Attributes:
        largest: a power of two, at least the largest magnitude, ``(d,)``.
        centre: mean in units of ``largest``, ``(d,)``.
        spread: standard deviation in the same units; 1 for a constant column.
    """

    largest: Array
    centre: Array
    spread: Array

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """The scaling of columns ``(n, d)``; NaN is ignored."""
        largest = _power_of_two(np.nanmax(np.abs(values), axis=0))
        relative = values / largest
        centre = np.nanmean(relative, axis=0)
        centre = centre + np.nanmean(relative - centre, axis=0)  # the rounding error of a mean may exceed the spread
        spread = np.sqrt(np.nanmean((relative - centre) ** 2, axis=0))
        return cls(largest, centre, np.where(spread > _ROUNDING, spread, 1.0))

    @classmethod
    def of_outputs(cls, values: Array) -> Scaling:
        r"""The scaling of outputs ``(n, P)``, which takes the scales of others where few observations do not show it.

        .. math:: \log u_p = \frac{\tau^2 \log w_p + v_p \operatorname{median} \log w}{\tau^2 + v_p}, \quad
            w_p = s_p\,(1 + 60 / k_p^3), \quad v_p = (60 / k_p^3)^2 \quad (k_p > 2), \qquad
            u_p^2 = c^2 + s_p^2 + (\bar y_p - \tilde y_{-p})^2 \quad (k_p \le 2)

        k are counts, s standard deviations (0 for a single observation); τ is how much the scales w differ between
        outputs, 1.48 median absolute deviations of their logarithms and at least 0.5; c is the median of s over outputs
        with three observations or more, and the last term the distance from the level of the other outputs. If no
        output has three, c is computed from these distances, too. A constant output gets the scale of the others; if
        all are constant, the scale is the distance from zero.

        Returns:
            The scaling.
        """
        scaling, count = cls.of(values), (~np.isnan(values)).sum(axis=0)
        varies = np.nanmax(values, axis=0) - np.nanmin(values, axis=0) > _ROUNDING * scaling.largest
        deviations = np.where(varies, scaling.unit * np.sqrt(count / np.maximum(count - 1, 1)), 0.0)
        several, middle = varies & (count > 2), scaling.undo(np.zeros(len(count)))
        level = np.where(count < 3, _from_others(middle), 0.0)
        common = (
            np.median(deviations[several])
            if several.any()
            else np.hypot(_spread_of(deviations[varies]), _spread_of(level))
        )
        few = np.hypot(np.hypot(common, deviations), level)
        few = np.where(few > 0.0, few, np.where(middle == 0.0, 1.0, np.abs(middle)))
        if several.any():
            few[several] = _pooled(scaling.unit[several], count[several])
        return scaling._replace(spread=few / scaling.largest)

    def apply(self, values: Array) -> Array:
        """Values ``(n, d)`` at unit variance."""
        return (values / self.largest - self.centre) / self.spread

    def undo(self, values: Array) -> Array:
        """Values ``(..., d)`` in the user's units."""
        return (values * self.spread + self.centre) * self.largest

    def chosen(self, columns: Array) -> Scaling:
        """The scaling of some columns, in their order."""
        return Scaling(*(field[columns] for field in self))

    @property
    def unit(self) -> Array:
        """A standard deviation of 1 in the user's units, ``(d,)``."""
        return self.spread * self.largest


class Units(NamedTuple):
    """The user's units, of inputs and of outputs, and the user's order of outputs.

    Attributes:
        inputs: of d columns.
        outputs: of P columns.
        numbers: the process that stands for each output, ``(P,)``: a fit has its processes in an order of the data, so
            that the order of the columns does not change it.
    """

    inputs: Scaling
    outputs: Scaling
    numbers: NDArray[np.int64]


class Grid(NamedTuple):
    """Observations as cells of T inputs and P outputs.

    Attributes:
        inputs: the distinct inputs in order, ``(T, d)``.
        places: which of them each observation is at, ``(n,)``.
        outputs: which output it is of, ``(n,)``.
    """

    inputs: Tensor
    places: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """The grid of rows ``(n, d + 1)`` of inputs and outputs."""
        inputs, places = rows[:, :-1].unique(dim=0, return_inverse=True)
        return cls(inputs, places, rows[:, -1].long())

    @classmethod
    def of_repeated(cls, rows: Tensor) -> Self:
        """As :meth:`of`, but an input at which an output was observed twice is there twice."""
        _, cell = rows.unique(dim=0, return_inverse=True)
        order = cell.argsort(stable=True)
        ordered = cell[order]
        first = torch.searchsorted(ordered, ordered)
        repetition = torch.empty_like(cell).index_copy(0, order, torch.arange(len(cell), device=cell.device) - first)
        keys = torch.cat([rows[:, :-1], repetition.unsqueeze(-1).to(rows)], dim=-1)
        inputs, places = keys.unique(dim=0, return_inverse=True)
        return cls(inputs[:, :-1], places, rows[:, -1].long())

    def numbers(self, num_outputs: int) -> NDArray[np.int64]:
        """The number of the last observation in each cell, -1 where there is none, ``(T, P)``."""
        numbers = np.full((len(self.inputs), num_outputs), -1)
        numbers[self.places.numpy(), self.outputs.numpy()] = np.arange(len(self.places))
        return numbers


@dataclass(frozen=True, eq=False)
class Observations:
    """N inputs with P outputs, NaN where one was not observed.

    Attributes:
        inputs: ``(N, d)``.
        values: ``(N, P)``.
        units: of both; None where they are in the user's units themselves.
        sums: weighted sums of the outputs that are known besides, or None.
    """

    inputs: Array
    values: Array
    units: Units | None = None
    sums: Sums | None = None

    @classmethod
    def of_rows(
        cls, rows: Tensor, targets: Tensor, num_outputs: int, units: Units | None = None, sums: Sums | None = None
    ) -> Self:
        """Observations as rows ``(n, d + 1)`` and values ``(n,)``, in this order."""
        values = np.full((len(rows), num_outputs), np.nan)
        values[np.arange(len(rows)), rows[:, -1].long().numpy()] = targets.numpy()
        given = cls(rows[:, :-1].numpy(), values, units, sums)
        vars(given).update(rows=rows, targets=targets)
        return given

    def standardised(self) -> Observations:
        """The same at unit variance, its outputs in an order that depends on their values only."""
        inputs, shown = Scaling.of(self.inputs), self.with_bins
        outputs = Scaling.of_outputs(shown.values)
        for bins in self.bins:
            outputs.spread[bins.output] *= bins.narrowing(self.values)
        values, order = outputs.apply(self.values), column_order(shown.inputs, outputs.apply(shown.values))
        units = Units(inputs, outputs, np.argsort(order))
        sums = None if self.sums is None else self.sums.scaled(*units)
        return Observations(inputs.apply(self.inputs), values[:, order], units, sums)

    @cached_property
    def bins(self) -> list[Bins]:
        """The sums of each output that has no other values."""
        if self.sums is None:
            return []
        silent = np.flatnonzero(~self.observed.any(axis=0))
        return [bins_of(self.inputs, self.values, self.sums, int(output)) for output in silent]

    @property
    def with_bins(self) -> Observations:
        """These observations, with means over bins as values of outputs that have no other."""
        if not self.bins:
            return self
        parts = [self.values]
        for bins in self.bins:
            parts.append(np.full((len(bins.centres), self.num_outputs), np.nan))
            parts[-1][:, bins.output] = bins.means[:, bins.output]
        inputs = np.concatenate([self.inputs, *(bins.centres for bins in self.bins)])
        return Observations(inputs, np.concatenate(parts), self.units)

    def chosen(self, which: Tensor) -> Observations:
        """Some of the n observations, by their number in :attr:`rows`, and in this order."""
        numbers, observed = which.numpy(), self.observed.T
        kept = np.zeros(observed.shape, dtype=bool)
        kept[tuple(part[numbers] for part in observed.nonzero())] = True
        some = Observations(self.inputs, np.where(kept.T, self.values, np.nan), self.units, self.sums)
        vars(some).update(rows=self.rows[which], targets=self.targets[which])
        return some

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Whether each output was observed, ``(N, P)``."""
        return ~np.isnan(self.values)

    @property
    def num_outputs(self) -> int:
        """P."""
        return self.values.shape[1]

    @property
    def input_dim(self) -> int:
        """D."""
        return self.inputs.shape[1]

    @cached_property
    def rows(self) -> Tensor:
        """A row (input, output) for each of the n observations, output by output, ``(n, d + 1)``."""
        parts = [
            np.column_stack([self.inputs[seen], np.full(seen.sum(), float(p))])
            for p, seen in enumerate(self.observed.T)
        ]
        return torch.as_tensor(np.concatenate(parts))

    @cached_property
    def targets(self) -> Tensor:
        """The values of the n observations, ``(n,)``."""
        return torch.as_tensor(self.values.T[self.observed.T])

    @cached_property
    def grid(self) -> Grid:
        """The observations as cells of the distinct inputs."""
        return Grid.of(self.rows)

    @property
    def table(self) -> Tensor:
        """The values of the distinct inputs in order, NaN where missing, ``(T, P)``."""
        numbers = torch.as_tensor(self.grid.numbers(self.num_outputs))
        return torch.where(numbers >= 0, self.targets[numbers.clamp(min=0)].double(), torch.nan)

    def correlation(self) -> Tensor:
        """Correlations ``(P, P)`` over the inputs where both outputs were observed, 0 where these are fewer than 3."""
        known = paired_correlation(self.table)
        for bins in self.bins:
            p, among = bins.output, paired_correlation(torch.as_tensor(bins.means))
            known[p], known[:, p] = among[p], among[:, p]
        return known


def paired_correlation(rows: Tensor) -> Tensor:
    """Correlations ``(P, P)`` of columns ``(N, P)`` over the rows that have both, 0 where these are fewer than 3."""
    observed = ~rows.isnan()
    values, seen = torch.where(observed, rows, 0.0), observed.to(rows.dtype)
    count = seen.mT @ seen
    mean = (values.mT @ seen) / count.clamp(min=1.0)  # of each output where the other is observed, too
    product = values.mT @ values / count.clamp(min=1.0) - mean * mean.mT
    square = values.square().mT @ seen / count.clamp(min=1.0) - mean.square()
    scale = (square * square.mT).clamp(min=1e-12).sqrt()
    correlation = torch.where(count >= 3, (product / scale).clamp(-1.0, 1.0), 0.0)
    return correlation.fill_diagonal_(1.0)


def column_order(inputs: Array, values: Array) -> NDArray[np.int64]:
    """The outputs ``(n, P)`` in the order of how many values they have, most first, and then of these values."""
    rows = np.lexsort(inputs.T[::-1])
    keys = np.round(np.nan_to_num(values[rows], nan=np.inf), _DIGITS)
    counts = np.isnan(values).sum(axis=0)
    return np.lexsort([*keys[::-1], counts])


class Parts(NamedTuple):
    """A tensor stored in parts.

    A new part is joined to the preceding parts that are not twice as long: of n rows appended one by one, each is
    copied log n times, and there are never more than 1 + log n parts (Bentley & Saxe 1980, Decomposable searching
    problems).

    Attributes:
        parts: tensors that agree in all other dimensions.
        dim: dimension along which they are concatenated.
    """

    parts: tuple[Tensor, ...]
    dim: int

    @classmethod
    def of(cls, values: Tensor, dim: int) -> Self:
        """A single part."""
        return cls((values,), dim)

    @property
    def batch(self) -> torch.Size:
        """The dimensions before ``dim``."""
        return self.parts[0].shape[: self.dim]

    @property
    def whole(self) -> Tensor:
        """The whole tensor."""
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts, self.dim)

    def merged(self) -> Self:
        """The same tensor in one part."""
        return self._replace(parts=(self.whole,))

    def appended(self, further: Tensor) -> Self:
        """The tensor with further rows at its end."""
        parts = self.parts
        while parts and parts[-1].shape[self.dim] < 2 * further.shape[self.dim]:
            parts, further = parts[:-1], torch.cat([parts[-1], further], self.dim)
        return self._replace(parts=(*parts, further))


def _power_of_two(magnitude: Array) -> Array:
    """The smallest power of two that is not below each magnitude, within the range of floats; 1 for 0."""
    return np.ldexp(1.0, np.clip(np.frexp(magnitude)[1], -1021, 1023) * (magnitude > 0))


def _pooled(deviations: Array, count: Array) -> Array:
    """Scales of outputs, between what their standard deviations suggest and the median of that over outputs."""
    uncertainty = _WIDER / count**3.0  # of a logarithm
    logs = np.log(deviations) + np.log1p(uncertainty)
    away = logs - np.median(logs)
    spread = max(_MEDIAN_DEVIATION * float(np.median(np.abs(away))), _LEAST_SPREAD)
    return np.asarray(np.exp(logs - away * uncertainty**2 / (spread**2 + uncertainty**2)))


def _from_others(values: Array) -> Array:
    """Distance of each value from the median of the others; 0 for a single value."""
    if len(values) == 1:
        return np.zeros(1)
    return np.abs([value - np.median(np.delete(values, index)) for index, value in enumerate(values)])


def _spread_of(sizes: Array) -> float:
    return float(np.median(sizes)) if len(sizes) else 0.0
