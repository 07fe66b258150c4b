"""Squared distances against scipy in float64, for points far from the origin and near each other in float32."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from torch.autograd import gradcheck, gradgradcheck

from cgp.attention.formulas import kernel_attention as kernel_attention_module
from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional import distances
from cgp.functional.distances import squared_distance
from cgp.functional.kernels import CANONICAL, canonical, gram_of_sets, squared_exponential

RBF = canonical("rbf")
STATIONARY = [name for name, kernel in CANONICAL.items() if kernel.stationary]


def clusters(*sizes, scale, seed=0, batch=(), width=4):
    """Points at distances of order one from one of several places that are some scale apart."""
    generator = torch.Generator().manual_seed(seed)
    centres = scale * torch.randn(*batch, len(sizes), width, generator=generator)
    places = centres.repeat_interleave(torch.tensor(sizes), -2)
    return places + 0.5 * torch.randn(*batch, sum(sizes), width, generator=generator)


@given(offset=st.floats(-1e3, 1e3), scale=st.sampled_from([1e-3, 1.0]), seed=st.integers(0, 1000))
def test_distances_keep_their_digits_far_from_the_origin(offset, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(6, 3, generator=generator, dtype=torch.float64) * scale).float() + offset
    y = (torch.randn(12, 3, generator=generator, dtype=torch.float64) * scale).float() + offset
    expected = cdist(x.double(), y.double(), "sqeuclidean")
    np.testing.assert_allclose(squared_distance(x, y), expected, atol=2e-5 * max(scale**2, expected.max()))


@given(scale=st.floats(1e3, 1e6), seed=st.integers(0, 1000), place=st.integers(0, 9))
def test_distances_keep_their_digits_beside_a_far_point(scale, seed, place):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(10, 3, generator=generator)
    x[place] *= scale
    ordinary = torch.arange(10) != place
    expected = cdist(x.double(), x.double(), "sqeuclidean")[ordinary][:, ordinary]
    np.testing.assert_allclose(squared_distance(x, x.clone())[ordinary][:, ordinary], expected, atol=2e-5)


@given(scale=st.floats(1.0, 1e4), seed=st.integers(0, 1000))
def test_near_neighbours_keep_their_distances_however_far_they_are(scale, seed):
    x, y = clusters(4, 3, 5, scale=scale, seed=seed), clusters(2, 4, 1, scale=scale, seed=seed)
    for result, expected in ((squared_distance(x), cdist(x, x)), (squared_distance(x, y), cdist(x, y))):
        np.testing.assert_allclose(result, expected**2, rtol=1e-3, atol=5e-4)  # of the product, and exact beyond


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4])
def test_covariances_and_gradients_of_far_clusters_are_those_of_float64(name, scale):
    x, y = clusters(3, 4, scale=scale, batch=(2,)), clusters(5, 2, scale=scale, batch=(2,))
    weights = [torch.randn(2, 7, m, generator=torch.Generator().manual_seed(m)) for m in (7, 8)]

    def outcome(dtype):
        points = [z.to(dtype).requires_grad_() for z in (x, y[:, :1], y)]
        gram = canonical(name).gram(points[0])
        two = gram_of_sets(canonical(name), (points[1], points[2]), points[0])
        total = (gram * weights[0].to(dtype)).sum() + (two * weights[1].mT.to(dtype)).sum()
        return [gram, two, *torch.autograd.grad(total, points)]

    for single, double in zip(outcome(torch.float32), outcome(torch.float64), strict=True):
        assert (single - double).abs().max() < 2e-4 * double.abs().max()


@pytest.mark.parametrize("name", STATIONARY)
def test_coincident_points_have_their_own_variance(name):
    """In float32, at ordinary sizes too: of the root of a distance rounding would leave three per mille."""
    for scale in (1.0, 10.0, 1e3):
        x = scale * torch.randn(3, 20, 32)
        torch.testing.assert_close(
            canonical(name).gram(x, x.clone()).diagonal(dim1=-2, dim2=-1), torch.ones(3, 20), rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("pieces", [1, 4, 1000])
def test_differences_have_the_derivatives_of_the_product(monkeypatch, pieces):
    """Every pair by its difference, own backward pass and plain formula, twice, with points that a batch shares."""
    x, shared = (torch.randn(*s, dtype=torch.float64).requires_grad_() for s in ((2, 3, 2), (2, 2)))
    kernels = [canonical(name).gram for name in STATIONARY if name != "matern12"]  # which has no curvature at zero
    expected = [kernel(*points) for kernel in kernels for points in ((x,), (x, shared), (shared, x))]
    monkeypatch.setattr(distances, "_EXACT", 0.0)
    monkeypatch.setattr(distances, "_PIECE", pieces)
    covariances = [kernel(*points) for kernel in kernels for points in ((x,), (x, shared), (shared, x))]
    for covariance, plain in zip(covariances, expected, strict=True):
        torch.testing.assert_close(covariance, plain, rtol=1e-9, atol=1e-12)
    of_sets = partial(gram_of_sets, RBF)
    for kernel in kernels[:2] if pieces == 4 else [squared_exponential]:
        for points in ((x,), (x, shared), (shared, x)):
            assert gradcheck(kernel, points)
            assert gradgradcheck(kernel, points)
    assert gradcheck(lambda a, b: of_sets((a, b), shared), (x, x.detach() + 1.0))


@pytest.mark.parametrize("name", STATIONARY)
def test_points_whose_own_digits_decide_are_refused(name):
    gram = canonical(name).gram
    x = clusters(3, 3, scale=1e6)
    for points in ((x,), (x, x + 0.5), (x[None], x[None] + 0.5)):
        with pytest.raises(ValueError, match=r"points: expected sizes at which torch.float32 resolves distances, got"):
            gram(*points)
    gram(x.double())
    gram(x[::3])  # none near another
    torch.testing.assert_close(gram(x[::3], x[::3].clone()), torch.eye(2))


def test_what_cannot_look_at_values_refuses(monkeypatch):
    """Compiled, by an assertion; under a transform, where nothing can be asserted, by NaN."""
    x, lost = clusters(3, 4, scale=1.0), clusters(3, 4, scale=1e4)
    torch._dynamo.reset()
    compiled = torch.compile(squared_exponential, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), squared_exponential(x))
    torch.testing.assert_close(compiled(x, 10.0 * x), squared_exponential(x, 10.0 * x))
    for points in ((lost,), (lost, lost + 0.1)):
        with pytest.raises(RuntimeError, match="float32 loses distances"):
            compiled(*points)
    mapped = torch.func.vmap(squared_exponential)
    torch.testing.assert_close(mapped(x[None])[0], squared_exponential(x))
    assert mapped(lost[None]).isnan().any()
    one_far = torch.cat([x, torch.full((1, 4), 1e5)])
    for call in (compiled, lambda z: mapped(z[None])[0]):
        torch.testing.assert_close(call(one_far), squared_exponential(one_far))
    monkeypatch.setattr(distances, "may_read", lambda x: False)  # as in a CUDA graph
    torch.testing.assert_close(squared_exponential(one_far), compiled(one_far))
    for points in ((lost,), (lost, lost + 0.1)):
        with pytest.raises(RuntimeError, match="float32 loses distances"):
            squared_exponential(*points)


def test_large_kernel_attention_bears_far_points(monkeypatch):
    """By softmax a far point's score with itself would be thousands above zero, or below."""
    monkeypatch.setattr(kernel_attention_module, "_KEPT", 0)
    x = clusters(4, 5, scale=1e3, batch=(1, 2))
    values = torch.randn(1, 2, 9, 3)
    expected = squared_exponential(x.double()) @ values.double()
    assert (kernel_attention(RBF, x, x.clone(), values) - expected).norm() < 1e-3 * expected.norm()
