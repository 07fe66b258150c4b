import numpy as np
import pytest
import torch

from cgp.plotting import attention_matrix

MATRIX = np.random.default_rng(0).dirichlet(np.ones(5), size=5)


def test_matrix_its_asymmetry_and_its_deviations():
    sd = np.linspace(0.1, 0.5, 5)
    matrix, asymmetry, deviations = attention_matrix(torch.tensor(MATRIX, requires_grad=True), sd)
    shown, antisymmetric = matrix.images[0], asymmetry.images[0]
    np.testing.assert_array_equal(shown.get_array(), MATRIX)
    assert shown.get_clim() == (0, MATRIX.max())
    part = np.asarray(antisymmetric.get_array())
    np.testing.assert_allclose(part, (MATRIX - MATRIX.T) / 2)
    assert antisymmetric.get_clim() == (-np.abs(part).max(), np.abs(part).max())
    assert [bar.get_width() for bar in deviations.containers[0]] == sd.tolist()
    assert deviations.get_ylim() == (4.5, -0.5)  # rows run downwards as those of the matrix


def test_symmetric_matrix_has_no_asymmetry_and_negative_ones_are_centred():
    symmetric = MATRIX + MATRIX.T - 0.5
    matrix, asymmetry = attention_matrix(symmetric)
    assert not np.asarray(asymmetry.images[0].get_array()).any()
    low, high = matrix.images[0].get_clim()
    assert low == -high == -np.abs(symmetric).max()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_matrix(np.ones((2, 3))), r"matrix must be square, got shape \(2, 3\)"),
        (lambda: attention_matrix(np.ones(3)), "matrix must be a non-empty array with 2 axes"),
        (lambda: attention_matrix(MATRIX, np.ones(4)), r"sd must have shape \(5,\), got \(4,\)"),
        (lambda: attention_matrix(MATRIX, -np.ones(5)), "sd must not be negative"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
