"""Weighted sums of outputs that are known, beside readings: which places with what weight in which sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import coo_array
from torch import Tensor

__all__ = ["Bins", "GivenSums", "Sums", "bins_of"]

Array = NDArray[Any]

_DEPENDENT = 1e-9  # of a sum's square: what remains of one that follows from others
_ENOUGH = 0.5  # share of the rows of a bin that shows its mean
_AGREES = 1e-2  # standard deviations for each reading, by which rounded totals may differ from their readings


class GivenSums(NamedTuple):
    """Sums after their readings that are known have been subtracted; those that say nothing more are left out.

    Attributes:
        places: input and output of each of t terms, ``(t, d + 1)``.
        weights: ``(t,)``.
        sums: index of the sum that each belongs to, ``(t,)``.
        readings: the unknown reading that it is of, 0 … U-1, -1 where it is of the process, ``(t,)``.
        values: ``(M,)``.
        noise: variances of their errors, ``(M,)``.
        known: number of a known reading, its sum, and its weight there, of k terms, ``(k,)`` each.
        names: of the M sums.
        sizes: of the sums with what was subtracted, all without signs, ``(M,)``.
    """

    places: Tensor
    weights: Tensor
    sums: Tensor
    readings: Tensor
    values: Tensor
    noise: Tensor
    known: tuple[Tensor, Tensor, Tensor]
    names: tuple[str, ...]
    sizes: Tensor

    @property
    def reading_places(self) -> Tensor:
        """Places of the unknown readings, ``(U, d + 1)``."""
        noisy = self.readings >= 0
        places = self.places.new_empty(int(self.readings.max()) + 1, self.places.shape[-1])
        return places.index_copy(0, self.readings[noisy], self.places[noisy])

    def readings_at(self, x: Tensor) -> Tensor:
        """Which of the unknown readings each of some rows ``(t, d + 1)`` is, -1 for others."""
        return _found(x, self.reading_places)


class Sums(NamedTuple):
    """Weighted sums that are known.

    Attributes:
        places: input of each of t terms, and the number of its output, ``(t, d + 1)``.
        weights: ``(t,)``.
        sums: index of the sum that each belongs to, ``(t,)``; each of 0 … M-1 has a term.
        values: ``(M,)``.
        noise: variances of their errors, ``(M,)``; 0 for sums that are known exactly.
        of_readings: whether they are sums of readings, each with its noise, or of the functions beneath, ``(M,)``.
        names: by which messages call them.
    """

    places: Array
    weights: Array
    sums: NDArray[np.int64]
    values: Array
    noise: Array
    of_readings: NDArray[np.bool_]
    names: tuple[str, ...]

    @property
    def outputs(self) -> NDArray[np.int64]:
        """The output of each term, ``(t,)``."""
        return self.places[:, -1].astype(np.int64)

    def scaled(self, inputs: Any, outputs: Any, numbers: NDArray[np.int64]) -> Sums:
        """The same in standardised units, each divided by the sum of its weights: about as large as a reading.

        Args:
            inputs: scaling of inputs.
            outputs: scaling of outputs.
            numbers: number of the process that stands for each output.

        Returns:
            Sums of these processes.
        """
        which, count = outputs.chosen(self.outputs), len(self.values)
        weights = self.weights * which.unit
        origin = np.bincount(self.sums, self.weights * which.undo(np.zeros(len(weights))), minlength=count)
        size = np.bincount(self.sums, np.abs(weights), minlength=count)
        places = np.column_stack([inputs.apply(self.places[:, :-1]), numbers[self.outputs]])
        values, noise = (self.values - origin) / size, self.noise / size**2
        return self._replace(places=places, weights=weights / size[self.sums], values=values, noise=noise)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """All but the names, by the name of the field after a prefix."""
        return {prefix + name: torch.as_tensor(value) for name, value in self._asdict().items() if name != "names"}

    @classmethod
    def of_tensors(cls, names: Sequence[str], tensors: Mapping[str, Tensor]) -> Sums | None:
        """Those of tensors by their field, None if there are none."""
        given = {name: value.numpy() for name, value in tensors.items()}
        return cls(**given, names=tuple(names)) if given else None

    def without(self, outputs: Sequence[int]) -> Sums | None:
        """Those that have no term of some outputs; None if there is none."""
        kept = np.ones(len(self.values), dtype=bool)
        kept[self.sums[np.isin(self.outputs, outputs)]] = False
        if not kept.any():
            return None
        terms, names = kept[self.sums], tuple(np.array(self.names, dtype=object)[kept])
        sums = (np.cumsum(kept) - 1)[self.sums[terms]]
        each = {field: getattr(self, field)[kept] for field in ("values", "noise", "of_readings")}
        return Sums(self.places[terms], self.weights[terms], sums, **each, names=names)

    def given(self, rows: Tensor, targets: Tensor) -> GivenSums:
        """What the sums say besides readings that are known.

        Args:
            rows: of n readings, ``(n, d + 1)``.
            targets: their values, ``(n,)``.

        Returns:
            The sums of what is not known.

        Raises:
            ValueError: if a sum contradicts what is known, or has a place where there are several readings.
        """
        places, weights, sums = (torch.as_tensor(each) for each in (self.places, self.weights, self.sums))
        of_readings = torch.as_tensor(self.of_readings)[sums]
        at = torch.where(of_readings, _found(places, rows.double()), -1)
        count, seen = len(self.values), at >= 0
        values = torch.as_tensor(self.values).index_add(0, sums[seen], -weights[seen] * targets.double()[at[seen]])
        unknown = places[~seen]
        _, cells = torch.cat([unknown, of_readings[~seen, None].to(unknown)], -1).unique(dim=0, return_inverse=True)
        kept = self._independent(cells.numpy(), weights[~seen].numpy(), sums[~seen].numpy(), values.numpy())
        number = torch.full((count,), -1).index_copy(0, kept, torch.arange(len(kept)))
        some = ~seen & (number[sums] >= 0)
        readings = torch.full((int(some.sum()),), -1)
        noisy = of_readings[some]
        readings[noisy] = places[some][noisy].unique(dim=0, return_inverse=True)[1]
        terms = places[some], weights[some], number[sums[some]], readings
        inside = seen & (number[sums] >= 0)
        known = at[inside], number[sums[inside]], weights[inside]
        names = tuple(self.names[m] for m in kept.tolist())
        subtracted = (weights[seen] * targets.double()[at[seen]]).abs()
        sizes = torch.as_tensor(self.values).abs().index_add(0, sums[seen], subtracted)[kept]
        return GivenSums(*terms, values[kept], torch.as_tensor(self.noise)[kept], known, names, sizes)

    def _independent(self, cells: Array, weights: Array, sums: Array, values: Array) -> Tensor:
        """The sums that do not follow from those before them; of these it is checked that they agree with those."""
        shape = len(self.values), int(cells.max(initial=0)) + 1
        matrix = coo_array((weights, (sums, cells)), shape=shape).tocsr()
        gram = (matrix @ matrix.T).toarray() + np.diag(self.noise)
        kept: list[int] = []
        root = np.zeros((0, 0))
        for m in range(len(gram)):
            row = solve_triangular(root, gram[kept, m], lower=True) if kept else np.zeros(0)
            rest = gram[m, m] - row @ row
            if rest > _DEPENDENT * gram[m, m]:
                root = np.block([[root, np.zeros((len(kept), 1))], [row, np.sqrt(rest)]])
                kept.append(m)
                continue
            shares = solve_triangular(root, row, lower=True, trans=1) if kept else row
            if abs(values[m] - shares @ values[kept]) > _AGREES:
                others = [self.names[kept[k]] for k in np.flatnonzero(np.abs(shares) > _DEPENDENT)]
                raise ValueError(
                    f"totals: {self.names[m]} contradicts the readings that it covers"
                    + (f" and {', '.join(others[:3])}" if others else "")
                    + ", which leave it no other value: correct it, or leave it out"
                )
        return torch.as_tensor(kept, dtype=torch.long)


class Bins(NamedTuple):
    """Means of outputs over the bins of the sums of one of them.

    Attributes:
        output: the one.
        low: first input of each of B bins, ``(B,)``.
        high: last input.
        counts: number of its rows, ``(B,)``.
        means: of what is known there, if that is at least half of an output; otherwise NaN, ``(B, P)``.
    """

    output: int
    low: Array
    high: Array
    counts: Array
    means: Array

    @property
    def centres(self) -> Array:
        """Their middles, ``(B, 1)``."""
        return 0.5 * (self.low + self.high)[:, None]

    def narrowing(self, values: Array) -> float:
        """How much wider other outputs ``(n, P)`` spread than their means over bins: the median ratio, at least 1."""
        shown = np.isfinite(self.means).sum(axis=0) > 2
        shown[self.output] = False
        wide, narrow = np.nanstd(values[:, shown], axis=0), np.nanstd(self.means[:, shown], axis=0)
        ratios = wide[narrow > 0] / narrow[narrow > 0]
        return max(float(np.median(ratios)), 1.0) if len(ratios) else 1.0


def bins_of(inputs: Array, values: Array, sums: Sums, output: int) -> Bins:
    """The bins of the sums of one output, in order, those that overlap with one before left out.

    Args:
        inputs: ``(n, 1)``.
        values: ``(n, P)``.
        sums: of these rows.
        output: number of the output.

    Returns:
        Bins, with the means of other outputs.
    """
    own = {m for m in range(len(sums.values)) if (sums.outputs[sums.sums == m] == output).all()}
    spans = []
    for m in own:
        terms = sums.sums == m
        places, size = sums.places[terms, 0], sums.weights[terms].sum()
        if size:
            spans.append((places.min(), places.max(), terms.sum(), sums.values[m] / size))
    bins, end = [], -np.inf
    for low, high, count, mean in sorted(spans):
        if low > end:
            end, inside = high, values[(inputs[:, 0] >= low) & (inputs[:, 0] <= high)]
            enough = np.isfinite(inside).sum(0) >= _ENOUGH * count
            means = np.where(enough, np.nansum(inside, axis=0) / np.isfinite(inside).sum(0).clip(min=1), np.nan)
            means[output] = mean
            bins.append((low, high, count, means))
    low, high, count, means = (np.array([each[field] for each in bins]) for field in range(4))
    return Bins(output, low, high, count, means.reshape(len(bins), values.shape[1]))


def _found(places: Tensor, among: Tensor) -> Tensor:
    """The number of each of some places ``(t, d + 1)`` among others, -1 where it is not there."""
    _, ids = torch.cat([among, places.to(among)]).unique(dim=0, return_inverse=True)
    wanted, count = ids[len(among) :], ids[: len(among)].bincount(minlength=len(ids))
    if (count[wanted] > 1).any():
        raise ValueError(
            "totals: expected one reading at each place of a sum, got several: give rows inputs of their own"
        )
    return torch.full((len(ids),), -1).index_copy(0, ids[: len(among)], torch.arange(len(among)))[wanted]
