"""GPyTorch's models, with the same standardised data, initial values, optimizer, precision and noise floor as ours."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import IndexKernel, InducingPointKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, HadamardGaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from cgp.functional.clusters import cluster_centres
from cgp.regression.inference.fitting import learned_parameters, minimise
from cgp.regression.observations import Observations, Scaling
from experiments.studies.regression.problems import Answer, Array, Problem

__all__ = ["coregionalised", "exact", "independent", "sgpr", "svgp"]

_FACTORS = (1.0, 1 / 3.0, 1 / 0.3, 0.1, 1 / 30.0)
_FLOOR = 1e-6


class _Exact(ExactGP):
    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, covar_module: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = ConstantMean()
        self.covar_module = covar_module

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Coregionalised(ExactGP):
    """Sum over components of (kernel of the input) x (matrix between processes)."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, bases: list[Kernel], num_tasks: int, rank: int) -> None:
        super().__init__(x, y, likelihood)
        self.means = torch.nn.Parameter(torch.zeros(num_tasks))
        self.bases = torch.nn.ModuleList(bases)
        self.tasks = torch.nn.ModuleList(IndexKernel(num_tasks=num_tasks, rank=rank) for _ in bases)

    def forward(self, x: Tensor) -> MultivariateNormal:
        inputs, task = x[..., :-1], x[..., -1:].long()
        parts = [base(inputs).mul(tasks(task)) for base, tasks in zip(self.bases, self.tasks, strict=True)]
        return MultivariateNormal(self.means[task[..., 0]], sum(parts[1:], parts[0]))


class _Variational(ApproximateGP):
    def __init__(self, inducing: Tensor, covar_module: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.mean_module = ConstantMean()
        self.covar_module = covar_module

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def exact(problem: Problem, kernel: str) -> Answer:
    """ExactGP, by Cholesky at every size."""
    x, y, new, y_scaling = _standardised(problem)
    model = _Exact(x, y, _noise(), ScaleKernel(_base(kernel, x.shape[-1])))
    evidence = _fit_exact(model)
    return _answer(model, new, y_scaling)._replace(evidence=evidence)


def independent(inputs: Array, targets: Array, kernel: str) -> tuple[Array, Array]:
    """Means and standard deviations (n, P) of all outputs at all inputs, by one ExactGP per output."""
    answers = []
    for column in targets.T:
        seen = ~np.isnan(column)
        answers.append(exact(Problem(inputs[seen], column[seen], inputs, column), kernel))
    return np.column_stack([answer.mean for answer in answers]), np.column_stack([answer.sd for answer in answers])


def coregionalised(inputs: Array, targets: Array, kernel: str, num_components: int = 1) -> tuple[Array, Array]:
    """The same by the multitask model over rows: ICM with one component, LMC with more; full-rank task matrices."""
    size, tasks = targets.shape
    x_scaling, y_scaling = Scaling.of(inputs), Scaling.of(targets)
    scaled = x_scaling.apply(inputs)
    given = Observations(scaled, y_scaling.apply(targets))
    x, y = given.rows, given.targets
    bases = [_base(kernel, x.shape[-1] - 1, 3.0**number) for number in range(num_components)]
    likelihood = HadamardGaussianLikelihood(
        num_tasks=tasks, noise_constraint=_constraint(), task_feature_index=x.shape[-1] - 1
    )
    likelihood.noise = torch.full((tasks,), 0.1)
    model = _Coregionalised(x, y, likelihood, bases, tasks, tasks if num_components == 1 else 1)
    _fit_exact(model, x)
    new = Observations(scaled, np.zeros_like(targets)).rows
    mean, sd = (value.reshape(tasks, size).T for value in _moments(model, new, new))
    return y_scaling.undo(mean), sd * y_scaling.unit


def sgpr(problem: Problem, kernel: str, num_inducing: int = 100) -> Answer:
    """SGPR: InducingPointKernel in an ExactGP, inducing inputs from k-means."""
    x, y, new, y_scaling = _standardised(problem)
    likelihood = _noise()
    base = ScaleKernel(_base(kernel, x.shape[-1]))
    model = _Exact(x, y, likelihood, InducingPointKernel(base, cluster_centres(x, num_inducing), likelihood))
    evidence = _fit_exact(model)
    return _answer(model, new, y_scaling)._replace(evidence=evidence)


def svgp(problem: Problem, kernel: str, num_inducing: int = 100, num_steps: int | None = None) -> Answer:
    """SVGP by Adam on minibatches of 1024, with our learning rates, decreasing from 0.02; 40 epochs or 1,000 steps."""
    x, y, new, y_scaling = _standardised(problem)
    model = _Variational(cluster_centres(x, num_inducing), ScaleKernel(_base(kernel, x.shape[-1]))).double().train()
    likelihood = _noise().double()
    bound = VariationalELBO(likelihood, model, num_data=len(x))
    parameters = [*model.parameters(), *likelihood.parameters()]
    steps = max(40 * -(-len(x) // 1024), 1000) if num_steps is None else num_steps
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randperm(len(x))[:1024]
        optimizer.zero_grad()
        (-bound(model(x[rows]), y[rows])).backward()
        optimizer.step()
        schedule.step()
    model.likelihood = likelihood
    return _answer(model, new, y_scaling)


def _standardised(problem: Problem) -> tuple[Tensor, Tensor, Tensor, Scaling]:
    """Inputs, targets and test inputs at unit variance, and the scaling of targets."""
    x_scaling, y_scaling = Scaling.of(problem.inputs), Scaling.of(problem.targets[:, None])
    x, new = (torch.as_tensor(x_scaling.apply(values)) for values in (problem.inputs, problem.test_inputs))
    return x, torch.as_tensor(y_scaling.apply(problem.targets[:, None])[:, 0]), new, y_scaling


def _moments(model: Any, x: Tensor, *parameters: Tensor) -> tuple[Array, Array]:
    """Means and standard deviations of new observations."""
    model.eval()
    model.likelihood.eval()
    with torch.no_grad(), _settings(model):
        prediction = model.likelihood(model(x), *parameters)
        return prediction.mean.numpy(), prediction.stddev.numpy()


def _answer(model: Any, new: Tensor, y_scaling: Scaling) -> Answer:
    mean, sd = _moments(model, new)
    return Answer(y_scaling.undo(mean[:, None])[:, 0], sd * y_scaling.unit[0])


def _base(kernel: str, dim: int, factor: float = 1.0) -> Kernel:
    base = RBFKernel(ard_num_dims=dim) if kernel == "rbf" else MaternKernel(nu=1.5, ard_num_dims=dim)
    base.lengthscale = dim**0.5 / factor
    return base


def _constraint() -> GreaterThan:
    return GreaterThan(_FLOOR, transform=torch.exp, inv_transform=torch.log)


def _noise() -> GaussianLikelihood:
    likelihood = GaussianLikelihood(noise_constraint=_constraint())
    likelihood.noise = 0.1
    return likelihood


def _settings(model: Any) -> Any:
    """Cholesky at every size: the defaults are approximate and random above 800 rows."""
    if isinstance(getattr(model, "covar_module", None), InducingPointKernel):
        return nullcontext()
    return gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)


def _fit_exact(model: ExactGP, *parameters: Tensor) -> float:
    """The largest marginal likelihood in nats by our optimizer, from three of five initial lengthscales."""
    model.double().train()
    model.likelihood.train()
    objective = ExactMarginalLogLikelihood(model.likelihood, model)

    def loss() -> Tensor:
        with _settings(model):
            return -objective(model(*model.train_inputs), model.train_targets, *parameters)

    fit = minimise(learned_parameters(model), loss, list(_starts(model)), failures=(NanError, NotPSDError))
    return -fit.loss * len(model.train_targets)


def _starts(model: ExactGP) -> Iterator[Array]:
    """The initial parameters at five lengthscales."""
    kernels = [kernel for kernel in model.modules() if isinstance(kernel, RBFKernel | MaternKernel)]
    initial = [kernel.lengthscale.detach().clone() for kernel in kernels]
    for factor in _FACTORS:
        with torch.no_grad():
            for kernel, value in zip(kernels, initial, strict=True):
                kernel.lengthscale = value * factor
            yield parameters_to_vector(learned_parameters(model)).numpy().copy()
