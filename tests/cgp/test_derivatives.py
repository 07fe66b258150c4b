"""First and second derivatives of every kernel, strategy and regressor through its public call."""

from functools import partial

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from cgp.kernels import BASE_KERNELS, CorrelatedKernel, HadamardCorrelatedKernel, Markov
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


class MarkovGP(ExactGP):
    def __init__(self) -> None:
        super().__init__(torch.arange(5.0).double(), torch.arange(5.0).double().sin(), GaussianLikelihood())
        self.mean_module, self.covar_module = ZeroMean(), Markov(ScaleKernel(MaternKernel(2.5)))
        self.double()

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def of_prediction(read):
    model = MarkovGP().eval()
    return lambda x: read(model(x)).sum()


def of_covariance(read):
    kernel = Markov(MaternKernel(2.5)).double()
    return lambda x: read(kernel(x).evaluate_kernel().add_jitter(0.1)).sum()


def square_of(factor, rhs):
    return (factor @ rhs).square()


RHS = torch.arange(1.0, 4.0, dtype=torch.float64)[:, None]
CLOSED = {
    "mean": (of_prediction, lambda p: p.mean),
    "variance": (of_prediction, lambda p: p.variance),
    "covariance": (of_prediction, lambda p: p.covariance_matrix),
    "product of a prediction": (of_prediction, lambda p: p.lazy_covariance_matrix @ RHS),
    "draw": (of_prediction, lambda p: p.rsample()),
    "solve": (of_covariance, lambda K: K.solve(RHS)),
    "logdet": (of_covariance, lambda K: K.logdet()),
    "matmul": (of_covariance, lambda K: square_of(K, RHS)),
    "forms": (of_covariance, lambda K: sum(K.inv_quad_logdet(RHS, logdet=True))),
    "cholesky": (of_covariance, lambda K: square_of(K.cholesky(), RHS)),
    "root": (of_covariance, lambda K: square_of(K.root_decomposition(), RHS)),
    "solve by a root": (of_covariance, lambda K: K.cholesky().solve(RHS)),
    "sum with a dense one": (of_covariance, lambda K: square_of(K + torch.ones(3, 3).double(), RHS)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_second_derivatives_of_markov_are_refused(name):
    make, read = CLOSED[name]
    function = make(read)
    x = torch.tensor([0.5, 1.7, 2.2], dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(function(x), x)
    torch.manual_seed(0)
    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    assert name == "draw" or torch.allclose(first, plain)
    with pytest.raises(RuntimeError, match="second derivatives: .* use the dense kernel"):
        torch.autograd.grad(first.sum(), x)


def test_second_derivatives_of_an_evidence_are_refused():
    model = MarkovGP()
    evidence = ExactMarginalLogLikelihood(model.likelihood, model)
    regressor = CorrelatedGPRegression(rows(data()[0]), data()[1], 2).double()
    for value, parameters in (
        (evidence(model(*model.train_inputs), model.train_targets), model.parameters()),
        (regressor.log_evidence(), regressor.parameters()),
    ):
        varied = [each for each in parameters if each.requires_grad]
        slopes = torch.autograd.grad(value, varied, create_graph=True, allow_unused=True)
        for slope in [each for each in slopes if each is not None]:
            with pytest.raises(RuntimeError, match="second derivatives: .* differences"):
                torch.autograd.grad(slope.sum(), varied, retain_graph=True, allow_unused=True)


def test_root_of_a_markov_covariance_has_its_gradients():
    x = torch.tensor([0.5, 1.7, 2.2], dtype=torch.float64, requires_grad=True)
    slopes = []
    for kernel in (MaternKernel(2.5).double(), Markov(MaternKernel(2.5)).double()):
        root = kernel(x).evaluate_kernel().add_jitter(0.1).root_decomposition()
        slopes += torch.autograd.grad(square_of(root, RHS).sum(), x)
    assert torch.allclose(*slopes)
