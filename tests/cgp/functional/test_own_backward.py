"""Functions with a backward pass of their own: the plain formula's values and gradients, twice, with less kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from cgp.functional import kernel_product, products
from cgp.functional.cholesky import NotPositiveDefiniteError, cholesky, inverse_factor
from cgp.functional.covariances import _log_squared_exponential, canonical, squared_exponential
from cgp.functional.differentiation import may_own_backward
from cgp.functional.draws import marginal_draw
from cgp.functional.factored import factored, whitened
from cgp.functional.normalised_softmax import normalised_softmax
from cgp.functional.shared_features import shared_features
from cgp.functional.sparse_correlated import direct_terms, features, features_of, latent_terms, marginal_posterior
from cgp.functional.sparse_hop import sparse_hop


def normal(*shape, scale=1.0):
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def definite(*batch, n=5):
    a = torch.randn(*batch, n, n, dtype=torch.float64)
    return (a @ a.mT + torch.eye(n, dtype=torch.float64)).requires_grad_()


def plain_gram(x1, x2=None):
    return _log_squared_exponential(x1, x2).exp()


def plain_features(points, whitening, x):
    return whitening @ plain_gram(points, x)


def plain_factored(matrix):
    factor = cholesky(matrix, name="A", jitter=0.0)
    return factor, inverse_factor(factor)


def own_factored(matrix):
    return tuple(factored(matrix, name="A", jitter=0.0))


def symmetric(matrix):
    return 0.5 * (matrix + matrix.mT)


def attention_arguments():
    return normal(2, 3, 4, 2), normal(2, 3, 5, 2), normal(2, 3, 5, 3)


def hop_arguments(*lengths):
    """Prior variance, noise of each head, values, and features of queries, keys (and latent inputs)."""
    prior, noise = torch.ones(2, 3, lengths[0]).double().requires_grad_(), torch.tensor([0.3, 0.5, 0.9]).double()
    sets = [normal(2, 3, 4, n, scale=0.3 if i == 0 else 1.0) for i, n in enumerate(lengths)]
    return prior, noise.requires_grad_(), normal(2, 3, lengths[1], 2), *sets


RBF = canonical("rbf")
# name: the function, the plain formula, its arguments
CASES = {
    "gram": (squared_exponential, plain_gram, lambda: (normal(2, 3, 4, 2), normal(3, 5, 2))),
    "gram of one set": (squared_exponential, plain_gram, lambda: (normal(2, 4, 3),)),
    "features": (
        lambda p, w, x: features(RBF, p, w, x),
        plain_features,
        lambda: (normal(3, 4, 2), normal(3, 4, 4), normal(2, 3, 5, 2)),
    ),
    "features of two sets": (
        lambda p, w, x, y: features_of(RBF, p, w, x, y),
        lambda p, w, x, y: (plain_features(p, w, x), plain_features(p, w, y)),
        lambda: (normal(3, 4, 2), normal(3, 4, 4), normal(2, 3, 5, 2), normal(2, 3, 5, 2)),
    ),
    "direct hop": (
        lambda prior, noise, v, q, k: sparse_hop(q, k, None, v, prior, noise),
        lambda prior, noise, v, q, k: tuple(marginal_posterior(direct_terms(q, k, v, prior, noise=noise))),
        lambda: hop_arguments(5, 6),
    ),
    "direct hop, variances alone": (
        lambda prior, noise, q, k: sparse_hop(q, k, None, None, prior, noise)[1],
        lambda prior, noise, q, k: marginal_posterior(direct_terms(q, k, k.mT, prior, noise=noise)).variance,
        lambda: (lambda prior, noise, v, q, k: (prior, noise, q, k))(*hop_arguments(5, 6)),
    ),
    "latent hop": (
        lambda prior, noise, v, q, k, o: sparse_hop(q, k, o, v, prior, noise),
        lambda prior, noise, v, q, k, o: tuple(marginal_posterior(latent_terms(q, o, k, v, prior, noise=noise))),
        lambda: hop_arguments(5, 6, 7),
    ),
    "marginal draw": (
        lambda mean, v, e: marginal_draw(mean, v.exp(), e.detach()),
        lambda mean, v, e: mean + v.exp().sqrt() * e.detach(),
        lambda: (normal(2, 5, 3), normal(2, 5, 1), torch.randn(4, 2, 5, 3, dtype=torch.float64)),
    ),
    "factor and inverse": (
        lambda a: own_factored(symmetric(a)),
        lambda a: plain_factored(symmetric(a)),
        lambda: (definite(2),),
    ),
    "kernel attention": (RBF.attend, lambda x, y, v: plain_gram(x, y) @ v, attention_arguments),
    "product": (products.product, torch.matmul, lambda: (normal(2, 3, 4, 5), normal(3, 5, 2))),
    "quadratic forms": (
        products.quadratic_forms,
        lambda a, m: torch.einsum("...in,...ij,...jn->...n", a, m, a),
        lambda: (normal(2, 3, 4, 5), normal(3, 4, 4)),
    ),
    "column quadratic forms": (
        lambda a, m: products.column_quadratic_forms(a, symmetric(m)),
        lambda a, m: torch.einsum("bhni,hcij,bhnj->bhnc", a, symmetric(m), a),
        lambda: (normal(2, 3, 5, 4), normal(3, 2, 4, 4)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_plain_formula(name):
    own, plain, make = CASES[name]
    arguments = make()
    variable = tuple(x for x in arguments if x.requires_grad)
    outputs, expected = own(*arguments), plain(*arguments)
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-10)
    single = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    cotangents = [torch.randn_like(x) for x in single]
    gradients = torch.autograd.grad(outputs, variable, cotangents)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, variable, cotangents), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_gradients_once_and_twice(name):
    own, _, make = CASES[name]
    arguments = make()
    assert gradcheck(own, arguments)
    assert gradgradcheck(own, arguments)


@pytest.mark.parametrize("name", CASES)
def test_the_plain_formula_is_taken_where_every_step_must_be_seen(name):
    torch._dynamo.reset()  # the compiler gives a function up that it has compiled too often
    own, plain, make = CASES[name]
    arguments = tuple(x.detach() for x in make())
    assert may_own_backward()

    def first(function):
        return lambda *x: y if isinstance(y := function(*x), torch.Tensor) else y[0]

    tangents = tuple(torch.randn_like(x) for x in arguments)
    _, pushed = torch.func.jvp(first(own), arguments, tangents)
    _, expected = torch.func.jvp(first(plain), arguments, tangents)
    torch.testing.assert_close(pushed, expected, rtol=1e-8, atol=1e-9)
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(x, t) for x, t in zip(arguments, tangents, strict=True))
        assert forward_ad.unpack_dual(first(own)(*duals)).tangent is not None
    compiled = torch.compile(first(own), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments), first(plain)(*arguments), rtol=1e-9, atol=1e-10)


@given(offset=st.floats(-300.0, 300.0), seed=st.integers(0, 1000))
def test_features_keep_their_digits_far_from_the_origin(offset, seed):
    generator = torch.Generator().manual_seed(seed)
    points, x = (torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (4, 6))
    identity = torch.eye(4).expand(2, 4, 4)
    shifted = features(RBF, (points + offset).float(), identity, (x + offset).float())
    exact = features(RBF, (points + offset).float().double(), identity.double(), (x + offset).float().double())
    torch.testing.assert_close(shifted, exact.float(), rtol=0.0, atol=2e-6)


def test_the_diagonal_of_one_set_is_one_even_in_single_precision():
    assert (squared_exponential(100.0 * torch.randn(3, 20, 4)).diagonal(dim1=-2, dim2=-1) == 1.0).all()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 64, 80])
def test_the_inverse_by_blocks_is_the_inverse(n):
    A = definite(3, n=n).detach()
    pair = factored(A, name="A", jitter=0.0)
    identity = torch.eye(n, dtype=torch.float64).expand(3, n, n)
    torch.testing.assert_close(pair.factor @ pair.factor.mT, A)
    torch.testing.assert_close(pair.inverse @ pair.factor, identity)
    assert not pair.inverse.triu(1).any()
    assert not pair.factor.triu(1).any()


@pytest.mark.parametrize("n", [16, 48, 64])
def test_in_single_precision_factors_are_as_good_as_lapacks(n):
    """Kernel matrices with the noise that attention has: backward errors of the same size."""
    K = squared_exponential(torch.randn(50, n, 8, dtype=torch.float64) * 0.3) + 0.01 * torch.eye(n)
    pair, lapack = factored(K.float(), name="K", jitter=0.0), torch.linalg.cholesky(K.float()).double()
    error = (pair.factor.double() @ pair.factor.double().mT - K).abs().max()
    assert error <= 4 * (lapack @ lapack.mT - K).abs().max() + 1e-7
    residual = pair.inverse.double() @ K @ pair.inverse.double().mT - torch.eye(n)
    assert residual.abs().max() < 2e-3


@pytest.mark.parametrize("n", [8, 100])
def test_whitened_right_hand_sides_small_and_large(n):
    A, B = definite(2, n=n), normal(2, n, 3)
    factor, white = whitened(A, B, name="A", jitter=0.0)
    expected = cholesky(A, name="A", jitter=0.0)
    solved = torch.linalg.solve_triangular(expected, B, upper=False)
    torch.testing.assert_close((factor, white), (expected, solved))
    cotangent = torch.randn_like(white)
    for own, plain in zip(
        torch.autograd.grad(white, (A, B), cotangent), torch.autograd.grad(solved, (A, B), cotangent), strict=True
    ):
        torch.testing.assert_close(own, plain)


def test_matrices_that_fail_climb_the_ladder_inside_as_well():
    good, bad = torch.eye(40).double(), torch.eye(40).double()
    bad[39, 39] = -2e-8
    pair = factored(torch.stack([good, bad]), name="A", jitter=0.0)
    torch.testing.assert_close(pair.factor[0], good)
    assert pair.factor[1, 39, 39] > 0
    with pytest.raises(NotPositiveDefiniteError, match="K is|K \\("):
        factored(-good, name="K", jitter=0.0)


def moved_features(points, whitening, scale, shift, x, y):
    return shared_features(points, whitening, x, y, scale=scale, shift=shift)


@pytest.mark.parametrize("lengths", [(5, 5), (5, 6)])
def test_features_of_scaled_and_shifted_tokens(lengths):
    points, whitening, scale, shift = normal(3, 4, 2), normal(3, 4, 4), normal(3, 1, 1), normal(2, 3, 1, 2)
    x, y = (normal(2, 3, n, 2) for n in lengths)
    arguments = points, whitening, scale, shift, x, y
    expected = tuple(plain_features(points, whitening, scale * z + d) for z, d in zip((x, y), shift, strict=True))
    features_of_both = moved_features(*arguments)
    torch.testing.assert_close(features_of_both, expected)
    cotangents = [torch.randn_like(rows) for rows in expected]
    gradients = torch.autograd.grad(features_of_both, arguments, cotangents)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, arguments, cotangents))
    assert gradgradcheck(moved_features, arguments)
    with torch.no_grad():
        torch.testing.assert_close(moved_features(*arguments), expected)


def test_where_a_variance_is_cut_at_zero_no_gradient_flows():
    prior, noise, v, _, k = hop_arguments(5, 6)
    q = normal(2, 3, 4, 5, scale=0.5)  # explained variances on both sides of the prior's
    own, plain = sparse_hop(q, k, None, v, prior, noise), marginal_posterior(direct_terms(q, k, v, prior, noise=noise))
    assert (q.square().sum(-2) > 1.0).any()
    assert (q.square().sum(-2) < 1.0).any()
    for a, b in zip(*(torch.autograd.grad(x[1].sum(), (q, prior)) for x in (own, plain)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_draw_of_no_variance_is_its_mean_and_has_no_gradient_of_it():
    mean, variance = normal(3, 2), torch.tensor([[4.0], [0.0], [0.0]], dtype=torch.float64, requires_grad=True)
    draw = marginal_draw(mean, variance, torch.ones(3, 2, dtype=torch.float64))
    torch.testing.assert_close(draw, mean + torch.tensor([[2.0], [0.0], [0.0]]))
    (gradient,) = torch.autograd.grad(draw.sum(), variance)
    torch.testing.assert_close(gradient, torch.tensor([[0.5], [0.0], [0.0]], dtype=torch.float64))


def test_without_a_graph_the_hop_is_the_same():
    prior, noise, v, q, k, o = hop_arguments(5, 6, 7)
    expected = sparse_hop(q, k, o, v, prior, noise)
    with torch.no_grad():
        torch.testing.assert_close(sparse_hop(q, k, o, v, prior, noise), expected)


def test_what_is_kept_is_what_the_formula_needs():
    x, points, whitening = (
        torch.randn(2, 3, 50, 4).requires_grad_(),
        normal(3, 5, 4).float(),
        torch.eye(5).expand(3, 5, 5),
    )
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        features(RBF, points, whitening, x)
    assert max(kept) <= max(x.numel(), 2 * 3 * 50 * 5)
    assert len(kept) == 4  # points, whitening, tokens and covariance


@pytest.mark.parametrize(("n", "m"), [(5, 5), (3, 7)])
def test_softmax_gives_its_normaliser_with_gradients(n, m):
    q, k, v = normal(2, 3, n, 4), normal(2, 3, m, 4), normal(2, 3, m, 4)
    mean, normaliser = normalised_softmax(q, k, v)
    scores = q @ k.mT / 2.0
    expected = scores.softmax(-1) @ v, scores.logsumexp(-1)
    torch.testing.assert_close((mean, normaliser), expected)
    cotangents = torch.randn_like(mean), torch.randn_like(normaliser)
    own = torch.autograd.grad((mean, normaliser), (q, k, v), cotangents)
    torch.testing.assert_close(own, torch.autograd.grad(expected, (q, k, v), cotangents))
    assert gradcheck(normalised_softmax, (q, k, v))
    alone = torch.autograd.grad(normalised_softmax(q, k, v)[1].sum(), (q, k))
    torch.testing.assert_close(alone, torch.autograd.grad((q @ k.mT / 2.0).logsumexp(-1).sum(), (q, k)))


@pytest.mark.parametrize("columns", [1, 3, 6])
def test_large_kernel_attention_is_the_same(columns, monkeypatch):
    monkeypatch.setattr(kernel_product, "_KEPT", 0)
    own, plain, _ = CASES["kernel attention"]
    arguments = *attention_arguments()[:2], normal(2, 3, 5, columns)
    attended, expected = own(*arguments), plain(*arguments)
    torch.testing.assert_close(attended, expected)
    cotangent = torch.randn_like(attended)
    gradients = torch.autograd.grad(attended, arguments, cotangent)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, arguments, cotangent))
    assert gradgradcheck(own, arguments)
    far = own(arguments[0] + 30.0, *arguments[1:])  # no key near: nothing is attended, nothing divides by zero
    torch.testing.assert_close(far, torch.zeros_like(far))


def test_large_kernel_attention_keeps_no_covariance():
    q, k, v = (torch.randn(4, 800, 8).requires_grad_() for _ in range(3))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        RBF.attend(q, k, v)
    assert max(kept) < 2 * q.numel()
