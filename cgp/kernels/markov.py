"""GPyTorch kernels of one ordered input in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import IndexKernel, Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.lazy.lazy_evaluated_kernel_tensor import recall_grad_state
from gpytorch.likelihoods import Likelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import LinearOperator
from linear_operator.operators import AddedDiagLinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor, nn

from cgp.operators.dense_covariance import described
from cgp.operators.markov import MarkovLinearOperator
from cgp.operators.markov_cross import MarkovCrossLinearOperator
from cgp.operators.markov_posterior import MarkovPosteriorLinearOperator
from cgp.operators.markov_promised import PromisedMarkovLinearOperator
from cgp.operators.missing import check_numbers, known_rows
from cgp.statespace.moments import posterior_moments
from cgp.warning import warn_user

from .markov_memory import Known, MarkovMemory, MemoryPosterior
from .markov_rows import Layout, layout_of, line_of, markov_terms

__all__ = ["Markov", "MarkovPredictionStrategy"]

_M = TypeVar("_M", bound=nn.Module)
_MANY = 2000  # rows from which the dense covariance of a sum takes seconds


class MarkovPredictionStrategy(DefaultPredictionStrategy):
    """As GPyTorch's default strategy, by a filter and a smoother over observations and new rows together.

    Where no gradients are asked for, a filter and a smoother over the observations are kept, as GPyTorch keeps its
    caches, and a further prediction takes the time of its own rows.
    """

    _memory: MarkovMemory | None = None

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: LinearOperator, test_train_covar: LinearOperator
    ) -> tuple[Tensor, LinearOperator]:
        """Mean and covariance at new rows, of which the diagonal is known and other entries are made when asked for."""
        if isinstance(test_train_covar, MarkovLinearOperator):  # of new rows that are the observed ones
            rows = torch.arange(test_train_covar.shape[-1])
            test_train_covar = MarkovCrossLinearOperator(test_train_covar.select(rows.repeat(2)), len(rows))
        if not isinstance(test_train_covar, MarkovCrossLinearOperator):
            raise ValueError(
                f"kernel: expected a Markov kernel, got {type(test_train_covar).__name__}: for a sum or product, "
                "Markov(...) around all of it"
            )
        joint, known = test_train_covar.given, self._known()
        batch = torch.broadcast_shapes(joint.batch_shape, known.residual.shape[:-1], test_mean.shape[:-1])
        known = Known(*(each.expand(*batch, -1) for each in known))
        posterior = self._from_memory(joint, known)
        if posterior is None:
            mean, variance = _moments(joint.made, known, test_train_covar.rows)
        else:
            mean, variance = posterior.moments()
        variance = variance.to(known.noise)
        arguments = torch.zeros_like(variance), variance, known.noise, known.observed
        covariance = MarkovPosteriorLinearOperator(
            joint, *arguments, covariance=None if posterior is None else posterior.covariance
        )
        return test_mean + mean.to(test_mean), covariance

    def _from_memory(
        self, joint: MarkovLinearOperator | PromisedMarkovLinearOperator, known: Known
    ) -> MemoryPosterior | None:
        covariance = self.train_prior_dist.lazy_covariance_matrix
        if not isinstance(joint, PromisedMarkovLinearOperator) or not isinstance(covariance, _InputCovariance):
            return None
        if known.requires_grad or known.noise.dim() > 1:
            return None
        if self._memory is None:
            self._memory = MarkovMemory(covariance.x2)
        kernel = covariance.kernel
        with torch.no_grad():
            return self._memory.posterior(kernel.base_kernel, kernel._layout, known, joint.new)

    def _known(self) -> Known:
        residual = self.train_labels - self.train_prior_dist.loc.reshape(*self.train_prior_dist.batch_shape, -1)
        observed = known_rows(residual, "train_targets")
        return Known(torch.where(observed, residual, 0.0), _noise_of(self.lik_train_train_covar), observed)

    def get_fantasy_strategy(
        self, inputs: Any, targets: Tensor, full_inputs: Any, full_targets: Tensor, full_output: Any, **kwargs: Any
    ) -> MarkovPredictionStrategy:
        """The strategy of all rows, as of :meth:`gpytorch.models.ExactGP.get_fantasy_model`."""
        likelihood = self.likelihood.get_fantasy_likelihood(**kwargs)
        strategy = self.__class__(full_inputs, full_output, full_targets, likelihood)
        end = None if self._memory is None else self._memory.end()
        covariance = full_output.lazy_covariance_matrix
        if end is not None and isinstance(covariance, _InputCovariance):
            strategy._memory = MarkovMemory(covariance.x2, end)
        return strategy


def _noise_of(covariance: LinearOperator) -> Tensor:
    """The noise variances of observations, ``(*batch, n)``."""
    if isinstance(covariance, AddedDiagLinearOperator):
        return covariance._diag_tensor._diagonal()
    evaluated = covariance.evaluate_kernel()
    if not isinstance(evaluated, MarkovLinearOperator):
        raise ValueError("likelihood: expected independent noise, got noise that is correlated between observations")
    return evaluated.noise


def _moments(joint: MarkovLinearOperator, known: Known, rows: int) -> tuple[Tensor, Tensor]:
    """Means and variances of the first rows given the others, by a filter and a smoother over all."""
    moments: tuple[list[Tensor], list[Tensor]] = ([], [])
    batch = known.residual.shape[:-1]
    for index, member in joint._members(batch):
        seen = member._replace(cells=member.cells[rows:], noise=known.noise[index])
        residual, noise = (seen.table(each[index].double()[:, None])[..., 0] for each in (known.residual, known.noise))
        tables = posterior_moments(member.space, residual, noise, seen.observed(known.observed[index]))
        for values, table in zip(moments, tables, strict=True):
            values.append(table.flatten()[member.cells[:rows]])
    mean, variance = (torch.stack(each).reshape(*batch, rows) for each in moments)
    return mean, variance


class Markov(Kernel):
    r"""A GPyTorch kernel of one ordered input as a state space: the same covariance, in time and memory O(n).

    In an ``ExactGP``, evidence and its gradients, predictions with their variances at new inputs, draws and fantasies
    take linear time; rows may be in any order and repeat, and within :func:`~cgp.kernels.leave_out_missing` NaN targets
    are rows left out. Without gradients, further predictions do not go through the observed rows again. Recognised are
    ``MaternKernel`` (1/2, 3/2, 5/2), ``PeriodicKernel``, ``CosineKernel``, ``LinearKernel``, ``ConstantKernel``,
    :class:`~cgp.kernels.DampedOscillatorKernel`, :class:`~cgp.kernels.IntegratedWienerKernel`, subclasses of these,
    kernels of one's own with a method ``markov_form``, and sums, products and scales of all of them. Several outputs
    are ``MultitaskKernel`` and ``LCMKernel``, or products with an ``IndexKernel`` over rows (input, output), each of
    one feature (``active_dims``); or the covariance of inputs times that of an ``IndexKernel`` of outputs, as in
    GPyTorch's Hadamard example.

    Means and variances of predictions have gradients by all parameters and by new inputs that require them, in linear
    time, too; second derivatives raise RuntimeError, the dense kernel has them.

    In a sum or product write ``Markov`` first, ``Markov(a) + b``, or around all of it, ``Markov(a + b)``: ``b +
    Markov(a)`` is GPyTorch's, and dense. It warns from 2,000 rows.

    Args:
        base_kernel: the kernel; ``Markov`` within it is as without.

    Raises:
        ValueError: if it is no kernel, or a part of it no Markov process.

    Example:
        >>> from gpytorch.kernels import MaternKernel, ScaleKernel
        >>> kernel = Markov(ScaleKernel(MaternKernel(nu=1.5)))
        >>> x = torch.linspace(0, 1, 10_000)
        >>> (kernel(x) @ torch.ones(10_000)).shape
        torch.Size([10000])
    """

    def __init__(self, base_kernel: Kernel) -> None:
        if not isinstance(base_kernel, Kernel):
            raise ValueError(f"base_kernel: expected a kernel, such as MaternKernel(nu=1.5), got {base_kernel!r}")
        plain = _plain(base_kernel)
        layout = layout_of(plain)
        super().__init__()
        self.base_kernel: Kernel = plain
        self._layout = layout

    @property
    def batch_shape(self) -> torch.Size:
        """That of the kernel."""
        return self.base_kernel.batch_shape

    @property
    def is_stationary(self) -> bool:
        """Whether the kernel is."""
        return bool(self.base_kernel.is_stationary)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """The number of outputs that every input has."""
        return self._layout.outputs if self._layout.every else 1

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        if last_dim_is_batch or params:
            raise ValueError(f"Markov: unknown arguments last_dim_is_batch={last_dim_is_batch}, {params}")
        if x1.device.type != "cpu":
            raise ValueError(
                f"Markov: expected inputs on the CPU, where its recursions run, got {x1.device}; move the model and "
                "the data by .cpu(), or use the kernel without Markov, whose covariance is dense"
            )
        for x in (x1, x2):
            check_numbers(x, "x")
        if diag:
            return self.base_kernel(x1, x2, diag=True)
        if x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2)):
            return self._operator(x1, x1.shape[-2])
        size = self.num_outputs_per_input(x1, x2)
        leaves = (x1, x2, *self.parameters())
        if x1.dim() > 2 or x2.dim() > 2 or self.batch_shape or (torch.is_grad_enabled() and _any_requires_grad(leaves)):
            return MarkovCrossLinearOperator(self._joint(x1, x2), x1.shape[-2] * size)
        return MarkovCrossLinearOperator(PromisedMarkovLinearOperator(x1, x2, self._joint, size), len(x1) * size)

    def _joint(self, x1: Tensor, x2: Tensor) -> MarkovLinearOperator:
        """The covariance of all rows, those of ``x1`` first; those of ``x2`` have cells of their own."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        both = torch.cat([each.expand(*batch, *each.shape[-2:]) for each in (x2, x1)], dim=-2)
        joint, size = self._operator(both, x2.shape[-2]), self.num_outputs_per_input(x1, x2)
        return joint.select(torch.arange(joint.shape[-1]).roll(x1.shape[-2] * size))

    def _operator(self, x: Tensor, known: int) -> MarkovLinearOperator:
        space, cells = line_of(markov_terms(self.base_kernel), self._layout, x, known)
        return MarkovLinearOperator.of(space, cells, x.new_zeros(*x.shape[:-2], cells.shape[-1]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`gpytorch.kernels.Kernel.__call__`; times the covariance of an ``IndexKernel`` it stays linear."""
        covariance = super().__call__(*args, **kwargs)
        if not isinstance(covariance, LazyEvaluatedKernelTensor):
            if isinstance(covariance, LinearOperator) and min(covariance.shape[-2:]) >= _MANY:
                warn_user(
                    f"Markov: {min(covariance.shape[-2:])} rows in a sum or product that is no Markov kernel, so that "
                    "linear time is lost; write Markov(...) first or around all of it; where another part is no Markov "
                    "process, leave Markov out, which is faster"
                )
            return covariance
        return _InputCovariance(
            covariance.x1, covariance.x2, kernel=self, last_dim_is_batch=covariance.last_dim_is_batch
        )

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: MultivariateNormal, train_labels: Tensor, likelihood: Likelihood
    ) -> DefaultPredictionStrategy:
        """That of linear time."""
        return MarkovPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def __add__(self, other: Kernel) -> Kernel:
        """The sum, of linear time if it is a Markov process on one line of rows; else GPyTorch's, which is dense."""
        return _joined(self.base_kernel + _plain(other)) or super().__add__(other)

    def __mul__(self, other: Kernel) -> Kernel:
        """The product, likewise."""
        return _joined(self.base_kernel * _plain(other)) or super().__mul__(other)


def _any_requires_grad(tensors: Iterable[Tensor]) -> bool:
    return any(each.requires_grad for each in tensors)


class _InputCovariance(LazyEvaluatedKernelTensor):
    """The covariance of inputs: its product with that of outputs is the covariance of rows (input, output)."""

    __repr__ = described

    @cached(name="kernel_eval")  # type: ignore[untyped-decorator]
    @recall_grad_state  # type: ignore[untyped-decorator]
    def evaluate_kernel(self) -> LinearOperator:
        """The covariance as an operator of linear time: by ``forward``, as it is no part of another kernel."""
        return self.kernel.forward(self.x1, self.x2, last_dim_is_batch=self.last_dim_is_batch, **self.params)

    def _mul_matrix(self, other: LinearOperator | Tensor) -> LinearOperator:
        of_outputs = isinstance(other, LazyEvaluatedKernelTensor) and isinstance(other.kernel, IndexKernel)
        if not of_outputs or self.x1.shape[-1] > 1 or self.kernel._layout._replace(chosen=False) != Layout():
            return self.evaluate_kernel()._mul_matrix(other)
        assert isinstance(other, LazyEvaluatedKernelTensor)
        kernel = Markov(_of_feature(self.kernel.base_kernel, 0) * _of_feature(other.kernel, 1))
        return self.__class__(_beside(self.x1, other.x1), _beside(self.x2, other.x2), kernel=kernel)


def _of_feature(kernel: Kernel, feature: int) -> Kernel:
    """The kernel, with the same parameters, of one feature of its inputs."""
    chosen: Kernel = object.__new__(type(kernel))  # a copy of GPyTorch's kernels shares even their attributes
    vars(chosen).update(vars(kernel), _buffers={**kernel._buffers, "active_dims": torch.tensor([feature])})
    return chosen


def _beside(inputs: Tensor, outputs: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(inputs.shape[:-1], outputs.shape[:-1])
    return torch.cat([inputs.expand(*batch, -1), outputs.to(inputs).expand(*batch, -1)], dim=-1)


def _joined(kernel: Kernel) -> Markov | None:
    try:
        return Markov(kernel)
    except ValueError:
        return None


def _plain(module: _M) -> _M:
    """The kernel without ``Markov`` in it, with the same parameters."""
    if isinstance(module, Markov):
        return module.base_kernel
    if not any(isinstance(part, Markov) for part in module.modules()):
        return module
    plain: _M = object.__new__(type(module))
    vars(plain).update(vars(module), _modules={name: _plain(part) for name, part in module.named_children()})
    return plain
