"""Last-layer Laplace against dense float64 algebra."""

import numpy as np
import pytest
import torch
from torch import nn

from cgp import CGPAttention
from experiments.evaluation import mean_log_probabilities, negative_log_likelihood
from experiments.methods import last_layer_laplace
from tests.experiments.methods.hosts import IMAGES, WORDS, text, torchvision_host, vision

N, D, C = 60, 4, 3


def network(bias=True):
    return nn.Sequential(nn.Linear(2, D), nn.Tanh(), nn.Linear(D, C, bias=bias))


def problem():
    inputs = torch.randn(N, 2)
    return inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()


def dense_blocks(model, inputs):
    """Kronecker-factored curvature of weight and bias, and the features: NumPy, from the formula."""
    with torch.no_grad():
        phi = model[:2](inputs).double().numpy()
        p = torch.from_numpy(phi @ model[2].weight.double().numpy().T)
        p = (p + (model[2].bias.double() if model[2].bias is not None else 0.0)).softmax(-1).numpy()
    curvature = (p[:, :, None] * (np.eye(C) - p[:, None, :])).sum(0)  # sum of diag(p) - p p'
    return np.kron(curvature, phi.T @ phi / len(phi)), curvature, phi


@pytest.mark.parametrize("bias", [True, False])
def test_logits_have_the_covariance_of_the_dense_posterior(bias):
    model, (inputs, labels) = network(bias), problem()
    posterior = last_layer_laplace(model, [inputs], labels, prior_precision=0.7)
    weight, offset, _ = dense_blocks(model, inputs)
    new = torch.randn(5, 2)
    phi = model[:2](new).detach().double().numpy()
    jacobian = np.concatenate([np.kron(np.eye(C), row)[None] for row in phi])  # (5, C, C D)
    covariance = jacobian @ np.linalg.inv(weight + 0.7 * np.eye(C * D)) @ jacobian.transpose(0, 2, 1)
    covariance = covariance + bias * np.linalg.inv(offset + 0.7 * np.eye(C))
    draws = posterior.draw_logits([new], 40_000, torch.Generator().manual_seed(0)).double()
    centred = draws - model(new).detach()
    spread = np.einsum("snc,snd->ncd", centred.numpy(), centred.numpy()) / len(draws)
    scale = np.sqrt(np.einsum("nc,nd->ncd", *[np.diagonal(covariance, axis1=1, axis2=2)] * 2))
    # Standard deviation of an empirical covariance is at most sqrt(2 / S) of the scale, that of a mean sqrt(1 / S).
    assert np.abs((spread - covariance) / scale).max() < 5 * np.sqrt(2 / 40_000)
    assert np.abs(centred.mean(0).numpy() / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))).max() < 5 / 200


def test_prior_precision_by_validation_is_the_best_of_a_grid():
    model, (inputs, labels) = network(), problem()
    validation = problem()
    chosen = last_layer_laplace(model, [inputs], labels, validation=([validation[0]], validation[1]))

    def loss(precision):
        posterior = last_layer_laplace(model, [inputs], labels, prior_precision=precision)
        logits = posterior.draw_logits([validation[0]], 32, torch.Generator().manual_seed(0))
        return negative_log_likelihood(mean_log_probabilities(logits), validation[1])

    best = loss(chosen.prior_precision)
    assert best <= min(loss(precision) for precision in np.logspace(-4, 4, 17)) + 1e-6
    assert best < loss(chosen.prior_precision * 30) or best < loss(chosen.prior_precision / 30)


def test_draws_are_reproducible_and_do_not_depend_on_batches():
    model, (inputs, labels) = network(), problem()
    posterior = last_layer_laplace(model, inputs.split(7), labels, prior_precision=1.0)
    first = posterior.draw_logits(inputs.split(11), 4, torch.Generator().manual_seed(1))
    assert first.dtype == torch.float32
    again = posterior.draw_logits([inputs], 4, torch.Generator().manual_seed(1))
    torch.testing.assert_close(first, again, rtol=1e-5, atol=1e-6)
    assert not torch.equal(first, posterior.draw_logits([inputs], 4, torch.Generator().manual_seed(2)))


HOSTS = {
    "torchvision": (torchvision_host, IMAGES),
    "vision": (lambda: vision(CGPAttention), IMAGES),
    "text": (text, WORDS),
}


@pytest.mark.parametrize(("host", "inputs"), HOSTS.values(), ids=HOSTS)
def test_hosts(host, inputs):
    model, count = host(), 5 if inputs is IMAGES else 12
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    posterior = last_layer_laplace(model.train(), [inputs], torch.arange(count) % C, prior_precision=1.0)
    assert posterior.layer in ("heads.head", "head")
    draws = posterior.draw_logits([inputs], 2000, torch.Generator().manual_seed(0))
    mean = model.eval()(**inputs) if isinstance(inputs, dict) else model.eval()(inputs)
    error = (draws.mean(0) - mean.detach()) / (draws.std(0) / 2000**0.5)
    assert error.abs().max() < 5
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


INPUTS, LABELS = torch.randn(6, 2), torch.arange(6) % C
REFUSED = {
    "no last layer": (nn.Sequential(nn.Linear(2, C), nn.Tanh()), {}, "model: expected a linear layer"),
    "random": (nn.Sequential(Draws(), nn.Linear(2, C)), {}, "model: expected the same logits in two passes"),
    "tokens": (nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Linear(1, C)), {}, "layer: expected one vector an example"),
    "no validation": (network(), {"prior_precision": None}, "validation, prior_precision: expected one of the two"),
    "validation": (network(), {"validation": ([INPUTS], LABELS)}, "validation, prior_precision: expected one"),
    "iterator": (network(), {"batches": iter([INPUTS])}, "batches: .* something that can be run through twice"),
}


@pytest.mark.parametrize(("model", "changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(model, changes, message):
    with pytest.raises(ValueError, match=message):
        last_layer_laplace(model, **({"batches": [INPUTS], "labels": LABELS, "prior_precision": 1.0} | changes))
