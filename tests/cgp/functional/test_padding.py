"""Masking a token equals removing it: in values, Gram matrices, factors, solves and counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.padding import add_noise, count_tokens, mask_gram, mask_tokens, mask_variances

masks = st.lists(st.booleans(), min_size=2, max_size=7).filter(lambda mask: not all(mask)).map(torch.tensor)


def points(n, seed, width=3):
    return torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(padding=masks, seed=st.integers(0, 1000))
def test_solves_and_determinants_are_those_of_the_real_tokens(padding, seed):
    """Padded tokens have a unit diagonal, which adds nothing to either, with a variance per token, too."""
    x, values, noise = (
        points(len(padding), seed),
        points(len(padding), seed + 1),
        points(len(padding), seed).exp()[:, 0],
    )
    for variance, of_real in ((0.3, torch.tensor(0.3)), (noise, noise[~padding])):
        masked = add_noise(mask_gram(gram(x), padding, padding), variance, padding)
        real = gram(x[~padding]) + of_real * torch.eye(int((~padding).sum()), dtype=torch.float64)
        factor, expected = torch.linalg.cholesky(masked), torch.linalg.cholesky(real)
        torch.testing.assert_close(factor.diagonal().log().sum(), expected.diagonal().log().sum())
        solved = torch.cholesky_solve(mask_tokens(values, padding), factor)
        torch.testing.assert_close(solved[~padding], torch.cholesky_solve(values[~padding], expected))
        assert not solved[padding].any()


@given(rows=masks, columns=masks)
def test_masked_rows_and_columns_are_zero_and_the_others_untouched(rows, columns):
    matrix = torch.arange(1.0, 1.0 + len(rows) * len(columns)).reshape(len(rows), len(columns))
    kept = ~rows[:, None] & ~columns
    assert torch.equal(mask_gram(matrix, rows, columns), torch.where(kept, matrix, 0.0))
    assert torch.equal(mask_gram(matrix, rows), matrix.masked_fill(rows[:, None], 0.0))
    assert torch.equal(mask_gram(matrix, None, columns), matrix.masked_fill(columns, 0.0))
    assert mask_gram(matrix) is matrix


def test_a_mask_of_sequences_reaches_every_head():
    padding = torch.tensor([[False, False, True], [False, True, True]])[:, None]  # (B, 1, n)
    values, variances = torch.ones(2, 4, 3, 5), torch.ones(2, 4, 3)
    assert mask_tokens(values, padding).sum((1, 2, 3)).tolist() == [40.0, 20.0]
    assert mask_variances(variances, padding).sum((1, 2)).tolist() == [8.0, 4.0]
    noisy = add_noise(torch.zeros(2, 4, 3, 3), 0.5, padding)
    expected = torch.tensor([[0.5, 0.5, 1.0], [0.5, 1.0, 1.0]])
    assert torch.equal(noisy, torch.diag_embed(expected)[:, None].expand(2, 4, 3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_have_the_dtype_that_they_multiply(dtype):
    like = torch.zeros(2, 3, dtype=dtype)
    whole = count_tokens(like, None)
    assert (whole.dtype, whole.tolist()) == (dtype, 3.0)
    some = count_tokens(like, torch.tensor([[False, True, True], [False, False, False]]))
    assert (some.dtype, some.tolist()) == (dtype, [1.0, 3.0])


def test_without_padding_nothing_is_copied():
    values = torch.ones(3, 2)
    assert mask_tokens(values, None) is values
    assert mask_variances(values, None) is values


def test_masked_entries_have_no_gradient():
    values = torch.ones(3, 2, requires_grad=True)
    padding = torch.tensor([False, True, False])
    mask_tokens(values, padding).sum().backward()
    assert torch.equal(values.grad, torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]))
    matrix = torch.eye(3).requires_grad_()
    add_noise(matrix, torch.tensor([0.1]), padding).sum().backward()
    assert matrix.grad[1, 1] == 0
