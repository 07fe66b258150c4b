"""SNGP against dense Gaussian-process algebra, and its spectral bound against singular values."""

import copy

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from cgp.networks.model.blocks import draws, sampling
from experiments.methods import fit_covariance, sngp
from experiments.methods.sngp import RandomFeatureHead, SpectralBound
from experiments.training.drawing import drawing
from tests.experiments.methods.hosts import DIGITS, WORDS, digits, text

N, D, C, M = 30, 4, 3, 16


def bounded(layer, bound):
    parametrize.register_parametrization(layer, "weight", SpectralBound(layer.weight, bound))
    return layer


def fitted():
    """A head with its training inputs."""
    model = sngp(nn.Sequential(nn.Identity(), nn.Linear(D, C)), num_features=M)
    model = model.double().eval()
    with torch.no_grad():
        model[-1].output.weight.mul_(5)
    inputs = torch.randn(N, D, dtype=torch.double)
    fit_covariance(model, inputs.split(7))
    return model, inputs


def dense_covariance(head, inputs, new):
    """Posterior covariance of a GP with the features' kernel and one noise variance an input: no M x M matrix."""
    p = head.mean(head.features(inputs)).softmax(-1).detach().numpy()
    phi, phi_new = (head.features(x).detach().numpy() for x in (inputs, new))
    gram, cross, prior = (a @ b.T for a, b in ((phi, phi), (phi_new, phi), (phi_new, phi_new)))
    noises = 1 / (p * (1 - p)).T
    return np.stack([prior - cross @ np.linalg.solve(gram + np.diag(noise), cross.T) for noise in noises])


def test_variance_is_that_of_the_dense_process():
    model, inputs = fitted()
    head, new = model[-1], torch.randn(6, D, dtype=torch.double)
    expected = np.diagonal(dense_covariance(head, inputs, new), axis1=1, axis2=2).T
    variance = head.variance(head.features(new)).detach().numpy()
    np.testing.assert_allclose(variance, expected, rtol=1e-8)
    mean = head.mean(head.features(new)).detach().numpy()
    np.testing.assert_allclose(model(new).detach(), mean / np.sqrt(1 + np.pi / 8 * expected), rtol=1e-8)


@pytest.mark.parametrize("mode", ["marginal", "joint"])
def test_draws_have_the_covariance_of_the_dense_process(mode):
    model, inputs = fitted()
    head, new, number = model[-1], torch.randn(4, D, dtype=torch.double), 20_000
    expected = dense_covariance(head, inputs, new)
    if mode == "marginal":
        expected = expected * np.eye(4)
    with sampling(model, mode), draws(model, number), torch.no_grad():
        result = (model(new) - head.mean(head.features(new))).numpy()
    assert result.shape == (number, 4, C)
    spread = np.einsum("sic,sjc->cij", result, result) / number
    deviation = np.sqrt(np.diagonal(expected, axis1=1, axis2=2))
    scale = deviation[:, :, None] * deviation[:, None, :]
    assert np.abs((spread - expected) / scale).max() < 5 * np.sqrt(2 / number)
    with sampling(model, mode), draws(model, 1):
        assert model(new).shape == (4, C)


def test_features_approximate_the_squared_exponential_kernel():
    head = RandomFeatureHead(D, C, num_features=2000)
    x = torch.randn(10, D)
    kernel = RBFKernel()
    kernel.lengthscale = D**0.5
    phi = head.features(x)
    assert (phi @ phi.mT - kernel(x).to_dense()).abs().max() < 5 / 2000**0.5


def test_draws_need_a_fit_and_the_covariance_is_saved_with_the_weights():
    model = sngp(nn.Sequential(nn.Linear(D, 8), nn.GELU(), nn.Linear(8, C)), num_features=M).eval()
    x, other = torch.randn(N, D), copy.deepcopy(model)
    before = model(x)
    with drawing(model, 5):
        assert torch.equal(model(x), before)
    fit_covariance(model, [x])
    assert not torch.equal(model(x), before)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(x), model(x))
    fit_covariance(other, x.split(7))  # a second fit is the first
    torch.testing.assert_close(other(x), model(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[-1].train()(model[:-1](x)), before)


def test_reference_models():
    vision = sngp(digits(depth=1, dropout=0.1), num_features=M, bound=0.95)
    nn.functional.cross_entropy(vision(DIGITS), torch.arange(6) % C).backward()
    assert all(parameter.grad is not None for parameter in vision.parameters())
    fit_covariance(vision, DIGITS.split(4))
    for layer in vision.modules():
        if isinstance(layer, nn.Linear) and layer is not vision.head.output:
            assert np.linalg.norm(layer.weight.detach().numpy(), 2) < 0.95 * 1.05
    with drawing(vision.eval(), 5):
        assert vision(DIGITS).shape == (5, 6, C)
    words = sngp(text(), num_features=M)
    fit_covariance(words, [WORDS])
    with drawing(words.eval(), 5):
        assert words(**WORDS).shape == (5, 12, C)


@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_spectral_bound_is_torchs_normalisation_times_the_bound(bound):
    weight = torch.randn(6, 4, dtype=torch.double)
    ours, theirs = nn.Linear(4, 6, dtype=torch.double), nn.Linear(4, 6, dtype=torch.double)
    with torch.no_grad():
        ours.weight.copy_(weight)
        theirs.weight.copy_(weight)
    bounded(ours, bound)
    spectral_norm(theirs, n_power_iterations=300)
    for _ in range(300):
        ours(torch.randn(2, 4, dtype=torch.double))
    largest = np.linalg.svd(weight.numpy())[1][0]
    wanted = bound * theirs.weight if bound < largest else weight
    torch.testing.assert_close(ours.weight, wanted)
    coefficients = torch.randn(6, 4, dtype=torch.double)
    gradient = torch.autograd.grad((ours.weight * coefficients).sum(), ours.parametrizations.weight.original)[0]
    expected = coefficients
    if bound < largest:
        total = (bound * theirs.weight * coefficients).sum()
        expected = torch.autograd.grad(total, theirs.parametrizations.weight.original)[0]
    torch.testing.assert_close(gradient, expected)


def test_two_passes_before_a_backward_pass():
    layer = bounded(nn.Linear(4, 6), 0.1)
    (layer(torch.randn(2, 4)).sum() + layer(torch.randn(2, 4)).sum()).backward()


LAYERS = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
REFUSED = {
    "num_features: expected above 0, got 0": lambda: sngp(copy.deepcopy(LAYERS), num_features=0),
    "bound: expected above 0": lambda: SpectralBound(torch.eye(2), 0.0),
    "model: expected linear layers inside, got none": lambda: sngp(nn.Sequential(nn.ReLU())),
    "model: expected one random-feature head, got 0": lambda: fit_covariance(LAYERS, [torch.zeros(2, 2)]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
