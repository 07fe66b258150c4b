"""Lazily computed covariances give the same distribution as given ones."""

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.utils.warnings import NumericalWarning

from cgp.operators import DenseCovarianceLinearOperator, LazyMultivariateNormal, shared_covariance
from tests.blocks import BLOCKS


def at_once(block, x):
    posterior = block.gaussian(block.project(x))
    return MultivariateNormal(posterior.mean.mT, shared_covariance(posterior))


@pytest.fixture(params=["sparse_cgp", "sgpa"])
def block(request):
    return BLOCKS[request.param](8, 2).double().eval()


@pytest.fixture
def x():
    return torch.randn(3, 5, 8, dtype=torch.float64)


def test_it_is_the_distribution_that_is_built_at_once(block, x):
    late, early = block.posterior(x), at_once(block, x)
    assert isinstance(late, LazyMultivariateNormal)
    assert (late.batch_shape, late.event_shape) == (early.batch_shape, early.event_shape)
    torch.testing.assert_close(late.mean, early.mean)
    torch.testing.assert_close(late.variance, early.variance)
    assert not late.is_built
    torch.testing.assert_close(late.covariance_matrix, early.covariance_matrix)
    assert late.is_built
    value = torch.randn_like(late.mean)
    torch.testing.assert_close(late.log_prob(value), early.log_prob(value))
    torch.manual_seed(1)
    draw = late.rsample(torch.Size([2]))
    torch.manual_seed(1)
    torch.testing.assert_close(draw, early.rsample(torch.Size([2])))


def test_gradients_flow_even_where_it_is_built_without_a_graph_around(block, x):
    late = block.posterior(x.requires_grad_())
    with torch.no_grad():
        covariance = late.lazy_covariance_matrix
    (gradient,) = torch.autograd.grad(covariance.to_dense().sum(), x)
    (expected,) = torch.autograd.grad(at_once(block, x).lazy_covariance_matrix.to_dense().sum(), x)
    torch.testing.assert_close(gradient, expected)
    with torch.no_grad():
        without = block.posterior(x)
    assert not without.lazy_covariance_matrix.to_dense().requires_grad


def test_weights_that_change_later_do_not_change_it(block, x):
    with torch.no_grad():
        late, expected = block.posterior(x), block.posterior(x).covariance_matrix
        for parameter in block.parameters():
            parameter.mul_(1.5)
        torch.testing.assert_close(late.covariance_matrix, expected)


def test_what_gpytorch_makes_of_it_is_as_of_any_other(block, x):
    late, early = block.posterior(x), at_once(block, x)
    for result, expected in (
        (late.expand(torch.Size([2, *late.batch_shape])), early.expand(torch.Size([2, *early.batch_shape]))),
        (late.unsqueeze(0), early.unsqueeze(0)),
        (late.add_jitter(0.1), early.add_jitter(0.1)),
        (late[..., :3], early[..., :3]),
        (late * 2.0, early * 2.0),
    ):
        torch.testing.assert_close(result.mean, expected.mean)
        torch.testing.assert_close(result.variance, expected.variance)
        torch.testing.assert_close(result.covariance_matrix, expected.covariance_matrix)


def test_variances_below_gpytorchs_floor_are_lifted_as_ever():
    build = MultivariateNormal(torch.zeros(3), torch.diag(torch.tensor([1.0, 1e-9, 2.0]))).lazy_covariance_matrix
    late = LazyMultivariateNormal(torch.zeros(3), lambda: build, variance=build.diagonal())
    with pytest.warns(NumericalWarning, match="variance"):
        variance = late.variance
    assert variance[1] > 1e-9
    assert not late.is_built


def test_the_jitter_of_a_small_covariance_is_small_beside_a_padded_row():
    covariance = torch.zeros(3, 3, dtype=torch.float64)
    covariance[:2, :2] = 1e-8  # of rank one
    factor = DenseCovarianceLinearOperator(covariance).cholesky().to_dense()
    torch.testing.assert_close(factor @ factor.mT, covariance, rtol=1e-6, atol=0.0)
