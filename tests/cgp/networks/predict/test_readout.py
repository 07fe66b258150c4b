"""The classification read-out against dense algebra and labels left out one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from cgp.networks.predict.readout import _NOISES, GPReadout, _best_noise
from tests.oracles import log_normal, rbf


@pytest.fixture(scope="module")
def problem():
    """Three classes, all points inducing, and the read-out's own numbers in numpy."""
    rng = np.random.default_rng(0)
    labels = np.arange(24) % 3
    features = rng.normal(size=(24, 2)) + 1.5 * labels[:, None] * [1.0, -0.5]
    readout = GPReadout(features, 10 * labels)
    z = (features - features.mean(0)) / features.std(0, ddof=1) / readout.lengthscale
    targets = np.eye(3)[labels] - 1 / 3
    return readout, features, z, labels, targets


def conditional(readout, z, targets, x):
    """Mean and variance of the exact process at x."""
    inverse = np.linalg.inv(rbf(z, z) + readout.noise * np.eye(len(z)))
    cross = rbf(x, z)
    return cross @ inverse @ targets, readout.variance * (1 - np.sum(cross @ inverse * cross, 1))


def probabilities(readout, mean, variance):
    shrinkage = np.sqrt(1 + np.pi / 8 * readout.slope**2 * variance)[:, None]
    return softmax(np.log(readout.frequencies.numpy()) + readout.slope * mean / shrinkage, -1)


def test_with_every_point_inducing_it_is_the_exact_process(problem):
    readout, features, z, _, targets = problem
    new = np.random.default_rng(1).normal(size=(9, 2))
    x = (new - features.mean(0)) / features.std(0, ddof=1) / readout.lengthscale
    mean, variance = conditional(readout, z, targets, x)
    result = readout(torch.tensor(new))
    np.testing.assert_allclose(result.variance, variance, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(result.probabilities, probabilities(readout, mean, variance), rtol=1e-5, atol=1e-8)
    assert readout.classes.tolist() == [0, 10, 20]


def test_two_values_are_enough():
    read = GPReadout(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]), task="regression")(torch.tensor([[0.0], [1.0]]))
    assert (read.variance > 0).all()
    assert 1 <= read.mean[0] < read.mean[1] <= 3


def test_noise_and_amplitude_are_those_of_the_largest_evidence(problem):
    readout, _, z, _, targets = problem

    def evidence(noise, variance):
        return log_normal(targets, variance * (rbf(z, z) + noise * np.eye(len(z))))

    best = evidence(readout.noise, readout.variance)
    for step in (0.99, 1.01):
        assert best > evidence(readout.noise, readout.variance * step)
    for step in (10**-0.5, 10**0.5):
        assert best > max(evidence(readout.noise * step, readout.variance * scale) for scale in np.logspace(-1, 1, 41))


def test_the_bound_pays_for_what_inducing_inputs_leave_unexplained():
    """Titsias' bound, of two outputs with the same prior variance, which is the best one for each noise."""
    A, targets = 0.4 * torch.randn(3, 20, dtype=torch.float64), torch.randn(20, 2, dtype=torch.float64)
    assert (A.square().sum(0) < 1).any()
    unexplained = float((1 - A.square().sum(0)).clamp(min=0).sum())
    bounds = []
    for noise in _NOISES:
        covariance = (A.mT @ A).numpy() + noise * np.eye(20)
        variance = np.sum(targets.numpy() * np.linalg.solve(covariance, targets.numpy())) / 40
        bounds.append((log_normal(targets.numpy(), variance * covariance) - unexplained / noise, noise, variance))
    assert _best_noise(A, targets) == pytest.approx(max(bounds))


def test_the_slope_is_the_likeliest_of_labels_given_the_others(problem):
    readout, _, z, labels, targets = problem
    means, variances = [], []
    for i in range(len(z)):
        others = np.arange(len(z)) != i
        mean, variance = conditional(readout, z[others], targets[others], z[[i]])
        means.append(mean[0])
        variances.append(variance[0])
    grid = [2.0 ** (k / 4) for k in range(33)]
    chosen, losses = readout.slope, []
    for readout.slope in grid:
        p = probabilities(readout, np.array(means), np.array(variances))
        losses.append(-np.log(p[np.arange(len(z)), labels]).mean())
    readout.slope = chosen
    assert chosen == grid[int(np.argmin(losses))]


def test_far_away_it_is_the_prior_and_few_inducing_inputs_serve(problem):
    readout, features, _, labels, _ = problem
    far = readout(np.full((1, 2), 1e4))
    assert float(far.variance) == pytest.approx(readout.variance)
    np.testing.assert_allclose(far.probabilities[0], 1 / 3)
    few = GPReadout(features, labels, num_inducing=8)
    assert (few(features).probabilities.argmax(-1).numpy() == labels).mean() > 0.8
    assert (few(features).variance < few(np.full((1, 2), 1e4)).variance).all()


def test_features_of_a_network_in_training_are_taken():
    features = torch.randn(20, 2, dtype=torch.float64, requires_grad=True)
    result = GPReadout(features, torch.arange(20) % 2)(features)
    assert not result.probabilities.requires_grad


@pytest.mark.parametrize(("shape", "labels"), [((4,), [0, 1, 0, 1]), ((4, 2), [0, 1]), ((4, 2), [1, 1, 1, 1])])
def test_bad_data_are_refused(shape, labels):
    with pytest.raises(ValueError, match="features, labels: expected"):
        GPReadout(np.zeros(shape), labels)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.eye(4), np.array([0.0, 1.0, 0.5, 1.0]), "labels: expected class indices, which are whole numbers, got"),
        (
            np.where(np.eye(4) > 0, np.nan, 1.0)[::-1].copy(),
            np.arange(4),
            "features: expected finite numbers, got NaN or infinity in row 0",
        ),
    ],
)
def test_labels_and_features_that_are_none_are_refused(features, labels, message):
    with pytest.raises(ValueError, match=message):
        GPReadout(features, labels)


def test_features_that_are_all_equal_say_nothing():
    result = GPReadout(np.ones((6, 2)), [0, 0, 1, 0, 1, 1])([[1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_allclose(result.probabilities, 0.5)


def test_labels_that_contradict_each_other_have_finite_slopes():
    """Leverages near one, at the smallest noise."""
    features = np.repeat(np.eye(3), 40, 0)
    labels = np.tile([0, 1], 60)
    labels[:40], labels[40:80] = 0, 1
    result = GPReadout(features, labels)(features)
    np.testing.assert_allclose(result.probabilities[80:], 0.5, atol=0.05)
    assert (result.probabilities[:40, 0] > 0.9).all()
