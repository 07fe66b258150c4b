import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel

from cgp.kernels.canonical_kernel import CanonicalPoints, scaled_gram
from cgp.regression.radial import points_gram

KERNELS = [RBFKernel, lambda: MaternKernel(nu=0.5), lambda: MaternKernel(nu=1.5), lambda: MaternKernel(nu=2.5)]


def points(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(*shape, generator=generator, dtype=torch.float64)


def fixed(make, lengthscale=1.3):
    kernel = make().double()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_equals_gpytorch_with_its_own_gradient(make, batch):
    kernel = fixed(make)
    (x1, s1), (x2, s2) = points(*batch, 5), points(4, seed=1)

    def gram(x1, s1, x2, s2):
        return points_gram(kernel, CanonicalPoints(x1, s1), CanonicalPoints(x2, s2))

    expected = scaled_gram(kernel, CanonicalPoints(x1, s1), CanonicalPoints(x2, s2))
    torch.testing.assert_close(gram(x1, s1, x2, s2), expected, atol=1e-12, rtol=0)
    leaves = [value.requires_grad_() for value in (x1, s1, x2, s2)]
    assert type(gram(*leaves).grad_fn).__name__ == "_RadialGramBackward"
    assert torch.autograd.gradcheck(gram, leaves)


@pytest.mark.parametrize("make", KERNELS)
def test_a_set_with_itself_far_from_the_origin_and_with_repeats(make):
    kernel = fixed(make)
    x, s = points(6)
    x = torch.cat([x, x[:2]]) + 1000.0
    s = torch.cat([s, s[:2]])
    expected = scaled_gram(kernel, CanonicalPoints(x - 1000.0, s))
    tolerance = 1e-6 if make is KERNELS[1] else 1e-12  # the root of a rounded distance
    torch.testing.assert_close(points_gram(kernel, CanonicalPoints(x, s)), expected, atol=tolerance, rtol=0)
    leaf = x.clone().requires_grad_()
    points_gram(kernel, CanonicalPoints(leaf, s)).sum().backward()
    assert torch.isfinite(leaf.grad).all()


def test_kernels_that_learn_are_left_to_gpytorch():
    x, s = points(4)
    for kernel in (RBFKernel().double(), RQKernel().double()):
        gram = points_gram(kernel, CanonicalPoints(x, s))
        torch.testing.assert_close(gram, scaled_gram(kernel, CanonicalPoints(x, s)))
        gram.sum().backward()
        assert kernel.raw_lengthscale.grad.abs().sum() > 0
