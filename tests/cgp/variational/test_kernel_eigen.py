"""Kernel-eigen features as a strategy: posterior and divergence at finite points, and regression by the ELBO."""

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.variational import KernelEigenVariationalStrategy
from tests.cgp.helpers import moved

X = torch.linspace(-1.5, 1.2, 5, dtype=torch.float64)[:, None]


def features():
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 6))


def make(**options):
    strategy = KernelEigenVariationalStrategy(features(), features(), num_features=6, rank=3, **options)
    moved(strategy.variables, 0.5)
    return strategy.double()


@pytest.mark.parametrize("branches", ["both", "e", "r"])
@pytest.mark.parametrize("batch", [(), (4, 1)])
def test_posterior_is_its_formula(branches, batch):
    strategy, x = make(branches=branches).eval(), X + torch.rand(*batch, 1, 1, dtype=torch.float64)
    e = strategy.query_features(x) @ strategy.weight_e
    r = strategy.key_features(x) @ strategy.weight_r
    A = {"both": e + r, "e": e, "r": r}[branches]
    posterior, prior = strategy(x), strategy(x, prior=True)
    assert posterior.batch_shape == prior.batch_shape == batch
    torch.testing.assert_close(posterior.mean, A @ strategy.variables.variational_mean[0])
    root = strategy.variables.root[0]
    torch.testing.assert_close(posterior.covariance_matrix, A @ root @ root.mT @ A.mT)
    torch.testing.assert_close(prior.covariance_matrix, A @ A.mT)


def test_divergence_is_that_of_the_function_at_as_many_points_as_features():
    """At r points the function fixes u, so both divergences are one."""
    strategy, points = make().eval(), X[:3]
    q, p = strategy(points), strategy(points, prior=True)
    explicit = kl_divergence(*(MultivariateNormal(z.mean, z.covariance_matrix) for z in (q, p)))
    torch.testing.assert_close(strategy.kl_divergence(), explicit, rtol=1e-4, atol=1e-4)


def test_residual_is_the_variance_unexplained_by_the_projections():
    with_residual, without = make(residual=True).eval(), make().eval()
    without.load_state_dict(with_residual.state_dict())
    difference = with_residual(X).covariance_matrix - without(X).covariance_matrix
    assert (difference.diagonal() >= 0).all()
    torch.testing.assert_close(difference, torch.diag(difference.diagonal()))
    assert difference.any()


def test_every_parameter_gets_a_gradient_and_a_weighted_loss_is_added():
    model = ApproximateGP(make())
    likelihood = GaussianLikelihood().double()
    (-VariationalELBO(likelihood, model, num_data=5)(model(X), X[:, 0])).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    (term,) = model.added_loss_terms()
    strategy = model.variational_strategy
    singular = strategy.log_singular_values.exp()
    e, r = strategy.query_features(X) @ strategy.weight_e, strategy.key_features(X) @ strategy.weight_r
    half = 0.5 * ((e.square().sum(0) + r.square().sum(0)) / singular).sum()
    loss = (half - (strategy.weight_e * strategy.weight_r).sum()).square() / len(X) ** 2
    torch.testing.assert_close(term.loss(), strategy.ksvd_weight * loss)
    without = make(ksvd_weight=0.0)
    without(X)
    assert not [term for term in without.added_loss_terms() if term is not None]


def test_nan_is_refused():
    with pytest.raises(ValueError, match="x: expected finite numbers, got 1 NaN or infinite of"):
        make()(X.masked_fill(X[1] == X, torch.nan))


def test_unknown_branch_is_refused():
    with pytest.raises(ValueError, match="branches: expected one of"):
        KernelEigenVariationalStrategy(features(), features(), num_features=6, rank=3, branches="k")


def test_more_singular_vectors_than_features_are_refused():
    with pytest.raises(ValueError, match="rank: expected 1 to 6, the number of features, got 7"):
        KernelEigenVariationalStrategy(features(), features(), num_features=6, rank=7)


def test_other_features_than_were_said_are_refused():
    strategy = KernelEigenVariationalStrategy(features(), features(), num_features=9, rank=3).double()
    with pytest.raises(ValueError, match=r"query_features: expected num_features=9 features, got shape \(.*, 6\)"):
        strategy(X)
