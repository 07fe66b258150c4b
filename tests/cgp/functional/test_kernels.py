"""Canonical covariances against GPyTorch's kernels."""

from functools import partial

import gpytorch
import numpy as np
import pytest
import torch

from cgp.functional.kernels import CANONICAL, canonical

REFERENCES = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern12": partial(gpytorch.kernels.MaternKernel, nu=0.5),
    "matern32": partial(gpytorch.kernels.MaternKernel, nu=1.5),
    "matern52": partial(gpytorch.kernels.MaternKernel, nu=2.5),
    "rq": gpytorch.kernels.RQKernel,
}


@pytest.mark.parametrize("name", REFERENCES)
def test_stationary_covariances_match_gpytorch(name):
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    kernel = REFERENCES[name]().double().initialize(lengthscale=1.0)
    if name == "rq":
        kernel.alpha = 1.0
    torch.testing.assert_close(canonical(name).gram(x, y), kernel(x, y).to_dense())
    torch.testing.assert_close(canonical(name).gram(x), kernel(x).to_dense(), rtol=1e-7, atol=1e-9)


def test_exponential_matches_its_definition():
    x, y = np.random.default_rng(0).normal(size=(2, 4, 3))
    expected = np.exp(np.einsum("id,jd->ij", x, y) / 3**0.5)
    np.testing.assert_allclose(canonical("exponential").gram(torch.tensor(x), torch.tensor(y)), expected)


@pytest.mark.parametrize("name", CANONICAL)
def test_gram_matrices_are_semi_definite_and_have_their_diagonal(name):
    x = torch.randn(3, 20, 2, dtype=torch.float64)
    gram = canonical(name).gram(x)
    torch.testing.assert_close(gram, gram.mT)
    assert torch.linalg.eigvalsh(gram).min() > -1e-9
    torch.testing.assert_close(canonical(name).diagonal(x), gram.diagonal(dim1=-2, dim2=-1))


@pytest.mark.parametrize("name", CANONICAL)
def test_gradients_are_finite_at_duplicated_points(name):
    x = torch.ones(3, 2).requires_grad_()
    (canonical(name).gram(x).sum() + canonical(name).gram(x, x.detach()).sum()).backward()
    assert torch.isfinite(x.grad).all()


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match="kernel: expected one of .*'rbf'.*got 'cosine'"):
        canonical("cosine")


@pytest.mark.parametrize("name", CANONICAL)
def test_first_and_second_derivatives(name):
    """Against finite differences, at points apart and, for smooth covariances, at coincident ones."""
    gram = canonical(name).gram
    x, y = torch.randn(3, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(gram, (x.requires_grad_(), y.requires_grad_()))
        assert check(gram, (x,))


@pytest.mark.parametrize(("name", "expected"), [("rbf", -1.0), ("matern32", -3.0), ("matern52", -5 / 3), ("rq", -1.0)])
def test_curvature_at_a_coincident_point(name, expected):
    x = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    value = canonical(name).gram(x, torch.zeros(1, 1, dtype=torch.float64)).sum()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert curvature.item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_exponential_raises_if_it_overflows(dtype):
    x = torch.full((2, 4), 10.0, dtype=dtype) * (1.0 if dtype == torch.float32 else 3.0)
    assert torch.isfinite(canonical("exponential").gram(0.1 * x)).all()
    with pytest.raises(ValueError, match=r"kernel: 'exponential' overflows .* expected scaled dot products up to"):
        canonical("exponential").gram(x)


def test_a_layer_norm_after_the_largest_exponential_is_finite():
    x = torch.full((64, 1), 29.5) ** 0.5  # largest products that are accepted in float32, many of them
    attended = canonical("exponential").gram(x) @ (100.0 * torch.randn(64, 8))
    assert torch.nn.functional.layer_norm(attended, (8,)).isfinite().all()
