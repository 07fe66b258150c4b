import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel
from linear_operator import to_dense

from cgp.regression.gram import stationary_gram

KERNELS = [RBFKernel, lambda: MaternKernel(nu=0.5), lambda: MaternKernel(nu=1.5), lambda: MaternKernel(nu=2.5)]


def points(*shape, seed=0):
    return torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fixed(make, lengthscale=1.3):
    kernel = make().double()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_equals_gpytorch_with_both_derivatives(make, batch):
    kernel = fixed(make)
    x1, x2 = points(*batch, 5), points(4, seed=1)
    torch.testing.assert_close(stationary_gram(kernel, x1, x2), to_dense(kernel(x1, x2)), atol=1e-12, rtol=0)
    leaves = [value.requires_grad_() for value in (x1, x2)]
    assert torch.autograd.gradcheck(lambda *x: stationary_gram(kernel, *x), leaves)
    assert torch.autograd.gradgradcheck(lambda *x: stationary_gram(kernel, *x), leaves)


@pytest.mark.parametrize("make", KERNELS)
def test_a_set_with_itself_far_from_the_origin_and_with_repeats(make):
    kernel = fixed(make)
    x = points(6)
    x = torch.cat([x, x[:2]]) + 1000.0
    expected = to_dense(kernel(x - 1000.0))
    tolerance = 1e-6 if make is KERNELS[1] else 1e-12  # the root of a rounded distance
    torch.testing.assert_close(stationary_gram(kernel, x, x), expected, atol=tolerance, rtol=0)
    leaf = x.clone().requires_grad_()
    stationary_gram(kernel, leaf, leaf).sum().backward()
    assert torch.isfinite(leaf.grad).all()


def test_kernels_that_learn_are_left_to_gpytorch():
    x = points(4)
    for kernel in (RBFKernel().double(), RQKernel().double(), RBFKernel(ard_num_dims=2).double()):
        gram = stationary_gram(kernel, x, x)
        torch.testing.assert_close(gram, to_dense(kernel(x)))
        gram.sum().backward()
        assert kernel.raw_lengthscale.grad.abs().sum() > 0
