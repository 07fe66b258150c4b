"""The Cholesky factorisation: accuracy, the bounded ladder, error messages, every execution mode."""

import pytest
import torch

from cgp.functional.linalg import (
    NotPositiveDefiniteError,
    cholesky,
    explained_variances,
    inverse_factor,
    log_determinant,
    solve,
    solve_lower,
)


def definite(n=5, batch=(2,), dtype=torch.float64):
    a = torch.randn(*batch, n, n, dtype=dtype)
    return a @ a.mT + torch.eye(n, dtype=dtype)


def test_without_jitter_it_is_the_plain_factor():
    A = definite()
    torch.testing.assert_close(cholesky(A, name="A", jitter=0.0), torch.linalg.cholesky(A))


@pytest.mark.parametrize(("dtype", "base"), [(torch.float32, 1e-5), (torch.float64, 1e-8)])
def test_base_jitter_is_relative_to_the_mean_of_the_diagonal(dtype, base):
    A = 1000.0 * definite(dtype=dtype)
    L = cholesky(A, name="A")
    added = (L @ L.mT - A).diagonal(dim1=-2, dim2=-1) / A.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    torch.testing.assert_close(added, torch.full_like(added, base), rtol=0.3, atol=base / 10)


def test_only_the_matrices_that_fail_climb():
    good, bad = torch.eye(3).double(), torch.diag(torch.tensor([1.0, 1.0, -2e-8])).double()
    L = cholesky(torch.stack([good, bad]), name="A", jitter=0.0)
    assert torch.equal(L[0], good)
    assert L[1, 2, 2] > 0


@pytest.mark.parametrize(
    ("fill", "reason"), [(torch.nan, "not finite"), (-1.0, r"not positive definite in 2 of 3 matrices.*0\.001")]
)
def test_failure_names_the_matrix_its_size_how_many_fail_and_the_jitter(fill, reason):
    A = torch.eye(4).repeat(3, 1, 1)
    A[0, 2, 2] = A[2, 1, 1] = fill
    with pytest.raises(NotPositiveDefiniteError, match=rf"K_k \(4 x 4, torch.float32\) is {reason}"):
        cholesky(A, name="K_k")


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="expected float32 or float64, got torch.bfloat16"):
        cholesky(torch.eye(2).bfloat16(), name="K")


def test_traced_and_eager_ladders_agree():
    """Matrices that stop at each rung."""
    A = torch.stack([torch.diag(torch.tensor([1.0, 1.0, last])) for last in (1.0, -2e-6, -2e-5, -2e-4)])
    compiled = torch.compile(lambda a: cholesky(a, name="A", jitter=0.0), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(A), cholesky(A, name="A", jitter=0.0))


def test_traced_failure_is_not_silent():
    compiled = torch.compile(lambda a: cholesky(a, name="K_o"), fullgraph=True, backend="eager")
    with pytest.raises(RuntimeError, match="K_o: not positive definite"):
        compiled(-torch.eye(3))


def test_under_vmap_a_failed_matrix_is_nan_and_the_others_are_not():
    A = torch.stack([torch.eye(3), -torch.eye(3)])
    L = torch.func.vmap(lambda a: cholesky(a, name="A"))(A)
    assert torch.isfinite(L[0]).all()
    assert torch.isnan(L[1]).all()


def test_gradients_with_and_without_jitter():
    A = definite(3, ()).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: cholesky(a @ a.mT, name="A", jitter=0.0), (A,))


def test_solves_inverse_and_determinant():
    A = definite(4, (3,))
    L = torch.linalg.cholesky(A)
    rhs = torch.randn(3, 4, 2, dtype=torch.float64)
    torch.testing.assert_close(L @ solve_lower(L, rhs), rhs)
    torch.testing.assert_close(L @ inverse_factor(L), torch.eye(4, dtype=torch.float64).expand(3, 4, 4))
    torch.testing.assert_close(log_determinant(L), torch.linalg.eigvalsh(A).log().sum(-1))


def _solved(A, rhs):
    L = torch.linalg.cholesky(A)
    return L, solve_lower(L, rhs), inverse_factor(L), solve(A, rhs, L), explained_variances(A, rhs, L)


@pytest.mark.parametrize("transposed", [False, True])
def test_solves_in_float32_are_those_in_float64_with_their_gradients(transposed):
    """They are of transposed systems there; right-hand sides broadcast, in either order in memory."""
    A = definite(6, (3, 2))
    rhs = torch.randn(2, 6, 4, dtype=torch.float64)
    rhs = rhs.mT.contiguous().mT if transposed else rhs
    results = []
    for dtype in (torch.float32, torch.float64):
        given = A.to(dtype).requires_grad_(), rhs.to(dtype).requires_grad_()
        outputs = _solved(*given)
        gradients = torch.autograd.grad(sum(y.square().sum() for y in outputs[1:]), given)
        results.append([x.double() for x in (*outputs, *gradients)])
    for single, double in zip(*results, strict=True):
        torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-4)
