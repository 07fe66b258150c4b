"""First and second derivatives of every kernel, strategy and regressor through its public call."""

from functools import partial

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from cgp.kernels import BASE_KERNELS, CorrelatedKernel, HadamardCorrelatedKernel
from cgp.regression import (
    CorrelatedGPRegression,
    CorrelatedGPRegressor,
    SparseCorrelatedGPRegression,
    StochasticCorrelatedGPRegression,
)
from cgp.variational import (
    DecoupledSGPAVariationalStrategy,
    DTCVariationalStrategy,
    KernelEigenVariationalStrategy,
    SGPAVariationalStrategy,
)
from tests.cgp.helpers import moved


def rows(x: Tensor) -> Tensor:
    """Inputs with the number of a process in a last column."""
    return torch.cat([x, torch.arange(len(x)).to(x)[:, None] % 2], -1)


def kernel_of(name: str = "rbf") -> CorrelatedKernel:
    return CorrelatedKernel(name, 2, 2).double()


def gram(call, x):
    return call(x, 0.5 * x + 0.3).to_dense()  # apart: Matérn-1/2 has no derivative at coincident points


def moments(call, x):
    result = call(x)
    return result.mean, result.variance, result.covariance_matrix


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(6, 2, dtype=torch.float64)
    return x, x.sum(-1).sin()


def dtc():
    x, y = data()
    return DTCVariationalStrategy(ScaleKernel(RBFKernel()).double(), x[:3], x, y, GaussianLikelihood().double())


def sgpa(kind, *sizes):
    return kind(ScaleKernel(RBFKernel()).double(), *(torch.randn(m, 2, dtype=torch.float64) for m in sizes))


def kernel_eigen():
    maps = (nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2))
    return KernelEigenVariationalStrategy(*maps, num_features=4, rank=2, residual=True).double().eval()


def regressor(kind, **options):
    x, y = data()
    model = kind(rows(x), y, 2, **options).double().eval()
    return lambda new: model.posterior(rows(new))


def stochastic():
    x, y = data()
    model = StochasticCorrelatedGPRegression(rows(x), y, 2, num_inducing=4).double().eval()
    moved(model.variational_strategy)
    return lambda new: model(rows(new))


def estimator():
    """The posterior behind the predictions of a fitted estimator."""
    x, y = data()
    fitted = CorrelatedGPRegressor().fit(x.numpy(), torch.stack([y, x[:, 0]], -1).numpy())
    return lambda new: fitted.model_.posterior(rows(new))


CASES = {f"correlated {name}": (partial(kernel_of, name), gram) for name in BASE_KERNELS} | {
    "process": (lambda: kernel_of().process(1), gram),
    "cross": (lambda: kernel_of().cross(0, 1), gram),
    "hadamard": (
        lambda: HadamardCorrelatedKernel(kernel_of()),
        lambda call, x: call(rows(x), rows(0.5 * x + 0.3)).to_dense(),
    ),
    "dtc": (dtc, moments),
    "sgpa": (partial(sgpa, SGPAVariationalStrategy, 3), moments),
    "decoupled sgpa": (partial(sgpa, DecoupledSGPAVariationalStrategy, 3, 2), moments),
    "kernel eigen": (kernel_eigen, moments),
    "exact regression": (partial(regressor, CorrelatedGPRegression), moments),
    "sparse regression": (partial(regressor, SparseCorrelatedGPRegression, num_inducing=4), moments),
    "stochastic regression": (stochastic, moments),
    "estimator": (estimator, moments),
}


def has_second_derivatives_of_distances() -> bool:
    """Of ``torch.cdist``, which GPyTorch's Matérn kernels call; older versions of PyTorch have none."""
    x = torch.ones(2, 1, requires_grad=True)
    (first,) = torch.autograd.grad(torch.cdist(x, 2.0 * x).sum(), x, create_graph=True)
    try:
        first.sum().backward()
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_derivatives_once_and_twice(name):
    if "matern" in name and not has_second_derivatives_of_distances():
        pytest.skip("this PyTorch has no second derivatives of distances")
    make, outputs = CASES[name]
    model = make()
    if isinstance(model, nn.Module):
        moved(model)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(partial(outputs, model), (x,))
    assert gradgradcheck(partial(outputs, model), (x,))
