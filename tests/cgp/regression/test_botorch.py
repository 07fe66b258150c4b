import gpytorch
import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP

from cgp.regression import (
    CorrelatedGPRegression,
    SparseCorrelatedGPRegression,
    StochasticCorrelatedGPRegression,
    correlated_covariance,
)
from cgp.variational import SGPAVariationalStrategy
from tests.cgp.regression.data import rows, shuffled

pytest.importorskip("botorch")
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch's, on what is not scaled to the unit cube
X, Y = rows(12, processes=2)
NEW = rows(6, processes=2, seed=5)[0]


class Exact(GPyTorchModel, CorrelatedGPRegression, FantasizeMixin):
    _num_outputs = 1


class Sparse(GPyTorchModel, SparseCorrelatedGPRegression, FantasizeMixin):
    _num_outputs = 1


class Stochastic(GPyTorchModel, StochasticCorrelatedGPRegression):
    _num_outputs = 1


class Attention(GPyTorchModel, ApproximateGP):
    _num_outputs = 1

    def __init__(self):
        covar_module = correlated_covariance(2, 2)
        ApproximateGP.__init__(self, SGPAVariationalStrategy(covar_module, X[:5].clone()))
        self.covar_module, self.likelihood = covar_module, gpytorch.likelihoods.GaussianLikelihood()
        self.double()

    def __call__(self, x, **kwargs):
        return self.variational_strategy(x, **kwargs)


def best_candidates(model):
    """Two candidates of the first process by the expected improvement."""
    bounds = torch.tensor([[-2.0, -2.0, 0.0], [2.0, 2.0, 0.0]], dtype=torch.float64)
    options = {"num_restarts": 2, "raw_samples": 8, "fixed_features": {2: 0.0}, "options": {"maxiter": 3}}
    return optimize_acqf(qLogExpectedImprovement(model, best_f=Y.max()), bounds, q=2, **options)


MODELS = {
    "SingleTaskGP": lambda: SingleTaskGP(X, Y[:, None], covar_module=correlated_covariance(2, 2).double()),
    "SingleTaskVariationalGP": lambda: SingleTaskVariationalGP(
        X, Y[:, None], inducing_points=X[:6].clone(), covar_module=correlated_covariance(2, 2).double()
    ),
    "exact": lambda: Exact(X, Y, 2),
    "sparse": lambda: Sparse(X, Y, 2, num_inducing=6),
    "stochastic": lambda: Stochastic(X, Y, 2, num_inducing=6),
    "sgpa": Attention,
}


@pytest.mark.parametrize("kind", MODELS)
def test_candidates_are_found(kind):
    model = MODELS[kind]().eval()
    posterior = model.posterior(NEW.expand(4, 6, 3))
    assert posterior.mean.shape == posterior.variance.shape == (4, 6, 1)
    candidates, value = best_candidates(model)
    assert candidates.shape == (2, 3)
    assert torch.isfinite(value)


@pytest.mark.parametrize("kind", ["SingleTaskGP", "SingleTaskVariationalGP", "exact", "sparse"])
def test_is_fitted_by_botorch(kind):
    model = MODELS[kind]()
    variational = kind == "SingleTaskVariationalGP"
    mll = (
        VariationalELBO(model.likelihood, model.model, num_data=12)
        if variational
        else ExactMarginalLogLikelihood(model.likelihood, model)
    )
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 5}})
    assert torch.isfinite(model.posterior(NEW).mean).all()


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_fantasies_are_models_with_further_observations(kind):
    model = shuffled(MODELS[kind]())
    fantasies = model.fantasize(NEW[:2], SobolQMCNormalSampler(torch.Size([3]), seed=0))
    assert fantasies.posterior(NEW).mean.shape == (3, 6, 1)
    for targets, result in zip(fantasies.train_targets[:, -2:], fantasies.posterior(NEW).mean, strict=True):
        model_of_targets = model.condition_on_observations(NEW[:2], targets[:, None])
        torch.testing.assert_close(result, model_of_targets.posterior(NEW).mean)
