"""The covariance of Markov processes along one ordered input, in time and memory linear in its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from linear_operator import LinearOperator, settings
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.errors import NotPSDError
from linear_operator.utils.getitem import IndexType, _is_noop_index
from linear_operator.utils.memoize import cached
from torch import Tensor

from cgp.functional.linalg import NotPositiveDefiniteError, closed
from cgp.statespace.evidence import quadratic_form
from cgp.statespace.prior import prior_draws, prior_variances
from cgp.statespace.products import bilinear_gradients, covariance_product, covariance_solve
from cgp.statespace.root import CovarianceRoot
from cgp.statespace.space import StateSpace

from .dense_covariance import ExactLinearOperator, dense_product, described
from .markov_root import MarkovRootLinearOperator, RootedLinearOperator, TriangularRootLinearOperator
from .missing import known_rows

__all__ = ["MarkovLinearOperator"]

_COLUMNS = 128  # multiplied at a time: the states of more leave the processor's cache
_DIMS = 4, 4, 3, 2, 1, 1, 1, 1  # of the arguments, after those of the batch


class _Member(NamedTuple):
    """A member of the batch: its space of N rows, the cell of each entry in rows ``(N, P)``, noise ``(n,)``."""

    space: StateSpace
    cells: Tensor
    noise: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """N and P."""
        return len(self.space.steps), len(self.space.loadings)

    def table(self, columns: Tensor) -> Tensor:
        """Columns of the entries ``(n, S)`` in a table ``(N, P, S)``; entries of one cell are added."""
        empty = columns.new_zeros(math.prod(self.shape), columns.shape[-1])
        return empty.index_add(0, self.cells, columns).reshape(*self.shape, -1)

    def entries(self, table: Tensor) -> Tensor:
        """The entries of a table ``(N, P, S)``, ``(n, S)``."""
        return table.flatten(0, 1)[self.cells]

    def observed(self, known: Tensor | None = None) -> Tensor:
        """Which cells are observed, ``(N, P)``, if these entries are, or all."""
        empty = torch.zeros(math.prod(self.shape), dtype=torch.bool)
        return empty.index_fill(0, self.cells if known is None else self.cells[known], True).reshape(self.shape)

    def noises(self) -> Tensor:
        """Noise variances of cells, ``(N, P)``."""
        return self.table(self.noise[:, None])[..., 0]

    def root(self) -> CovarianceRoot:
        """A triangular root."""
        return CovarianceRoot(self.space, self.noises(), self.observed())

    def product(self, columns: Tensor) -> Tensor:
        """The product of the covariance, with noise, with columns ``(n, S)``."""
        some = columns.split(_COLUMNS, dim=-1)
        products = [self.entries(covariance_product(self.space, self.table(part))) for part in some]
        return torch.cat(products, dim=-1) + self.noise[:, None] * columns

    def product_gradients(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """Gradients of a bilinear form of the covariance by what has gradients, of columns ``(n, S)``."""
        some = zip(left.split(_COLUMNS, dim=-1), right.split(_COLUMNS, dim=-1), strict=True)
        parts = [bilinear_gradients(self.space, self.table(mine), self.table(others))[:4] for mine, others in some]
        summed = [torch.stack(each).sum(0) for each in zip(*parts, strict=True)]
        return [*summed, (left * right).sum(-1)]

    def root_gradients(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """The same of the root."""
        *parts, noise = self.root().gradients(self.table(left), self.table(right))
        return [*parts, self.entries(noise[..., None])[:, 0]]


class MarkovLinearOperator(ExactLinearOperator):
    r"""The covariance of n entries, each an output at a row of a state space, plus a diagonal of noise.

    .. math:: K_{ij} = \sum_k \Lambda_{p_i k}\Lambda_{p_j k}\,\kappa_k(t_i, t_j) + \delta_{ij}\sigma_i^2

    Products, solutions, quadratic forms and determinants, draws and the diagonal take time and memory O(n), in
    float64 inside, and have gradients in closed form. Entries may have any order. The sum with a diagonal, with a
    number, with another such operator on the same rows, and a selection of the same rows and columns are such
    operators. All tensors may have batch dimensions before those listed.

    Args:
        transition: A of C kinds of processes at U lags, ``(U, d, d, C)``.
        process_noise: Q, ``(U, d, d, C)``.
        stationary: P, ``(d, d, C)``.
        loadings: of P outputs in K processes, ``(P, K)``.
        noise: ``(n,)``.
        kinds: kind of each process, ``(K,)``.
        steps: index of the lag before each of N rows, ``(N,)``.
        cells: the place of each entry in rows ``(N, P)``, flattened; no two are equal if there is noise, ``(n,)``.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([0.0, 0.1], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.ones(1000, dtype=torch.long))
        >>> operator = MarkovLinearOperator.of(space, torch.arange(1000), torch.full((1000,), 0.1))
        >>> operator.shape, operator.solve(torch.ones(1000)).shape
        (torch.Size([1000, 1000]), torch.Size([1000]))
    """

    def __init__(
        self,
        transition: Tensor,
        process_noise: Tensor,
        stationary: Tensor,
        loadings: Tensor,
        noise: Tensor,
        kinds: Tensor,
        steps: Tensor,
        cells: Tensor,
    ) -> None:
        super().__init__(transition, process_noise, stationary, loadings, noise, kinds, steps, cells)

    def __repr__(self) -> str:
        size, processes = self._args[2].shape[-2], self._args[3].shape[-1]
        return f"{described(self)[:-1]}, states={size * processes})"

    @classmethod
    def of(cls, space: StateSpace, cells: Tensor, noise: Tensor) -> MarkovLinearOperator:
        """The covariance of cells ``(n,)`` of a state space, with noise ``(n,)``."""
        return cls(*space[:4], noise, space.kinds, space.steps, cells)

    @property
    def dtype(self) -> torch.dtype:
        """That of the noise: the state space itself may be more precise."""
        return self._args[4].dtype

    @property
    def made(self) -> MarkovLinearOperator:
        """The operator itself; see :class:`.PromisedMarkovLinearOperator`."""
        return self

    @property
    def noise(self) -> Tensor:
        """The diagonal that is added, ``(*batch, n)``."""
        return self._args[4].expand(*self.batch_shape, -1)

    def without_noise(self) -> MarkovLinearOperator:
        """The covariance without its diagonal of noise."""
        return self._with(noise=torch.zeros_like(self._args[4]))

    def members(self) -> Iterator[tuple[tuple[int, ...], StateSpace, Tensor, Tensor]]:
        """The index, state space, cells ``(n,)`` and noise ``(n,)`` of every member of the batch."""
        for index, member in self._members(self.batch_shape):
            yield index, *member

    def _members(self, batch: torch.Size) -> Iterator[tuple[tuple[int, ...], _Member]]:
        args = self._expanded(batch)
        for index in np.ndindex(*batch):
            A, Q, P, loadings, noise, kinds, steps, cells = (arg[index] for arg in args)
            yield index, _Member(StateSpace(A, Q, P, loadings, kinds, steps), cells, noise)

    def _expanded(self, batch: torch.Size) -> list[Tensor]:
        pairs = zip(self._args, _DIMS, strict=True)
        return [arg.expand(*batch, *arg.shape[arg.dim() - dims :]) for arg, dims in pairs]

    def _with(self, **changes: Tensor) -> MarkovLinearOperator:
        names = "transition", "process_noise", "stationary", "loadings", "noise", "kinds", "steps", "cells"
        return self.__class__(*(changes.get(name, arg) for name, arg in zip(names, self._args, strict=True)))

    def _size(self) -> torch.Size:
        shapes = (arg.shape[: arg.dim() - dims] for arg, dims in zip(self._args, _DIMS, strict=True))
        count = self._args[-1].shape[-1]
        return torch.Size([*torch.broadcast_shapes(*shapes), count, count])

    def _transpose_nonbatch(self) -> MarkovLinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        columns = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs
        batch = torch.broadcast_shapes(self.batch_shape, columns.shape[:-2])
        columns = columns.expand(*batch, *columns.shape[-2:])
        parts = [member.product(columns[index]) for index, member in self._members(batch)]
        product = torch.stack(parts).reshape(*batch, *columns.shape[-2:]).to(rhs)
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        return self.gradients_of(_Member.product_gradients, left_vecs, right_vecs)

    def gradients_of(
        self, gradients: Callable[[_Member, Tensor, Tensor], list[Tensor]], left_vecs: Tensor, right_vecs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Gradients of bilinear forms of columns ``(*batch, n, S)`` by every argument, from those of each member."""
        batch = torch.broadcast_shapes(self.batch_shape, left_vecs.shape[:-2], right_vecs.shape[:-2])
        left, right = (columns.expand(*batch, *columns.shape[-2:]).double() for columns in (left_vecs, right_vecs))
        parts = [gradients(member, left[index], right[index]) for index, member in self._members(batch)]
        stacked = (torch.stack(each).reshape(*batch, *each[0].shape) for each in zip(*parts, strict=True))
        summed = [each.sum_to_size(arg.shape).to(arg) for each, arg in zip(stacked, self._args, strict=False)]
        return closed((*summed, None, None, None), (left_vecs, right_vecs, *self._args))

    def _diagonal(self) -> Tensor:
        parts = [
            member.entries(prior_variances(member.space)[..., None]) for _, member in self._members(self.batch_shape)
        ]
        return torch.stack(parts).reshape(self.shape[:-1]).to(self.dtype) + self.noise

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        r"""Solution of linear systems, :math:`A^{-1}B` or :math:`CA^{-1}B`, in linear time."""
        columns = right_tensor.unsqueeze(-1) if right_tensor.dim() == 1 else right_tensor
        batch = torch.broadcast_shapes(self.batch_shape, columns.shape[:-2])
        columns = columns.expand(*batch, *columns.shape[-2:])
        parts = [self._solved(member, columns[index]) for index, member in self._members(batch)]
        solved = torch.stack(parts).reshape(columns.shape).to(right_tensor)
        solved = solved.squeeze(-1) if right_tensor.dim() == 1 else solved
        return solved if left_tensor is None else left_tensor @ solved

    def _solved(self, member: _Member, columns: Tensor) -> Tensor:
        solved = covariance_solve(member.space, member.table(columns), member.noises(), member.observed())
        return member.entries(solved)

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        r"""Quadratic form of the inverse and log-determinant, in linear time; None for the part that is not requested.

        Within :func:`cgp.kernels.leave_out_missing`, NaN rows of the one right-hand side are left out. They count as
        independent entries of unit density, of variance :math:`1/2\pi` and observed at zero, so that the density of a
        normal distribution is that of the other rows.

        Args:
            inv_quad_rhs: ``(*batch, n)`` or ``(*batch, n, S)``.
            logdet: whether the log-determinant is requested.
            reduce_inv_quad: whether the forms of the columns are summed.

        Returns:
            Of each member of the batch.
        """
        columns = self.noise.new_zeros(self.shape[-1], 1) if inv_quad_rhs is None else inv_quad_rhs
        columns = columns.unsqueeze(-1) if columns.dim() == 1 else columns
        batch = torch.broadcast_shapes(self.batch_shape, columns.shape[:-2])
        columns = columns.expand(*batch, *columns.shape[-2:])
        parts = [self._forms(member, columns[index]) for index, member in self._members(batch)]
        forms, determinants = (torch.stack(each).to(self.dtype) for each in zip(*parts, strict=True))
        forms = forms.reshape(*batch, -1)
        quadratic = forms.sum(-1) if reduce_inv_quad else forms
        return None if inv_quad_rhs is None else quadratic, determinants.reshape(batch) if logdet else None

    def _forms(self, member: _Member, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The quadratic form of every column ``(n, S)``, and the log-determinant."""
        known = known_rows(columns).all(-1)
        noise, observed = member.noises(), member.observed(known)
        values = torch.where(known[:, None], columns, 0.0)
        table = member.table(values if columns.shape[-1] == 1 else torch.zeros_like(values[:, :1]))
        quadratic, determinant = quadratic_form(member.space, table[..., 0].double(), noise, observed)
        if columns.shape[-1] > 1:
            solved = covariance_solve(member.space, member.table(values.double()), noise, observed)
            quadratic = (values * member.entries(solved)).sum(0)
        return quadratic.reshape(-1), determinant - int((~known).sum()) * math.log(2.0 * math.pi)

    @cached(name="cholesky")  # type: ignore[untyped-decorator]
    def _cholesky(self, upper: bool | None = False) -> LinearOperator:
        if not bool((self._args[-1].diff(dim=-1) > 0).all()):  # triangular in another order
            try:
                return super()._cholesky(upper)
            except RuntimeError as error:
                if "alloc" not in str(error).lower():
                    raise
                raise RuntimeError(
                    f"cholesky: expected rows in order of their inputs, got {self.shape[-1]} in another, whose factor "
                    "is dense and exceeds the memory; sort them, or take root_decomposition(), linear in any order"
                ) from error
        root = MarkovRootLinearOperator(self._positive(), bool(upper))
        return TriangularRootLinearOperator(root, upper=bool(upper))

    @cached(name="root_decomposition")  # type: ignore[untyped-decorator]
    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """R of RR^T, triangular in the order of the cells and of linear time unless another ``method`` is named."""
        if method not in (None, "cholesky"):
            return super().root_decomposition(method)
        return RootedLinearOperator(MarkovRootLinearOperator(self._positive()))

    def _positive(self) -> MarkovLinearOperator:
        """The operator, with as little jitter as it can be factored with, as of ``psd_safe_cholesky``."""
        jitter = settings.cholesky_jitter.value(self.dtype)
        for tried in (0.0, *(jitter * 10**k for k in range(settings.cholesky_max_tries.value()))):
            operator = self.add_diagonal(torch.full_like(self.noise, tried)) if tried else self
            try:
                for _, member in operator._members(self.batch_shape):
                    member.root()
            except NotPositiveDefiniteError:
                continue
            return operator
        raise NotPSDError(f"covariance: cannot be factored with a jitter up to {tried:g}")

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Joint draws, ``(S, *batch, n)``, in linear time, with gradients by all arguments that require them.

        Args:
            num_samples: S.

        Returns:
            With gradients by way of :meth:`root_decomposition`, which needs positive variances given earlier entries.
        """
        if torch.is_grad_enabled() and any(arg.requires_grad for arg in self._args):
            normal = torch.randn(*self.shape[:-1], num_samples, dtype=self.dtype)
            return self.root_decomposition().root.matmul(normal).movedim(-1, 0)
        parts = [self._drawn(member, num_samples) for _, member in self._members(self.batch_shape)]
        return torch.stack(parts, dim=1).reshape(num_samples, *self.shape[:-1]).to(self.dtype)

    def _drawn(self, member: _Member, count: int) -> Tensor:
        noise = member.noise.sqrt()[:, None] * torch.randn(len(member.noise), count, dtype=torch.float64)
        return (member.entries(prior_draws(member.space, count)) + noise).mT

    def add_diagonal(self, diag: Tensor) -> MarkovLinearOperator:
        """The sum with a diagonal; ``diag`` is ``(*batch, n)``, ``(*batch, 1)`` or a number."""
        return self._with(noise=self.noise + diag)

    def __add__(self, other: Tensor | LinearOperator | float) -> LinearOperator | Tensor:
        """The sum; with a diagonal, or on the same rows, it stays linear in time."""
        if isinstance(other, DiagLinearOperator):
            return self.add_diagonal(other._diagonal())
        if isinstance(other, MarkovLinearOperator) and self._shares_rows(other):
            return self._joined(other)
        return super().__add__(other)

    def _shares_rows(self, other: MarkovLinearOperator) -> bool:
        same = all(torch.equal(*pair) for pair in zip(self._args[6:], other._args[6:], strict=True))
        return same and self._args[0].shape[-4] == other._args[0].shape[-4] and self.batch_shape == other.batch_shape

    def _joined(self, other: MarkovLinearOperator) -> MarkovLinearOperator:
        batch = self.batch_shape
        mine, others = self._expanded(batch), other._expanded(batch)
        size = max(mine[0].shape[-2], others[0].shape[-2])
        fields = [torch.cat([_padded(each[number], size) for each in (mine, others)], dim=-1) for number in range(3)]
        loadings = torch.cat([mine[3], others[3]], dim=-1)
        kinds = torch.cat([mine[5], others[5] + mine[0].shape[-1]], dim=-1)
        args = [*fields, loadings, mine[4] + others[4], kinds, *mine[6:]]
        return self.__class__(*args)

    def _mul_constant(self, other: Tensor) -> MarkovLinearOperator:
        transition, *fields, loadings, noise, kinds, steps, cells = self._args
        scaled = [other.reshape(*other.shape, *[1] * dims) * arg for arg, dims in zip(fields, _DIMS[1:], strict=False)]
        args = [transition, *scaled, loadings, other[..., None] * noise, kinds, steps, cells]
        return self.__class__(*args)

    _mul_matrix = dense_product

    def _getitem(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> LinearOperator:
        args = [arg[tuple(batch_indices)] for arg in self._expanded(self.batch_shape)] if batch_indices else self._args
        picked = self.__class__(*args)
        if _is_noop_index(row_index) and _is_noop_index(col_index):
            return picked
        if isinstance(row_index, slice) and row_index == col_index:
            return picked.select(row_index)
        return super(MarkovLinearOperator, picked)._getitem(
            row_index, col_index, *[slice(None)] * len(picked.batch_shape)
        )

    def _get_indices(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> Tensor:
        """Single entries, by a product with as many columns as they have different rows, or different columns."""
        *batch, rows, columns = torch.broadcast_tensors(*batch_indices, row_index, col_index)
        of_rows, of_columns = (each.unique(return_inverse=True) for each in (rows, columns))
        by_row = len(of_rows[0]) < len(of_columns[0])
        (chosen, place), others = (of_rows, columns) if by_row else (of_columns, rows)
        selection = torch.nn.functional.one_hot(chosen, self.shape[-1]).mT.to(self.dtype)
        return self.matmul(selection)[(*batch, others, place)]

    def select(self, rows: slice | Tensor) -> MarkovLinearOperator:
        """The covariance of some entries: a slice, a mask ``(n,)``, or indices of which no two are equal."""
        noise, cells = self._args[4].expand(*self._args[4].shape[:-1], self.shape[-1]), self._args[7]
        return self._with(noise=noise[..., rows], cells=cells[..., rows])

    def to(self, *args: Any, **kwargs: Any) -> MarkovLinearOperator:
        """The operator with another dtype of its floating-point tensors; it stays on the CPU."""
        moved = [arg.to(*args, **kwargs) if arg.is_floating_point() else arg for arg in self._args]
        elsewhere = [arg.device for arg in moved if arg.device.type != "cpu"]
        if elsewhere:
            raise ValueError(
                f"device: expected the CPU, where the recursions of this covariance run, got {elsewhere[0]}"
            )
        return self.__class__(*moved)

    def _unsqueeze_batch(self, dim: int) -> MarkovLinearOperator:
        return self.__class__(*(arg.unsqueeze(dim) for arg in self._expanded(self.batch_shape)))

    def _permute_batch(self, *dims: int) -> MarkovLinearOperator:
        args = self._expanded(self.batch_shape)
        return self.__class__(*(arg.permute(*dims, *range(len(dims), arg.dim())) for arg in args))

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> MarkovLinearOperator:
        return self.__class__(*self._expanded(torch.Size(batch_shape)))


def _padded(blocks: Tensor, size: int) -> Tensor:
    """Blocks ``(..., d, d, C)`` with additional states that are zero."""
    extra = size - blocks.shape[-2]
    return torch.nn.functional.pad(blocks, (0, 0, 0, extra, 0, extra))
