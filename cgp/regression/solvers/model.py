"""Base class of the solvers: regression models that condition on observations, each in a way of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from torch import Tensor

from cgp.functional.linalg import cholesky
from cgp.kernels.canonical_kernel import PriorModule, log_prior, noise_of_rows, process_numbers
from cgp.regression.covariances.neighbours import start_at_correlation
from cgp.regression.covariances.rows import Loadings, check_covariance, dense_covariance, row_covariance
from cgp.regression.likelihood import ProcessGaussianLikelihood, ProcessMean
from cgp.regression.sums import Sums
from cgp.statespace.expansions import dense_expansion_variance

from .choice import SOLVERS, Cost, Problem

__all__ = ["MOST_ENTRIES", "Moments", "RegressionModel", "check_training_data", "first_member", "flat_members"]

MOST_ENTRIES = 2**23  # of the matrices of all samples that are computed or kept together


class Moments(NamedTuple):
    """Mean and variance of marginals.

    Attributes:
        mean: ``(*batch, n)``.
        variance: ``(*batch, n)``.
    """

    mean: Tensor
    variance: Tensor


class RegressionModel(ExactGP):
    r"""P processes, each a weighted sum of mapped copies of one canonical process, observed in rows.

    .. math:: y_i = m_{p_i} + z_{p_i}(x_i) + \epsilon_i

    Every row is an input and the number of the process observed there, so that processes may be observed at different
    inputs, or not at all; every process can be predicted at any input from all rows. In train mode a call returns the
    prior at the rows, as GPyTorch's ``ExactMarginalLogLikelihood`` expects; in eval mode the posterior.

    A solver is a subclass. It has a name, says what is in its way (:meth:`obstacle`) and what it takes (:meth:`cost`),
    by which it is chosen, and implements the conditioning on observations: :meth:`condition`, :meth:`log_evidence`,
    :meth:`leave_one_out`, ``_marginals`` and ``_joint``.

    Arguments are those of :class:`.CorrelatedGPRegression`.

    Attributes:
        name: in :data:`.SOLVERS`.
        with_inducing: whether it is for problems with inducing inputs; None where only an inference asks for it.
        totals: sums that are known besides the observations, or None.
        further_noise: variances ``(*batch, n)`` that are added to the noise of the observations, or None: those of
            what stands for censored ones (:mod:`cgp.regression.inference.censored`).

    Note:
        Initial values and priors of means, scales and lengthscales assume inputs and outputs of unit variance.
    """

    name: ClassVar[str] = ""
    with_inducing: ClassVar[bool | None] = False
    learned_buffers: ClassVar[tuple[str, ...]] = ()  # beside parameters
    totals: Sums | None = None
    further_noise: Tensor | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            SOLVERS[cls.name] = cls

    @classmethod
    def refusal(cls, covariance: AdditiveKernel) -> str | None:  # noqa: ARG003 - most take every one
        """Why a covariance of rows cannot be used, or None if it can."""
        return None

    @classmethod
    def obstacle(cls, problem: Problem) -> str | None:
        """What is in the way of solving a problem like this, or None if it can be solved."""
        return cls.refusal(problem.covariance)

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """The expected cost of an evaluation of the objective and its gradient, for a problem that can be solved."""
        raise NotImplementedError

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        covar_module: AdditiveKernel | None = None,
        likelihood: ProcessGaussianLikelihood | GaussianLikelihood | None = None,
        mean_module: Mean | None = None,
    ) -> None:
        num_processes = check_training_data(train_inputs, train_targets, num_processes)
        if covar_module is None:
            sizes, loadings = (num_processes, train_inputs.shape[-1] - 1), [Loadings(num_processes)]
            covar_module = row_covariance("rbf", *sizes, loadings, ratios=True, shifts=True).to(train_inputs.dtype)
            start_at_correlation(covar_module, train_inputs, train_targets)
        check_covariance(covar_module, num_processes, train_inputs.shape[-1] - 1)
        refusal = self.refusal(covar_module)
        if refusal is not None:
            raise ValueError(f"covar_module: {refusal}")
        likelihood = ProcessGaussianLikelihood(num_processes) if likelihood is None else likelihood
        super().__init__(train_inputs, train_targets, likelihood)
        self.num_processes = num_processes
        self.mean_module = ProcessMean(num_processes) if mean_module is None else mean_module
        self.covar_module = covar_module
        self.to(train_inputs.dtype)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows ``(*batch, n, d + 1)``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """The prior in train mode, the posterior in eval mode."""
        if self.training:
            return super().__call__(*args, **kwargs)
        (x,) = args
        # BoTorch's models define their own ``posterior``, which calls this.
        return RegressionModel.posterior(self, x)

    def condition(self) -> Any:
        """The computations on the observations that all predictions share, to be passed to them."""
        raise NotImplementedError

    def extended(self, inputs: Tensor, targets: Tensor, condition: Any) -> tuple[Self, Any]:
        """The model given further observations, with the same, shared parameters.

        Args:
            inputs: ``(k, d + 1)``.
            targets: ``(k,)``.
            condition: result of :meth:`condition`, or None.

        Returns:
            Another model in eval mode, and its condition, or None.

        Raises:
            ValueError: if the observations are not usable.
        """
        other = self.get_fantasy_model(inputs, targets)
        return other, None if condition is None else other.condition()

    def held_entries(self) -> int:
        """Entries of the matrices that :meth:`condition` holds, where these grow faster than the observations."""
        return 0

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, or its lower bound, ``(*batch,)``."""
        raise NotImplementedError

    def leave_one_out(self) -> Moments:
        """Mean and variance of every observation given all others, ``(*batch, n)`` each, noise included."""
        raise NotImplementedError

    def _marginals(self, x: Tensor, condition: Any) -> Moments:
        """Marginals of the posterior at rows, minus its mean function."""
        raise NotImplementedError

    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        """Mean ``(*batch, t)``, minus its mean function, and covariance ``(*batch, t, t)`` of the posterior at rows."""
        raise NotImplementedError

    def moments(self, x: Tensor, condition: Any = None, *, noisy: bool = False) -> Moments:
        """Marginal means and variances of the posterior.

        Args:
            x: ``(t, d + 1)``.
            condition: result of :meth:`condition`; None computes it.
            noisy: whether the variance includes the noise of an observation.

        Returns:
            ``(*batch, t)`` each.
        """
        condition = self.condition() if condition is None else condition
        x = self._expanded(x)
        mean, variance = self._marginals(x, condition)
        noisy_variance = variance + noise_of_rows(self.likelihood, x) if noisy else variance
        return Moments(mean + self.mean_module(x), noisy_variance)

    def posterior(self, x: Tensor, condition: Any = None) -> MultivariateNormal:
        """The joint posterior of the processes at rows.

        Args:
            x: ``(*batch, t, d + 1)``: any process at any input.
            condition: result of :meth:`condition`; None computes it.

        Returns:
            Event shape ``(t,)``, without noise: ``likelihood(posterior, x)`` adds it.
        """
        condition = self.condition() if condition is None else condition
        x = self._expanded(x)
        mean, covariance = self._joint(x, condition)
        # A tensor would be factored at once, and it is singular where the data determine the processes.
        return MultivariateNormal(mean + self.mean_module(x), to_linear_operator(covariance))

    @torch.no_grad()
    def draw(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Joint draws of the processes at rows.

        Args:
            x: ``(t, d + 1)``.
            counts: number of draws of each batch member.
            condition: result of :meth:`condition`; None computes it.
            generator: source of randomness; None is torch's global generator.

        Returns:
            ``(sum of counts, t)``, without noise.
        """
        posterior, parts = self.posterior(x, condition), []
        batch = posterior.batch_shape
        means = flat_members(posterior.mean, batch)
        covariances = posterior.covariance_matrix.expand(*batch, -1, -1).reshape(len(means), *x.shape[-2:-1] * 2)
        for mean, covariance, count in zip(means, covariances, counts, strict=True):
            if count:
                # By eigenvalues: a posterior covariance is singular where the data determine the processes.
                values, vectors = torch.linalg.eigh(covariance)
                normal = torch.randn(count, len(mean), generator=generator, dtype=torch.float64).to(mean)
                parts.append(mean + (normal * values.clamp(min=0.0).sqrt()) @ vectors.mT)
        return torch.cat(parts)

    @torch.no_grad()
    def total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        r"""Variances of weighted sums of the processes at rows, :math:`w_a^\top C_a w_a`, without noise.

        Args:
            x: ``(t, d + 1)``.
            weights: ``(t,)``.
            sums: index of the sum that each row belongs to, ``(t,)``; each of 0 … A-1 has a row.
            condition: result of :meth:`condition`; None computes it.

        Returns:
            ``(*batch, A)``.
        """
        condition = self.condition() if condition is None else condition
        variances = []
        for rows in sums.argsort(stable=True).split(sums.bincount().tolist()):
            covariance = self.posterior(x[rows], condition).covariance_matrix
            variances.append(covariance @ weights[rows].to(covariance) @ weights[rows].to(covariance))
        return torch.stack(variances, dim=-1)

    @torch.no_grad()
    def expansion_variances(
        self,
        x: Tensor,
        functions: tuple[Tensor, Tensor],
        sums: Tensor,
        condition: Any = None,
        *,
        noisy: bool = False,
    ) -> Tensor:
        r"""Variances of sums of functions of the processes at rows, :math:`\sum_{ij}\sum_k c_{ki}c_{kj}R_{ij}^k`.

        Args:
            x: ``(t, d + 1)``.
            functions: coefficients of their Hermite polynomials of orders 1 … K, ``(S, K, t)`` for S members of the
                batch, and the deviations that R is in units of, ``(S, t)``: those of readings.
            sums: as in :meth:`total_variances`.
            condition: result of :meth:`condition`; None computes it.
            noisy: whether they are functions of readings, each with noise of its own.

        Returns:
            ``(*batch, A)``.
        """
        condition, variances = self.condition() if condition is None else condition, []
        for rows in sums.argsort(stable=True).split(sums.bincount().tolist()):
            if noisy:
                covariance = self.joint_readings(x[rows], condition)[1]
            else:
                covariance = self.posterior(x[rows], condition).covariance_matrix
            members = covariance.expand(*self.batch(), *covariance.shape[-2:]).reshape(-1, len(rows), len(rows))
            each = zip(members.double(), *(part[..., rows] for part in functions), strict=True)
            variances.append([dense_expansion_variance(*(part.numpy() for part in parts)) for parts in each])
        return torch.tensor(variances, dtype=torch.float64).mT.reshape(*self.batch(), -1)

    @torch.no_grad()
    def draw_readings(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Joint draws as :meth:`draw`, with noise."""
        draws = self.draw(x, counts, condition, generator=generator)
        noise = flat_members(noise_of_rows(self.likelihood, x), self.batch())
        sd = noise.sqrt().repeat_interleave(torch.tensor(counts), dim=0)
        return draws + sd * torch.randn(draws.shape, generator=generator, dtype=torch.float64).to(draws)

    @torch.no_grad()
    def reading_total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        """As :meth:`total_variances`, of sums of readings: each row is one, with noise of its own."""
        variances = self.total_variances(x, weights, sums, condition).double()
        noise = weights.square() * noise_of_rows(self.likelihood, x)
        zero = noise.new_zeros(*noise.shape[:-1], variances.shape[-1])
        return variances + zero.index_add(-1, sums, noise.expand(*noise.shape[:-1], len(weights)))

    def joint_readings(self, x: Tensor, condition: Any = None) -> tuple[Tensor, Tensor]:
        """Mean ``(*batch, t)`` and covariance ``(*batch, t, t)`` of readings at rows."""
        posterior = self.posterior(x, condition)
        return posterior.mean, posterior.covariance_matrix + torch.diag_embed(noise_of_rows(self.likelihood, x))

    def with_samples(self, samples: Mapping[str, Tensor]) -> Self:
        """A copy in eval mode, a batch member per sample ``(S, ...)``, by name of prior: moments are ``(S, t)``."""
        batch = copy.deepcopy(self)
        for module in batch.modules():
            if not isinstance(module, PriorModule):
                getattr(module, "_priors", {}).clear()  # fixed parameters need no samples
        batch.pyro_load_from_samples({name: value.clone() for name, value in samples.items()})
        return batch.eval()

    def batches(self, samples: Mapping[str, Tensor]) -> list[Self]:
        """Copies as by :meth:`with_samples`, each with as many of the samples as fit into the memory limit."""
        size = max(1, MOST_ENTRIES // max(self.held_entries(), 1))
        total = len(next(iter(samples.values())))
        starts = range(0, total, size)
        return [self.with_samples({name: value[i : i + size] for name, value in samples.items()}) for i in starts]

    def batch(self, x: Tensor | None = None) -> torch.Size:
        """The shape of the batch of parameters and observations, and of rows x."""
        rows, targets = self._first()
        shapes = [rows.shape[:-2], targets.shape[:-1], self.mean_module(rows).shape[:-1]]
        shapes += [noise_of_rows(self.likelihood, rows).shape[:-1], *([] if x is None else [x.shape[:-2]])]
        for component in self.covar_module.kernels:
            shapes += [component.loadings().shape[:-2], component.input_maps.all_scales.shape[:-2]]
        return torch.broadcast_shapes(*shapes)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> Self:
        """The model given further observations, with the same parameters.

        Args:
            inputs: ``(*batch, k, d + 1)``.
            targets: ``(*batch, k)``; the model has the batch shape of both together.
            **kwargs: options of GPyTorch, not used.

        Returns:
            Another model, in eval mode.

        Raises:
            ValueError: if the observations are not usable.
        """
        x, y = self.train_inputs[0], self.train_targets
        batch = torch.broadcast_shapes(x.shape[:-2], inputs.shape[:-2], targets.shape[:-1])
        inputs, targets = inputs.expand(*batch, *inputs.shape[-2:]), targets.expand(*batch, -1)
        # Fantasies may carry gradients, through which their inputs are optimised.
        check_training_data(inputs.detach().flatten(0, -2), targets.detach().flatten(), self.num_processes)
        other = copy.deepcopy(self)
        rows = torch.cat([x.expand(*batch, *x.shape[-2:]), inputs], dim=-2)
        other.set_train_data(rows, torch.cat([y.expand(*batch, -1), targets], dim=-1), strict=False)
        other.further_noise = self._padded_noise(targets)
        return other.eval()

    def of_rows(self, rows: Tensor) -> Self:
        """The model of some of its observations, a mask or indices, with the same parameters, in eval mode."""
        other = copy.deepcopy(self)
        other.set_train_data(self.train_inputs[0][..., rows, :], self.train_targets[..., rows], strict=False)
        other.further_noise = None if self.further_noise is None else self.further_noise[..., rows]
        return other.eval()

    def log_prior(self) -> Tensor:
        """Log-density of the unconstrained parameters under their priors, in nats, a scalar."""
        return log_prior(self)

    @torch.no_grad()
    def solve(self, columns: Tensor) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}B` for columns B ``(n, S)``, in time O(n³) here; not for batches."""
        K = dense_covariance(self.covar_module, self.train_inputs[0]) + torch.diag_embed(self.noise())
        return torch.cholesky_solve(columns, cholesky(K, name="covariance of the observations", jitter=0.0))

    def residual(self) -> Tensor:
        """The observations minus their mean, ``(*batch, n)``."""
        return self.train_targets - self.mean_module(self.train_inputs[0])

    def noise(self) -> Tensor:
        """The noise variance of each observation, ``(*batch, n)``."""
        noise = noise_of_rows(self.likelihood, self.train_inputs[0])
        return noise if self.further_noise is None else noise + self.further_noise

    def _padded_noise(self, targets: Tensor) -> Tensor | None:
        """:attr:`further_noise`, 0 for further observations."""
        known = self.further_noise
        return (
            None if known is None else torch.cat([known, torch.zeros_like(targets).expand(*known.shape[:-1], -1)], -1)
        )

    def _first(self) -> tuple[Tensor, Tensor]:
        """The first observation: its row ``(*batch, 1, d + 1)`` and its value ``(*batch, 1)``."""
        return self.train_inputs[0][..., :1, :], self.train_targets[..., :1]

    def _expanded(self, x: Tensor) -> Tensor:
        """Rows with the batch shape of loaded samples."""
        batch = torch.broadcast_shapes(self._first()[0].shape[:-2], x.shape[:-2])
        return x.expand(*batch, *x.shape[-2:])


def first_member(model: RegressionModel) -> tuple[Tensor, Tensor]:
    """The observations of a model whose members have the same: rows ``(n, d + 1)`` and values ``(n,)``."""
    rows, targets = model.train_inputs[0], model.train_targets
    return rows.reshape(-1, *rows.shape[-2:])[0], targets.reshape(-1, targets.shape[-1])[0]


def flat_members(values: Tensor, batch: torch.Size) -> Tensor:
    """Values ``(*batch, t)``, possibly with fewer batch dimensions, for each batch member: ``(S, t)``."""
    return values.expand(*batch, values.shape[-1]).reshape(-1, values.shape[-1])


def check_training_data(inputs: Tensor, targets: Tensor, num_processes: int | None) -> int:
    """Reject rows ``(n, d + 1)`` and targets ``(n,)`` that no Gaussian process can be conditioned on; returns P."""
    if inputs.dim() != 2 or inputs.shape[-1] < 2 or not len(inputs):
        raise ValueError(f"train_inputs: expected (n, d + 1) with n, d >= 1, got shape {tuple(inputs.shape)}")
    if targets.shape != inputs.shape[:1]:
        raise ValueError(f"train_targets: expected shape ({len(inputs)},), got {tuple(targets.shape)}")
    for name, values in (("train_inputs", inputs), ("train_targets", targets)):
        if values.requires_grad:
            raise ValueError(f"{name}: expected values without a history, got a tensor that requires grad: detach it")
        if values.dtype not in (torch.float32, torch.float64) or values.dtype != inputs.dtype:
            raise ValueError(f"{name}: expected float32 or float64 throughout, got {values.dtype}")
        if not torch.isfinite(values).all():
            raise ValueError(f"{name}: expected finite values, got {int((~torch.isfinite(values)).sum())} that are not")
    count = int(inputs[:, -1].max()) + 1 if num_processes is None else num_processes
    if count < 1:
        raise ValueError(f"num_processes: expected at least 1, got {count}")
    process_numbers(inputs, count)
    return count
