"""Functions with a custom backward pass: values and two derivatives of the plain formula, with less memory."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional.column_gaussians import column_quadratic_forms
from cgp.functional.distances import log_squared_exponential, squared_distance
from cgp.functional.gaussians import MarginalGaussian
from cgp.functional.kep_svgp import unit_rows
from cgp.functional.kernels import (
    _matern_value,
    canonical,
    squared_exponential,
)
from cgp.functional.linalg import (
    cholesky,
    explained_variances,
    inverse,
    inverse_factor,
    may_own_backward,
    outer_product,
    product,
    quadratic_forms,
    solve,
)
from cgp.functional.sparse_correlated import features


def normal(*shape, scale=1.0):
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def definite(*batch, n=4):
    a = torch.randn(*batch, n, n, dtype=torch.float64)
    return (a @ a.mT + torch.eye(n, dtype=torch.float64)).requires_grad_()


def plain_gram(x1, x2=None):
    return log_squared_exponential(x1, x2).exp()


def plain_features(points, whitening, *sets):
    return tuple(whitening @ plain_gram(points, x) for x in sets)


def symmetric(matrix):
    return 0.5 * (matrix + matrix.mT)


def attention_arguments():
    return normal(2, 2, 3, 2), normal(2, 2, 4, 2), normal(2, 2, 4, 2)


def with_factor(function, invert=False):
    """A function of a matrix, right-hand sides and the factor of the matrix, of the first two."""

    def of_matrix(matrix, *rest):
        matrix = symmetric(matrix)
        factor = cholesky(matrix, name="A", jitter=0.0)
        return function(matrix, *rest, inverse_factor(factor) if invert else factor)

    return of_matrix


def plain_solve(matrix, rhs):
    return torch.cholesky_solve(rhs, torch.linalg.cholesky(symmetric(matrix)))


RBF = canonical("rbf")
# name: the function, the plain formula, its arguments
CASES = {
    "gram": (squared_exponential, plain_gram, lambda: (normal(2, 2, 3, 2), normal(2, 4, 2))),
    "gram of one set": (squared_exponential, plain_gram, lambda: (normal(2, 4, 3),)),
    "features": (
        partial(features, RBF),
        plain_features,
        lambda: (normal(2, 3, 2), normal(2, 3, 3), normal(2, 2, 2, 2), normal(2, 2, 2, 2)),
    ),
    "features of points per sequence": (
        partial(features, canonical("rq")),
        lambda points, whitening, x: (whitening @ (1.0 - plain_gram(points, x).log()).reciprocal(),),
        lambda: (normal(2, 1, 3, 2), normal(2, 1, 3, 3), normal(2, 1, 2, 2)),
    ),
    "matern 5/2": (
        canonical("matern52").gram,
        lambda x, y: _matern_value(5.0 * squared_distance(x, y), 2),
        lambda: (normal(2, 2, 3, 2), normal(2, 4, 2)),
    ),
    "solve": (with_factor(solve), plain_solve, lambda: (definite(2), normal(2, 4, 3))),
    "inverse": (
        with_factor(inverse, invert=True),
        lambda a: plain_solve(a, torch.eye(4, dtype=torch.float64).expand_as(a)),
        lambda: (definite(2),),
    ),
    "explained variances": (
        with_factor(explained_variances),
        lambda a, c: (c * plain_solve(a, c)).sum(-2),
        lambda: (definite(2), normal(2, 4, 3)),
    ),
    "kernel attention": (partial(kernel_attention, RBF), lambda x, y, v: plain_gram(x, y) @ v, attention_arguments),
    "outer product": (outer_product, lambda a: a @ a.mT, lambda: (normal(2, 3, 4).mT,)),
    "product": (product, torch.matmul, lambda: (normal(2, 2, 3, 4), normal(2, 4, 2))),
    "quadratic forms": (
        quadratic_forms,
        lambda a, m: torch.einsum("...in,...ij,...jn->...n", a, m, a),
        lambda: (normal(2, 2, 3, 4), normal(2, 3, 3)),
    ),
    "unit rows": (
        unit_rows,
        lambda x: torch.nn.functional.normalize(x, dim=-1),
        lambda: (normal(2, 3, 4, 2).transpose(1, 2),),
    ),
    "column quadratic forms": (
        lambda a, m: column_quadratic_forms(a, symmetric(m)),
        lambda a, m: torch.einsum("bhni,hcij,bhnj->bhnc", a, symmetric(m), a),
        lambda: (normal(2, 2, 3, 3), normal(2, 2, 3, 3)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_two_gradients_are_those_of_the_plain_formula(name):
    function, plain, make = CASES[name]
    arguments = make()
    torch.testing.assert_close(function(*arguments), plain(*arguments), rtol=1e-9, atol=1e-10)
    assert gradcheck(function, arguments)
    assert gradgradcheck(function, arguments)


@pytest.mark.parametrize("name", CASES)
def test_each_argument_has_its_gradient_where_the_others_need_none(name):
    function, _, make = CASES[name]
    arguments = make()

    def total(*values):
        outputs = function(*values)
        return sum(output.square().sum() for output in ([outputs] if isinstance(outputs, torch.Tensor) else outputs))

    together = torch.autograd.grad(total(*arguments), arguments)
    for index, expected in enumerate(together):
        others = [x if i == index else x.detach() for i, x in enumerate(arguments)]
        (by_itself,) = torch.autograd.grad(total(*others), arguments[index])
        torch.testing.assert_close(by_itself, expected, rtol=1e-10, atol=1e-12)


COMPILED = ("gram", "features", "matern 5/2", "solve", "kernel attention", "column quadratic forms")


def test_gradients_have_the_layout_of_features():
    features_k, v, matrix = normal(2, 6, 3).mT, normal(2, 6, 4), normal(2, 3, 3)
    for outputs in (outer_product(features_k), product(features_k, v), quadratic_forms(features_k, matrix)):
        (gradient,) = torch.autograd.grad(outputs.sum(), features_k)
        assert gradient.stride() == features_k.stride()


@pytest.mark.parametrize("name", CASES)
def test_the_plain_formula_is_taken_where_every_step_must_be_seen(name):
    torch._dynamo.reset()  # the compiler gives a function up that it has compiled too often
    function, plain, make = CASES[name]
    arguments = tuple(x.detach() for x in make())
    assert may_own_backward()

    tangents = tuple(torch.randn_like(x) for x in arguments)
    _, pushed = torch.func.jvp(function, arguments, tangents)
    _, expected = torch.func.jvp(plain, arguments, tangents)
    torch.testing.assert_close(pushed, expected, rtol=1e-8, atol=1e-9)
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(x, t) for x, t in zip(arguments, tangents, strict=True))
        outputs = function(*duals)
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        assert forward_ad.unpack_dual(first).tangent is not None
    if name in COMPILED:
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(*arguments), plain(*arguments), rtol=1e-9, atol=1e-10)


@given(offset=st.floats(-300.0, 300.0), seed=st.integers(0, 1000))
def test_features_keep_their_digits_far_from_the_origin(offset, seed):
    generator = torch.Generator().manual_seed(seed)
    points, x = (torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (4, 6))
    identity = torch.eye(4).expand(2, 4, 4)
    (shifted,) = features(RBF, (points + offset).float(), identity, (x + offset).float())
    (exact,) = features(RBF, (points + offset).float().double(), identity.double(), (x + offset).float().double())
    torch.testing.assert_close(shifted, exact.float(), rtol=0.0, atol=2e-6)


def test_the_diagonal_of_one_set_is_one_even_in_single_precision():
    assert (squared_exponential(100.0 * torch.randn(3, 20, 4)).diagonal(dim1=-2, dim2=-1) == 1.0).all()


def test_a_draw_of_no_variance_is_its_mean_and_has_no_gradient_of_it():
    mean, variance = normal(3, 2), torch.tensor([[4.0], [0.0], [0.0]], dtype=torch.float64, requires_grad=True)
    draw = MarginalGaussian(mean, variance[:, 0]).rsample(generator=torch.Generator().manual_seed(0))
    epsilon = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(draw, mean + torch.tensor([[2.0], [0.0], [0.0]]) * epsilon)
    (gradient,) = torch.autograd.grad(draw.sum(), variance)
    torch.testing.assert_close(gradient, torch.tensor([[0.25], [0.0], [0.0]]) * epsilon.sum(-1, keepdim=True))


def test_features_keep_no_copies_of_the_tokens():
    x, z = torch.randn(2, 50, 2, 3, 4).requires_grad_().unbind(2)  # as two processes of one projection
    points, whitening, kept = normal(3, 5, 4).float(), torch.eye(5).expand(3, 5, 5), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        features(RBF, points, whitening, x.transpose(1, 2), z.transpose(1, 2))
    assert sum(t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for t in kept) == 2
    assert len(kept) == 6  # points and their centre, whitening, two sets of tokens and the covariance


def test_unit_rows_of_zeros_are_zero_and_have_finite_gradients():
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    y = unit_rows(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert not y.any()
    assert gradient.isfinite().all()
