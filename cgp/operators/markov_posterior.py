"""The covariance of entries of a state space given others, which is dense only where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cgp.functional.linalg import closed
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.products import covariance_solve

from .dense_covariance import DenseCovarianceLinearOperator, ExactLinearOperator
from .markov import MarkovLinearOperator
from .markov_promised import PromisedMarkovLinearOperator

__all__ = ["MarkovPosteriorLinearOperator"]

_FEW = 128  # entries up to which a product with all of them takes less time than the rows one by one

_AS_FIRST = 10  # further draws, which take the time of the first; each takes that of a column of the dense matrix


class MarkovPosteriorLinearOperator(ExactLinearOperator):
    r"""The covariance of m entries given n observed ones, :math:`K_{**} - K_{*x}(K_{xx} + \Sigma)^{-1}K_{x*} + D`.

    The diagonal is given, products and draws take linear time; what needs all of the matrix, such as a density, makes
    it, in time O(n + m²), or O(n m) for few entries or with gradients.

    Args:
        joint: covariance of all m + n entries, without noise; may be promised.
        noise: D, a diagonal that is added, ``(*batch, m)``.
        variance: the diagonal without D, ``(*batch, m)``.
        observed_noise: variances of the noise of the observed entries, ``(*batch, n)``.
        observed: which of them are observed, ``(*batch, n)`` booleans.
        covariance: makes the matrix without D, of what was kept of the observed entries; None goes through them.
    """

    def __init__(
        self,
        joint: MarkovLinearOperator | PromisedMarkovLinearOperator,
        noise: Tensor,
        variance: Tensor,
        observed_noise: Tensor,
        observed: Tensor,
        covariance: Callable[[], Tensor] | None = None,
    ) -> None:
        super().__init__(joint, noise, variance, observed_noise, observed, covariance=covariance)
        self._covariance = covariance
        self._given, self._noise, self._variance = joint, noise, variance
        self._observed_noise, self._observed = observed_noise, observed.bool()

    @property
    def joint(self) -> MarkovLinearOperator:
        """The covariance of all entries."""
        return self._given.made

    def _size(self) -> torch.Size:
        return torch.Size([*self._variance.shape, self._variance.shape[-1]])

    def _transpose_nonbatch(self) -> MarkovPosteriorLinearOperator:
        return self

    def _diagonal(self) -> Tensor:
        return self._variance + self._noise

    def _matmul(self, rhs: Tensor) -> Tensor:
        columns, count = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs, self.shape[-1]
        batch = torch.broadcast_shapes(self.batch_shape, columns.shape[:-2])
        columns = columns.expand(*batch, *columns.shape[-2:])
        known = self.joint.shape[-1] - count
        prior = self.joint._matmul(torch.nn.functional.pad(columns, (0, 0, 0, known)))
        explained = self._solved(prior[..., count:, :])
        product = prior - self.joint._matmul(torch.nn.functional.pad(explained, (0, 0, count, 0)))
        product = product[..., :count, :] + self._noise.unsqueeze(-1) * columns
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        gradients = super()._bilinear_derivative(left_vecs, right_vecs)
        return closed(gradients, (left_vecs, right_vecs, *self.representation()))

    def _solved(self, columns: Tensor) -> Tensor:
        parts, count = [], self.shape[-1]
        batch = columns.shape[:-2]
        noises, seen = (each.expand(*batch, -1) for each in (self._observed_noise, self._observed))
        for index, member in self.joint._members(batch):
            known = member._replace(cells=member.cells[count:], noise=noises[index])
            solved = covariance_solve(
                member.space,
                known.table(columns[index]),
                known.table(known.noise[:, None])[..., 0],
                known.observed(seen[index]),
            )
            parts.append(known.entries(solved))
        return torch.stack(parts).reshape(columns.shape).to(columns)

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        """Solution of linear systems with the dense matrix."""
        return DenseCovarianceLinearOperator(self.to_dense()).solve(right_tensor, left_tensor)

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        """Quadratic form of the inverse and log-determinant of the dense matrix."""
        dense = DenseCovarianceLinearOperator(self.to_dense())
        return dense.inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Joint draws, ``(S, *batch, m)``, in linear time; with gradients, or of few entries, by the dense matrix."""
        if self._has_gradients():
            return super().zero_mean_mvn_samples(num_samples)
        few = _FEW if self._covariance is not None else min(_AS_FIRST + num_samples, _FEW)
        if self.shape[-1] <= few:
            variances, directions = torch.linalg.eigh(self.to_dense())  # a Cholesky factor would need jitter
            root = directions * variances.clamp(min=0.0).sqrt().unsqueeze(-2)
            normal = torch.randn(*self.shape[:-1], num_samples, dtype=root.dtype)
            return (root @ normal).movedim(-1, 0).detach()
        draws, batch = [], self.batch_shape
        for index, cells, posterior in self._posteriors():
            drawn = posterior.draw(num_samples).flatten(1)[:, cells]
            draws.append(drawn + self._noise.expand(*batch, -1)[index].sqrt() * torch.randn_like(drawn))
        return torch.stack(draws, dim=1).reshape(num_samples, *batch, self.shape[-1]).to(self._variance).detach()

    def to_dense(self) -> Tensor:
        """The matrix, ``(*batch, m, m)``."""
        if self._covariance is not None:
            covariance = self._covariance().to(self._variance)
            return covariance + self._noise.diag_embed()
        if self.shape[-1] < _FEW or self._has_gradients():
            return super().to_dense()
        parts = [posterior.covariance_of(cells) for _, cells, posterior in self._posteriors()]
        covariance = torch.stack(parts).reshape(self.shape).to(self._variance)
        return (covariance + self._noise.diag_embed()).detach()

    def _has_gradients(self) -> bool:
        return torch.is_grad_enabled() and any(each.requires_grad for each in self.representation())

    def _posteriors(self) -> Iterator[tuple[tuple[int, ...], Tensor, StateSpacePosterior]]:
        """The index of every member of the batch, the cells of its entries ``(m,)``, and all cells given the others."""
        count, batch = self.shape[-1], self.batch_shape
        noises, seen = (each.expand(*batch, -1) for each in (self._observed_noise, self._observed))
        for index, member in self.joint._members(batch):
            known = member._replace(cells=member.cells[count:], noise=noises[index].detach())
            noise = known.noises()
            observed = known.observed(seen[index])
            posterior = StateSpacePosterior(member.space, torch.zeros_like(noise), noise, observed)
            yield index, member.cells[:count], posterior

    def add_diagonal(self, diag: Tensor) -> MarkovPosteriorLinearOperator:
        """The sum with a diagonal; ``diag`` is ``(*batch, m)``, ``(*batch, 1)`` or a number."""
        args = self._variance, self._observed_noise, self._observed
        return self.__class__(self._given, self._noise + diag, *args, covariance=self._covariance)

    def __add__(self, other: Tensor | LinearOperator | float) -> LinearOperator | Tensor:
        """The sum; with a diagonal it stays lazy."""
        return self.add_diagonal(other._diagonal()) if isinstance(other, DiagLinearOperator) else super().__add__(other)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        if not batch_indices and isinstance(row_index, slice) and row_index == col_index:
            count = self.shape[-1]
            rows = torch.cat([torch.arange(count)[row_index], torch.arange(count, self.joint.shape[-1])])
            noise, variance = (each[..., row_index] for each in (self._noise, self._variance))
            return self.__class__(self.joint.select(rows), noise, variance, self._observed_noise, self._observed)
        return LinearOperator._getitem(self, row_index, col_index, *batch_indices)
