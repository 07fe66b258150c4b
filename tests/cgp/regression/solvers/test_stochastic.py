from copy import deepcopy

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, PoissonLikelihood, StudentTLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import StochasticCorrelatedGPRegression
from cgp.regression.inference.minibatches import fit_minibatches, start_from
from tests.cgp.regression.data import model_of, regression, rows, shuffled


def bound_of(model, x, y):
    """Nats of all rows, without the priors: GPyTorch counts those of a likelihood that the model owns twice."""
    bound = VariationalELBO(model.likelihood, model.train(), num_data=len(y))
    priors = sum(prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in bound.named_priors())
    return bound(model(x), y, rows=x) * len(y) - priors


def test_a_start_from_all_rows_is_the_closed_forms_optimum():
    (x, y), new = rows(15), rows(5, seed=3)[0]
    closed, model = regression("sparse", num_components=2), model_of("stochastic", x, y, num_components=2)
    start_from(model, closed, 15)
    for name, value in closed.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in model.variational_strategy.parameters())
    torch.testing.assert_close(bound_of(model, x, y), closed.log_evidence())
    counted = -(closed.log_evidence() + closed.log_prior()).item() / 15  # every prior once
    with pytest.warns(ConvergenceWarning):
        result = fit_minibatches(deepcopy(model), x, y, batch_size=15, num_epochs=1, learning_rate=0.0).loss
    assert result == pytest.approx(counted)
    torch.testing.assert_close(model.moments(new, noisy=True), closed.moments(new, noisy=True))
    posterior = model.posterior(new)
    assert model.training
    torch.testing.assert_close(posterior.mean, closed(new).mean)
    torch.testing.assert_close(posterior.covariance_matrix, closed(new).covariance_matrix)
    with pytest.raises(ValueError, match="rows: expected the inputs of the observations"):
        VariationalELBO(model.likelihood, model, num_data=15)(model(x), y)


def test_further_observations_are_conditioned_on_in_closed_form():
    (x, y), new = rows(15), rows(5, seed=3)[0]
    closed, model = regression("sparse"), model_of("stochastic", x[:10], y[:10])
    closed.set_train_data(x[:10], y[:10], strict=False)
    start_from(model, closed, 10)
    torch.testing.assert_close(model.eval().leave_one_out(), closed.leave_one_out())
    result = model.get_fantasy_model(x[10:], y[10:])
    closed.set_train_data(x, y, strict=False)
    torch.testing.assert_close(result.moments(new), closed.moments(new))


class StockVariational(ApproximateGP):
    """GPyTorch's SVGP of one process with the same kernel, inducing inputs and q."""

    def __init__(self, model):
        component, strategy = model.covar_module.kernels[0], model.variational_strategy
        scales = component.input_maps.scales.detach()
        points = model.inducing_points()[0].inputs.detach() / scales
        q = CholeskyVariationalDistribution(len(points))
        super().__init__(VariationalStrategy(self, points, q, learn_inducing_locations=False, jitter_val=1e-8))
        self.mean_module, self.covar_module = ConstantMean(), ScaleKernel(RBFKernel(ard_num_dims=2))
        self.double()
        self.variational_strategy.variational_params_initialized.fill_(1)
        q.variational_mean.data.copy_(strategy.variational_mean)
        q.chol_variational_covar.data.copy_(strategy.root)
        self.mean_module.constant = model.mean_module.constants.detach().squeeze()
        self.covar_module.outputscale = component.loadings.scales.detach().square().squeeze()
        self.covar_module.base_kernel.lengthscale = scales.reciprocal()

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize(
    ("make", "observe"),
    [
        (BernoulliLikelihood, lambda y: (y > 0).to(y)),
        (PoissonLikelihood, lambda y: y.abs().ceil()),
        (StudentTLikelihood, lambda y: y),
        (GaussianLikelihood, lambda y: y),
    ],
)
def test_the_bound_of_any_likelihood_is_that_of_gpytorchs_svgp(make, observe):
    x, y = rows(12, processes=1)
    y = observe(y)
    model = shuffled(StochasticCorrelatedGPRegression(x, y, num_inducing=5, likelihood=make()))
    stock = StockVariational(model).train()
    expected = VariationalELBO(model.likelihood, stock, num_data=12)(stock(x[:, :-1]), y) * 12
    torch.testing.assert_close(bound_of(model, x, y), expected, atol=1e-5, rtol=1e-6)


def test_counts_are_learned():
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)
    rate = 3.0 + 2.0 * (2 * x).sin()
    counts = torch.poisson(rate, generator=torch.Generator().manual_seed(0))
    inputs = torch.stack([x, torch.zeros_like(x)], dim=-1)
    model = StochasticCorrelatedGPRegression(inputs, counts, num_inducing=8, likelihood=PoissonLikelihood())
    fit_minibatches(model, inputs, counts, batch_size=60, num_epochs=150, learning_rate=0.05, tolerance=0.1)
    result = torch.nn.functional.softplus(model.moments(inputs).mean)
    assert (result - rate).abs().mean() < 0.6
    for question in (model.leave_one_out, lambda: model.moments(inputs, noisy=True)):
        with pytest.raises(ValueError, match="likelihood: expected Gaussian noise, got PoissonLikelihood"):
            question()


def test_a_start_from_some_rows_weighs_them_for_all():
    x, y = rows(15)
    closed, doubled = regression("sparse"), model_of("stochastic", x, y)
    start_from(doubled, closed, 30)
    with torch.no_grad():
        sums = closed.sums()
        precision = torch.eye(6) + 2 * sums.gram
        expected = torch.cholesky_solve(2 * sums.projection, torch.linalg.cholesky(precision))[:, 0]
    torch.testing.assert_close(doubled.variational_strategy.variational_mean.detach(), expected)
    root = doubled.variational_strategy.root.detach()
    torch.testing.assert_close(precision @ root @ root.mT, torch.eye(6).double(), atol=1e-7, rtol=0)
