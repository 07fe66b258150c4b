"""Gaussians with a covariance per column, and their quadratic forms in pieces, against dense algebra."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cgp.functional import column_gaussians
from cgp.functional.column_gaussians import ColumnGaussian, column_quadratic_forms


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric(*shape):
    matrices = normal(*shape, seed=1)
    return matrices + matrices.mT


def dense(rows, matrices):
    return torch.einsum("bhni,hcij,bhnj->bhnc", rows, matrices, rows)


@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 2),
    n=st.integers(1, 9),
    m=st.integers(1, 4),
    cached=st.integers(1, 40),
)
def test_quadratic_forms_do_not_depend_on_the_pieces(batch, heads, n, m, cached):
    """As many tokens at a time as fit: one, some, or all of them."""
    rows, matrices = normal(batch, heads, n, m).requires_grad_(), symmetric(heads, 2, m, m).requires_grad_()
    cotangent = normal(batch, heads, n, 2, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_gaussians, "_CACHED", cached)
        forms = column_quadratic_forms(rows, matrices)
        given_gradients = torch.autograd.grad(forms, (rows, matrices), cotangent)
    expected = dense(rows, matrices)
    torch.testing.assert_close(forms, expected)
    of_rows, of_matrices = torch.autograd.grad(expected, (rows, matrices), cotangent)
    torch.testing.assert_close(given_gradients[0], of_rows)
    # Each pair is read once, from the lower triangle: what is symmetric has its gradient there.
    torch.testing.assert_close(given_gradients[1] + given_gradients[1].mT, of_matrices + of_matrices.mT)


def gaussian(batch=(), *, shared=True, diagonal=True):
    """Four tokens, three columns, rank two; the roots of a head are shared by the batch or of each sequence."""
    leading = (2,) if shared and batch else batch  # heads
    parts = normal(*batch, 4, 3), normal(*batch, 4, 2, seed=1), normal(*leading, 3, 2, 2, seed=2).tril()
    return ColumnGaussian(*parts, normal(*batch, 4, 1, seed=3).square() if diagonal else None)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("batch", [(), (3, 2)])
def test_variances_are_the_diagonal_of_each_columns_covariance(batch, shared, diagonal):
    g = gaussian(batch, shared=shared, diagonal=diagonal)
    spread = g.roots @ g.roots.mT
    expected = torch.einsum("...ni,...cij,...kj->...cnk", g.features, spread, g.features)
    if diagonal:
        expected = expected + torch.diag_embed(g.diagonal.mT)
    torch.testing.assert_close(g.covariance, expected)
    torch.testing.assert_close(g.column_variances, expected.diagonal(dim1=-2, dim2=-1).mT)
    torch.testing.assert_close(g.variance, expected.diagonal(dim1=-2, dim2=-1).mean(-2))


@pytest.mark.parametrize("shared", [True, False])
def test_coefficients_have_the_roots_covariance(shared):
    g, count = gaussian((3, 2), shared=shared), 20_000
    draws = g.coefficients(torch.Size([count]), torch.Generator().manual_seed(0))  # (count, B, h, m, s)
    assert draws.shape == (count, 3, 2, 2, 3)
    expected = (g.roots @ g.roots.mT).expand(3, 2, 3, 2, 2)
    result = torch.einsum("tbhmc,tbhkc->bhcmk", draws, draws) / count
    scale = expected.diagonal(dim1=-2, dim2=-1).sqrt()
    assert ((result - expected) / (scale[..., :, None] * scale[..., None, :])).abs().max() < 5 * 2**0.5 / count**0.5


def test_a_dense_residual_replaces_the_diagonal_in_covariance_and_draws():
    root = torch.linalg.cholesky(0.5 * torch.eye(4, dtype=torch.float64) + 0.2)
    plain = gaussian(diagonal=False)
    g = ColumnGaussian(plain.mean, plain.features, 0.0 * plain.roots, root.square().sum(-1, keepdim=True), lambda: root)
    torch.testing.assert_close(g.covariance, (root @ root.mT).expand(3, 4, 4))
    draws = g.rsample("joint", torch.Size([20_000]), generator=torch.Generator().manual_seed(0)) - g.mean
    result = torch.einsum("tnc,tkc->nk", draws, draws) / (3 * 20_000)
    assert (result - root @ root.mT).abs().max() < 5 * 2**0.5 / 60_000**0.5


def test_padded_tokens_have_no_variance():
    g = gaussian((3, 2))
    padding = torch.tensor([False, True, False, True])
    g.features, g.diagonal = (x.masked_fill(padding[:, None], 0.0) for x in (g.features, g.diagonal))
    assert not g.column_variances[..., padding, :].any()
    draw = g.rsample("joint")
    torch.testing.assert_close(draw[..., padding, :], g.mean[..., padding, :])
