"""Observations of several outputs, made once for all that conditions on them: inputs, and values of outputs or NaN."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import validate_data
from torch import Tensor

from .scaling import Scaling

__all__ = ["Framing", "Grid", "Observations", "Parts", "Units", "checked_inputs", "checked_outputs", "with_nan"]

Array = NDArray[Any]

_DIGITS = 6  # of standardised values, by which outputs are put in order


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
    """

    inputs: Array
    values: Array
    units: Units | None = None

    @classmethod
    def of_rows(cls, rows: Tensor, targets: Tensor, num_outputs: int, units: Units | None = None) -> Self:
        """Observations as rows ``(n, d + 1)`` and values ``(n,)``, in this order."""
        values = np.full((len(rows), num_outputs), np.nan)
        values[np.arange(len(rows)), rows[:, -1].long().numpy()] = targets.numpy()
        given = cls(rows[:, :-1].numpy(), values, units)
        vars(given).update(rows=rows, targets=targets)
        return given

    def standardised(self) -> Observations:
        """The same at unit variance, its outputs in an order that depends on their values only."""
        inputs, outputs = Scaling.of(self.inputs), Scaling.of_outputs(self.values)
        values = outputs.apply(self.values)
        order = _order(self.inputs, values)
        return Observations(inputs.apply(self.inputs), values[:, order], Units(inputs, outputs, np.argsort(order)))

    def chosen(self, which: Tensor) -> Observations:
        """Some of the n observations, by their number in :attr:`rows`, and in this order."""
        numbers, observed = which.numpy(), self.observed.T
        kept = np.zeros(observed.shape, dtype=bool)
        kept[tuple(part[numbers] for part in observed.nonzero())] = True
        some = Observations(self.inputs, np.where(kept.T, self.values, np.nan), self.units)
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

    def correlation(self) -> Tensor:
        """Correlations ``(P, P)`` over the inputs where both outputs were observed, 0 where these are fewer than 3."""
        numbers = torch.as_tensor(self.grid.numbers(self.num_outputs))
        observed = numbers >= 0
        values = torch.where(observed, self.targets[numbers.clamp(min=0)], 0.0).double()
        seen = observed.double()
        count = seen.mT @ seen
        mean = (values.mT @ seen) / count.clamp(min=1.0)  # of each output where the other is observed, too
        product = values.mT @ values / count.clamp(min=1.0) - mean * mean.mT
        square = values.square().mT @ seen / count.clamp(min=1.0) - mean.square()
        scale = (square * square.mT).clamp(min=1e-12).sqrt()
        correlation = torch.where(count >= 3, (product / scale).clamp(-1.0, 1.0), 0.0)
        return correlation.fill_diagonal_(1.0)


def _order(inputs: Array, values: Array) -> NDArray[np.int64]:
    """The outputs ``(n, P)`` in the order of how many values they have, most first, and then of these values."""
    rows = np.lexsort(inputs.T[::-1])
    keys = np.round(np.nan_to_num(values[rows], nan=np.inf), _DIGITS)
    counts = np.isnan(values).sum(axis=0)
    return np.lexsort([*keys[::-1], counts])


class Framing(NamedTuple):
    """The format of the outputs of a fit, an array or a frame of pandas, and of the results.

    Attributes:
        kind: class of the frame or series, None for arrays.
        labels: columns of a frame, or name of a series.
    """

    kind: Any = None
    labels: Any = None

    @classmethod
    def of(cls, y: Any) -> Framing:
        """The format of y; an object with ``iloc`` is a frame if it has columns, otherwise a series."""
        if not hasattr(y, "iloc"):
            return cls()
        return cls(type(y), y.columns if hasattr(y, "columns") else y.name)

    def names(self, count: int) -> list[str]:
        """The names of the outputs."""
        if self.kind is None:
            return [f"output {number}" for number in range(count)]
        return [str(label) for label in (self.labels if hasattr(self.kind, "columns") else [self.labels])]

    def applied(self, values: Array, X: Any) -> Any:
        """Results in the format of the outputs, with the index of the inputs if these are a frame, too."""
        if self.kind is None or not hasattr(X, "iloc"):
            return values
        label = {"columns": self.labels} if values.ndim == 2 else {"name": self.labels}
        return self.kind(values, index=X.index, **label)


class Parts(NamedTuple):
    """A tensor stored in parts.

    A new part is joined to the preceding parts that are not longer than it: of n rows appended one by one, each is
    copied log n times, and there are never more than log n parts (Bentley & Saxe 1980, Decomposable searching
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
        while parts and parts[-1].shape[self.dim] <= further.shape[self.dim]:
            parts, further = parts[:-1], torch.cat([parts[-1], further], self.dim)
        return self._replace(parts=(*parts, further))


def checked_inputs(estimator: Any, *data: Any, **options: Any) -> Any:
    """X, or X and y, checked by scikit-learn; dates and masks, which it would misread as numbers, are rejected."""
    X = data[0]
    _refuse_dates("X", X)
    if np.ma.is_masked(X):
        raise ValueError(f"X: expected every value, got a masked array without {np.ma.count_masked(X)} of them")
    return validate_data(estimator, *data, dtype=np.float64, **options)


def _refuse_dates(name: str, values: Any) -> None:
    """Reject arrays and data frames with dates or time differences, which would be read as counts of their unit."""
    dtypes = np.atleast_1d(np.asarray(getattr(values, "dtypes", getattr(values, "dtype", None)), dtype=object))
    dates = [dtype for dtype in dtypes if getattr(dtype, "kind", "") in ("m", "M")]
    if dates:
        example = "np.asarray((dates - dates[0]) / np.timedelta64(1, 'D'))[:, None]"
        raise ValueError(f"{name}: expected numbers, such as {example}, got {dates[0]}")


def with_nan(y: Any) -> Any:
    """Outputs whose masked entries are NaN, that is, not observed."""
    return np.ma.filled(y.astype(np.float64), np.nan) if isinstance(y, np.ma.MaskedArray) else y


def checked_outputs(y: Any, x: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Outputs as columns ``(n, P)``, NaN for unobserved entries, and whether they had a single axis."""
    _refuse_dates("y", y)
    options: dict[str, Any] = {"ensure_2d": False, "dtype": np.float64, "input_name": "y"}
    y = check_array(with_nan(y), ensure_all_finite="allow-nan", **options)
    if y.ndim == 1:
        y = check_array(y, **options)  # a single process must be observed everywhere
    check_consistent_length(x, y)
    columns = y.reshape(len(y), -1)
    unseen = np.flatnonzero(np.isnan(columns).all(axis=0))
    if len(unseen):
        raise ValueError(f"y: expected at least one observation of each process, got none of {unseen.tolist()}")
    return columns, y.ndim == 1
