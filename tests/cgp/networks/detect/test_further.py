"""The reconstruction error of kernel principal components."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import KernelPCA as Reference
from torch import nn

from cgp import Detector
from cgp.networks.detect.further import KernelPCA


def features(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 6)) + 2.0


def test_errors_are_those_of_another_implementation():
    known, new = features(), features(15, seed=1)
    score = KernelPCA.of_features(known)
    unit, unit_new = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (known, new))
    count = score.maps.shape[1]
    reference = Reference(count, kernel="rbf", gamma=score.precision / 2, eigen_solver="dense").fit(unit)
    K = np.exp(-score.precision / 2 * ((unit[:, None] - unit) ** 2).sum(-1))
    k = np.exp(-score.precision / 2 * ((unit_new[:, None] - unit) ** 2).sum(-1))
    own = 1.0 - 2.0 * k.mean(1) + K.mean()
    np.testing.assert_allclose(score.errors(new), own - (reference.transform(unit_new) ** 2).sum(1), atol=1e-9)
    assert 1 < count < len(known)


def test_other_directions_have_larger_errors_and_lengths_do_not_matter():
    known = features()
    score = KernelPCA.of_features(known)
    assert score.errors(-known).min() > score.errors(known).max()
    np.testing.assert_allclose(score.errors(3.0 * known), score.errors(known), atol=1e-12)


def test_its_state_is_the_score():
    score = KernelPCA.of_features(features())
    again = KernelPCA.of_saved(*score.saved())
    np.testing.assert_array_equal(again.errors(features(seed=2)), score.errors(features(seed=2)))
    assert all(isinstance(value, torch.Tensor) for value in score.state()[1].values())


def test_it_asks_to_be_fitted():
    with pytest.raises(ValueError, match="kernel PCA: expected fit"):
        KernelPCA().errors(features())


def test_one_direction_has_no_error_of_its_own():
    score = KernelPCA.of_features(np.ones((5, 3)))
    np.testing.assert_allclose(score.errors(np.ones((2, 3))), 0.0, atol=1e-9)


def test_it_is_the_norm_that_autograd_gives():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    expected = []
    for row in x:
        divergence = -model(row).log_softmax(-1).mean()  # KL(u || p) plus a constant
        (gradient,) = torch.autograd.grad(divergence, model[2].weight)
        expected.append(-gradient.abs().sum())
    scores = Detector("GradNorm").fit(model, x).score(model, x)
    torch.testing.assert_close(scores.double(), torch.stack(expected), rtol=1e-6, atol=1e-9)
