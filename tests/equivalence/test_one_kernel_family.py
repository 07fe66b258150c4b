"""GPyTorch models of users with the kernels of regressors, and regressors, are the same computation."""

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import ApproximateGP, ExactGP

from cgp.kernels import CanonicalKernel, CorrelatedKernel, HadamardCorrelatedKernel
from cgp.regression import ProcessGaussianLikelihood, SparseCorrelatedGPRegression, correlated_covariance
from cgp.variational import DTCVariationalStrategy
from tests.cgp.regression.data import model_of, rows, shuffled

# Log evidence, norm of its gradient, sum of the mean and of the covariance at new rows, from before RowKernel and
# HadamardCorrelatedKernel shared their formulas.
BEFORE = {
    "independent": (-33.36821325216757, 15.523272929206074, -0.692901997410335, 2.682025053525655),
    "coregionalised": (-30.373405319989967, 13.598467738299341, -0.23160810064128615, 1.8257637626508612),
    "shared": (-25.323437858535023, 6.549282897772429, -0.8847861072009663, 3.692352243033458),
    "shifted": (-31.563766096025674, 14.482176758937289, -1.366192008103864, 2.7608270958318943),
    "affine": (-33.28156976585647, 14.601802690672718, -0.65537209833049, 2.242498246101395),
}


class Exact(ExactGP):
    """A user's own model: any mean, kernel and likelihood."""

    def __init__(self, x, y, mean, kernel, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("structure", BEFORE)
def test_an_exact_gp_with_the_regressors_kernel_is_the_regressor(structure):
    (x, y), new = rows(14), rows(5, seed=3)[0]
    regressor = shuffled(model_of("exact", x, y, structure=structure, kernel="matern52", num_components=2))
    evidence = regressor.log_evidence()
    gradients = torch.autograd.grad(evidence, [p for p in regressor.parameters() if p.requires_grad])
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    with torch.no_grad():
        predicted = regressor.posterior(new)
    here = evidence.detach(), norm, predicted.mean.sum(), predicted.covariance_matrix.sum()
    assert [float(value) for value in here] == pytest.approx(BEFORE[structure], rel=1e-10)

    model = Exact(x, y, regressor.mean_module, regressor.covar_module, regressor.likelihood)
    with gpytorch.settings.fast_computations(False, False, False):
        prior = model.train()(x)
        of_user = regressor.likelihood(prior, x).log_prob(y)
        of_user_gradients = torch.autograd.grad(of_user, [p for p in model.parameters() if p.requires_grad])
        with torch.no_grad():
            of_user_predicted = model.eval()(new)
    torch.testing.assert_close(of_user, evidence, rtol=1e-9, atol=0)
    by_shape = zip(sorted(of_user_gradients, key=_norm), sorted(gradients, key=_norm), strict=True)
    for ours, theirs in by_shape:
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(of_user_predicted.mean, predicted.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(of_user_predicted.variance, predicted.variance, rtol=1e-8, atol=1e-10)


def _norm(gradient):
    return float(gradient.norm())


@pytest.mark.parametrize("noise", ["of all", "per process"])
def test_strategy_and_sparse_regressor_are_one_posterior(noise):
    """Inducing inputs that are rows, with the loadings of their processes: elbo and evidence, and all predictions."""
    (x, y), new = rows(15), rows(5, seed=3)[0]
    covariance = correlated_covariance(3, 2, structure="coregionalised").double()
    gaussian = gpytorch.likelihoods.GaussianLikelihood()
    likelihood = gaussian.double() if noise == "of all" else ProcessGaussianLikelihood(3).double()
    zero = gpytorch.means.ZeroMean()
    regressor = SparseCorrelatedGPRegression(
        x, y, 3, num_inducing=6, covar_module=covariance, likelihood=likelihood, mean_module=zero
    )
    regressor = shuffled(regressor)
    features, component = regressor.features, covariance.kernels[0]
    with torch.no_grad():
        processes = torch.arange(6) % 3
        features.weights[0].copy_(torch.nn.functional.one_hot(processes, 3))
    inducing = torch.cat([features.places[0], processes[:, None].double()], dim=-1).detach()
    strategy = DTCVariationalStrategy(component, inducing, x, y, likelihood).double()
    model = ApproximateGP(strategy)
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))(model(x), y, rows=x)
    expected = regressor.log_evidence() + regressor.log_prior()  # which GPyTorch's objectives add
    torch.testing.assert_close(elbo * len(y), expected, rtol=1e-9, atol=0)
    with torch.no_grad():
        ours, theirs = model.eval()(new), regressor.posterior(new)
        torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
def test_kernels_with_named_covariances_have_second_derivatives(name):
    """GPyTorch's Matérn has none: the family evaluates the covariances of the package."""
    torch.manual_seed(0)
    kernel = HadamardCorrelatedKernel(CorrelatedKernel(name, 2, 2).double())
    assert isinstance(kernel, CanonicalKernel)
    assert isinstance(correlated_covariance(2, 2).kernels[0], CanonicalKernel)
    numbers = torch.tensor([[0.0], [1.0], [1.0]]).double()

    def gram(inputs):
        return kernel(torch.cat([inputs, numbers], -1)).to_dense()

    assert torch.autograd.gradgradcheck(gram, torch.randn(3, 2).double().requires_grad_())
