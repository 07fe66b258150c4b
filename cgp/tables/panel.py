"""Panels: many tables of one kind with one set of parameters, each filled from its own values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.gappy_tables import TableLaw
from cgp.regression.covariances import MultiScale
from cgp.regression.inference.panels import KERNELS, PanelCovariance, batches_of, fit_covariance, fitted_law
from cgp.regression.observations import Scaling
from cgp.weights import part_of

from .conformal import Conformal
from .filled import FilledTable, Interval
from .frames.coordinates import Axis
from .frames.panels import PanelForm
from .frames.table import Table
from .totals import Aggregate
from .transforms.names import AUTO

__all__ = ["FilledPanel", "Panel", "panel_options"]

Array = NDArray[Any]

_DIGITS = 9  # of times since the first row of a table, to be the same in several
_MOST_CELLS = 4096  # of a table, gaps included
_MOST_SEEN = 3000  # observed values of a table


class TablePosterior(NamedTuple):
    """What one table says of its gaps: as :class:`.Posterior`, at its own rows.

    Attributes:
        mean: of all cells, in the user's units, ``(T, P)``.
        covariance: of its gaps, in the user's units, ``(m, m)``.
        gaps: where they are, ``(T, P)``.
        rows: row of each input.
    """

    mean: Array
    covariance: Array
    gaps: NDArray[np.bool_]
    rows: dict[float, int]

    def draw_at(self, X: Array, outputs: Array, count: int, random_state: Any, *, include_noise: bool) -> Array:
        """Joint draws of readings at inputs ``(t, 1)``, each of one output, ``(count, t)``."""
        if count < 1:
            raise ValueError(f"count: expected at least 1, got {count}")
        places, cells = self._places(X, outputs)
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(cells, cells)])
        normal = np.random.default_rng(random_state).normal(size=(count, len(cells)))
        return self.mean[places] + (normal * np.sqrt(values.clip(min=0.0))) @ vectors.T

    def totals(
        self, X: Array, outputs: Array, weights: Array, sums: Array, *, include_noise: bool
    ) -> tuple[Array, Array]:
        """Weighted sums of readings at inputs ``(t, 1)``, each of one output, with their variances, ``(A,)`` each."""
        if not include_noise:
            raise ValueError("include_noise: expected True for a panel, whose law is that of readings")
        places, cells = self._places(X, outputs)
        parts = np.zeros((int(sums.max()) + 1, len(cells)))
        parts[sums, np.arange(len(cells))] = weights
        covariance = self.covariance[np.ix_(cells, cells)]
        return parts @ self.mean[places], np.einsum("an,nm,am->a", parts, covariance, parts)

    def _places(self, X: Array, outputs: Array) -> tuple[tuple[Array, Array], Array]:
        """Row and column of cells, and their number among the gaps."""
        places = np.array([self.rows[float(x)] for x in X[:, 0]]), np.asarray(outputs)
        return places, (np.cumsum(self.gaps.ravel()) - 1).reshape(self.gaps.shape)[places]


@dataclass(frozen=True, eq=False)
class FilledPanel:
    """Tables of a panel, filled.

    Attributes:
        form: how they were given.
        tables: each beside what it says of its gaps.
    """

    form: PanelForm
    tables: list[FilledTable]

    @property
    def table(self) -> Any:
        """Refused: there are several."""
        raise ValueError(_ALONE)

    def filled(self) -> Any:
        """The panel with the means in its gaps."""
        return self.form.joined([table.filled() for table in self.tables])

    def std(self) -> Any:
        """The standard deviations."""
        return self.form.joined([table.std() for table in self.tables])

    def interval(self, level: float, method: str, conformal: Conformal | None) -> Interval:
        """Central intervals."""
        ends = [table.interval(level, method, conformal) for table in self.tables]
        return Interval(*(self.form.joined(side) for side in zip(*ends, strict=True)))

    def draws(self, count: int, random_state: Any) -> list[Any]:
        """Filled panels whose gaps are drawn together within a table."""
        seeds = np.random.SeedSequence(random_state).spawn(len(self.tables))
        drawn = [table.draws(count, seed) for table, seed in zip(self.tables, seeds, strict=True)]
        return [self.form.joined(each) for each in zip(*drawn, strict=True)]

    def aggregate(
        self, by: Any, how: str, weights: Any, level: float | None, *, include_noise: bool, steps: Any = 0
    ) -> Aggregate:
        """Sums or means of each table."""
        if steps != 0:
            raise ValueError(f"steps: expected 0 for a panel, got {steps}: rows of NaN at a table's end are summed")
        sums = [table.aggregate(by, how, weights, level, include_noise=include_noise) for table in self.tables]
        names = ("value", "std", "absent", *(() if level is None else ("lower", "upper")))
        return Aggregate(**{name: self.form.joined([getattr(each, name) for each in sums]) for name in names})

    def forecast(self, steps: Any, level: float) -> Any:
        """Refused: a table's law has its rows only."""
        raise ValueError(
            f"forecast: expected one table, got a panel: rows of NaN at a table's end are filled; {_ALONE}"
        )

    def errors(self) -> Any:
        """Refused."""
        raise ValueError(_ALONE)

    def plot(self, *_: Any) -> list[Any]:
        """Refused."""
        raise ValueError(_ALONE)


_ALONE = "a panel has several tables: fit one alone for this"


@dataclass(frozen=True, eq=False)
class Panel:
    """The parameters of tables of one kind.

    Attributes:
        scaling: of the columns.
        covariance: of the readings of a table, at any times in median lags.
        lag: median distance of rows.
        grid: times of all tables since their first row, ``(T,)``; None where they share none.
        law: of the cells of that grid; None where there is none.
        kernel: that the evidence chose.
        weight: of the parametric covariance, in tables.
        has_means: whether each cell has a mean.
    """

    scaling: Scaling
    covariance: PanelCovariance
    lag: float
    grid: Array | None
    law: TableLaw | None
    kernel: str
    weight: float
    has_means: bool

    @classmethod
    def fit(
        cls,
        tables: Sequence[Table],
        structure: MultiScale,
        kernel: str | None,
        seed: int,
        progress: Callable[[int, float], None] | None = None,
    ) -> Panel:
        """Learn the parameters of all tables."""
        scaling = Scaling.of(np.concatenate([table.values for table in tables]))
        times = [_times(table, number) for number, table in enumerate(tables)]
        grid = _common(times, tables[0].values.shape[1])
        lag, span = _steps(times)
        structure = replace(structure, periods=[float(period) / lag for period in structure.periods])
        at, values = _laid_out(times, [scaling.apply(table.values) for table in tables], grid)
        at = at / lag
        columns = values.shape[-1]
        best: tuple[float, PanelCovariance, str] | None = None
        for name in KERNELS if kernel is None else (kernel,):
            covariance = PanelCovariance(structure, name, columns, span / lag).double()
            fit_covariance(covariance, at, values, seed=seed, progress=progress)
            evidence = _evidence(covariance, at, values)
            if best is None or evidence > best[0]:
                best = evidence, covariance, name
        assert best is not None
        _, covariance, name = best
        if grid is None:
            return cls(scaling, covariance, lag, None, None, name, np.inf, False)
        law, weight, has_means = fitted_law(covariance(at), values.flatten(1), seed)
        return cls(scaling, covariance, lag, grid, law, name, weight, has_means)

    def content(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The parameters as values for JSON and tensors."""
        plain = {"kernel": self.kernel, "lag": self.lag, "weight": str(self.weight), "has_means": self.has_means}
        tensors = {f"scaling.{name}": torch.as_tensor(value) for name, value in self.scaling._asdict().items()}
        tensors |= {f"covariance.{name}": value for name, value in self.covariance.state_dict().items()}
        if self.grid is not None and self.law is not None:
            plain["freedom"] = str(self.law.freedom)
            tensors |= {"grid": torch.as_tensor(self.grid), "mean": self.law.mean, "law": self.law.covariance}
        return plain, {name: value.detach().clone() for name, value in tensors.items()}

    @classmethod
    def of_content(cls, plain: dict[str, Any], tensors: dict[str, Tensor], structure: MultiScale) -> Panel:
        """The panel of :meth:`content`."""
        scaling = Scaling(*(tensors[f"scaling.{name}"].numpy() for name in Scaling._fields))
        lag = plain["lag"]
        structure = replace(structure, periods=[float(period) / lag for period in structure.periods])
        covariance = PanelCovariance(structure, plain["kernel"], len(scaling.centre), 1.0).double()
        covariance.load_state_dict(part_of(tensors, "covariance."))
        grid, law = None, None
        if "grid" in tensors:
            grid = tensors["grid"].numpy()
            law = TableLaw(tensors["mean"], tensors["law"], float(plain["freedom"]))
        rest = plain["kernel"], float(plain["weight"]), plain["has_means"]
        return cls(scaling, covariance.requires_grad_(False), lag, grid, law, *rest)

    @torch.no_grad()
    def filled(self, tables: Sequence[Table], axis: Axis, form: PanelForm) -> FilledPanel:
        """Tables, each filled from its own values: in one pass where they share their times."""
        times = [_times(table, number) for number, table in enumerate(tables)]
        if self.grid is not None:
            for label, each in zip(form.labels, times, strict=True):
                if not np.isin(each, self.grid).all():
                    other = each[~np.isin(each, self.grid)][0]
                    raise ValueError(
                        f"X: expected rows at times that the tables of fit have since their first row, got {other:g} "
                        f"in table {label!r}: fit to tables of its length"
                    )
        at, values = _laid_out(times, [self.scaling.apply(table.values) for table in tables], self.grid)
        at = at / self.lag
        known: list[FilledTable] = []
        for batch in batches_of(values.flatten(1)):
            law = self._law(at if at.dim() == 1 else at[len(known) : len(known) + len(batch)])
            done = law.filled(batch)
            for cells, mean, variance in zip(batch, done.mean, done.variances, strict=True):
                number = len(known)
                rows = np.arange(len(times[number])) if self.grid is None else np.searchsorted(self.grid, times[number])
                own = at if at.dim() == 1 else at[number]
                known.append(self._known(tables[number], axis, rows, partial(self._joint, own, cells), mean, variance))
        return FilledPanel(form, known)

    def _law(self, at: Tensor) -> TableLaw:
        if self.law is not None:
            return self.law
        covariance = self.covariance(at)
        return TableLaw(covariance.new_zeros(covariance.shape[-1]), covariance)

    def _known(
        self, table: Table, axis: Axis, rows: Array, joint: Callable[..., Any], mean: Tensor, variance: Tensor
    ) -> FilledTable:
        """One table with its moments; its joint posterior on demand."""
        size, gaps = (-1, table.values.shape[1]), table.missing
        centre = self.scaling.undo(mean.reshape(size).numpy()[rows])
        sd = np.sqrt(variance.reshape(size).numpy()[rows]) * self.scaling.unit
        known = LazyTable(table, axis, partial(joint, table, rows, centre))
        vars(known)["moments"] = np.where(gaps, centre, table.values), np.where(gaps, sd, 0.0)
        return known

    def _joint(self, at: Tensor, cells: Tensor, table: Table, rows: Array, mean: Array) -> TablePosterior:
        """What a table says of its gaps together."""
        law = self._law(at)
        columns = table.values.shape[1]
        hidden = cells.isnan().numpy()
        own = (rows[:, None] * columns + np.arange(columns))[table.missing]
        among = (np.cumsum(hidden) - 1)[own]
        covariance = law.filled(cells[None]).covariance(0).numpy()[np.ix_(among, among)]
        units = np.broadcast_to(self.scaling.unit, table.values.shape)[table.missing]
        inputs = {float(x): row for row, x in enumerate(table.inputs[:, 0])}
        return TablePosterior(mean, covariance * np.outer(units, units), table.missing, inputs)


def panel_options(imputer: Any, axis: Axis) -> tuple[MultiScale, str | None]:
    """The structure and the kernel that an imputer's arguments ask for a panel; others are refused."""
    structure = MultiScale(periods=()) if imputer.structure in ("auto", MultiScale.name) else imputer.structure
    if not isinstance(structure, MultiScale):
        raise ValueError(f"structure: expected 'auto' or MultiScale for a panel, got {imputer.structure!r}")
    for name, value, known in (
        ("kernel", imputer.kernel, (None, "matern12", "matern32", "matern52")),
        ("inference", imputer.inference, ("auto", "windows")),
        ("num_inducing", imputer.num_inducing, (None,)),
        ("transforms", imputer.transforms, (None, "none", AUTO)),
    ):
        if value not in known:
            raise ValueError(f"{name}: expected one of {known} for a panel, got {value!r}")
    periods: Any = structure.periods if structure.periods != "auto" else ()
    return replace(structure, periods=axis.periods(periods)), imputer.kernel


@dataclass(frozen=True, eq=False)
class LazyTable(FilledTable):
    """A table of a panel, whose joint posterior is computed on demand."""

    posterior: Any = None

    @property
    def _posterior(self) -> Any:
        assert self.posterior is not None
        return self.posterior()


def _times(table: Table, number: int) -> Array:
    """Times of the rows since the first one of the table."""
    if table.inputs.shape[1] != 1:
        raise ValueError(f"inputs: expected one column for a panel, got {table.inputs.shape[1]}")
    if not len(table.inputs):
        raise ValueError(f"X: expected at least one row in each table, got none in table {number}")
    times = np.round(table.inputs[:, 0] - table.inputs[:, 0].min(), _DIGITS)
    if len(np.unique(times)) < len(times):
        raise ValueError(f"X: expected rows at different times in each table, got two at one in table {number}")
    return times


def _common(times: Sequence[Array], columns: int) -> Array | None:
    """The times of all tables, if they are few more than those of the longest."""
    grid = np.unique(np.concatenate(times))
    longest = max(len(each) for each in times)
    return grid if len(grid) <= 2 * longest and len(grid) * columns <= _MOST_CELLS else None


def _steps(times: Sequence[Array]) -> tuple[float, float]:
    """The median distance of rows, and the longest span."""
    lags = np.concatenate([np.diff(np.sort(each)) for each in times])
    span = max(float(each.max()) for each in times)
    if not len(lags):
        raise ValueError("X: expected tables of two rows or more, got one row in each: rows of one table")
    return float(np.median(lags)), span


def _laid_out(times: Sequence[Array], values: Sequence[Array], grid: Array | None) -> tuple[Tensor, Tensor]:
    """Tables side by side ``(B, T, P)``, and the times of their rows, ``(T,)`` or ``(B, T)``."""
    columns = values[0].shape[1]
    length = max(len(each) for each in times) if grid is None else len(grid)
    laid = np.full((len(values), length, columns), np.nan)
    own = np.zeros((len(values), length))
    for number, (each, table) in enumerate(zip(times, values, strict=True)):
        rows = np.arange(len(each)) if grid is None else np.searchsorted(grid, each)
        laid[number, rows], own[number, : len(each)] = table, each
    seen = (~np.isnan(laid)).sum((1, 2)).max()
    if seen > _MOST_SEEN:
        raise ValueError(f"X: expected at most {_MOST_SEEN} observed values in a table of a panel, got {seen}: cut it")
    return torch.as_tensor(own if grid is None else grid), torch.as_tensor(laid)


@torch.no_grad()
def _evidence(covariance: PanelCovariance, at: Tensor, values: Tensor) -> float:
    """Log-density of all tables."""
    total, first = 0.0, 0
    zero = values.new_zeros(values.shape[1] * values.shape[2])
    for batch in batches_of(values.flatten(1)):
        part = at if at.dim() == 1 else at[first : first + len(batch)]
        total += float(TableLaw(zero, covariance(part)).log_evidence(batch).sum())
        first += len(batch)
    return total
