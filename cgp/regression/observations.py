"""Observations of several outputs, made once for all that conditions on them: inputs, and values of outputs or NaN."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .scaling import Scaling

__all__ = ["Framing", "Grid", "Observations", "Units", "gross_errors"]

Array = NDArray[Any]

_TAIL = 0.005  # share on either side, outside the range that gross errors are compared with
_FAR = 20.0  # ranges


class Units(NamedTuple):
    """The user's units, of inputs and of outputs."""

    inputs: Scaling
    outputs: Scaling


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
        """The same at unit variance."""
        units = Units(Scaling.of(self.inputs), Scaling.of_outputs(self.values))
        return Observations(units.inputs.apply(self.inputs), units.outputs.apply(self.values), units)

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


def gross_errors(y: Array) -> NDArray[np.bool_]:
    """Values ``(n, P)`` whose distance from the middle 99 % of their output is twenty times the width of that range.

    Codes of failed sensors are such values. The check needs some hundred values of an output, and none of a constant
    output is flagged.

    Args:
        y: outputs, NaN for unobserved entries.

    Returns:
        Booleans in its shape.

    Warns:
        UserWarning: if there are any, with their number and the most extreme of each output.
    """
    low, high = np.nanquantile(y, [_TAIL, 1.0 - _TAIL], axis=0)
    width = np.where(high > low, high - low, np.inf)
    with np.errstate(invalid="ignore"):
        far = (y < low - _FAR * width) | (y > high + _FAR * width)
    if far.any():
        farthest = {
            int(p): float(f"{y[far[:, p], p][np.argmax(np.abs(y[far[:, p], p]))]:.6g}")
            for p in np.flatnonzero(far.any(0))
        }
        warnings.warn(
            f"y: {far.sum()} values are farther than {_FAR:g} times the width of the middle 99 % from all others and "
            f"are left out as errors of measurement; the farthest by output: {farthest}. If they are right, rescale "
            "the outputs, for example by their logarithm.",
            UserWarning,
            stacklevel=2,
        )
    return far


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
