"""Mean-field layers against torch.distributions and the algebra of linear Gaussian models."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from cgp import SoftmaxAttention, SparseCGPAttention
from cgp.networks.model.blocks import draws, sampling
from cgp.networks.model.objective import CategoricalLikelihood, Objective
from experiments.methods import mean_field
from experiments.methods.mean_field import MeanFieldLinear
from experiments.training.drawing import drawing
from tests.experiments.methods.hosts import DIGITS, digits


def layer_of(bias=True, **options):
    layer = MeanFieldLinear(nn.Linear(3, 2, bias=bias), **options)
    with torch.no_grad():
        layer.raw_weight_deviation.normal_()
        if bias:
            layer.raw_bias_deviation.normal_()
    return layer


@pytest.mark.parametrize("bias", [True, False])
def test_divergence(bias):
    layer = layer_of(bias, prior_deviation=0.3)
    prior = Normal(0.0, 0.3)
    expected = kl_divergence(Normal(layer.weight, layer.weight_deviation), prior).sum()
    if bias:
        expected = expected + kl_divergence(Normal(layer.bias, layer.bias_deviation), prior).sum()
    torch.testing.assert_close(layer.kl_divergence(), expected)


def test_objective_collects_the_divergence_of_every_layer():
    model = mean_field(digits())
    layers = [module for module in model.modules() if isinstance(module, MeanFieldLinear)]
    assert len(layers) == 1 + 2 * 4 + 1  # patches, four a transformer layer, classes
    parts = Objective(model, CategoricalLikelihood(3), num_data=10).parts(DIGITS, torch.arange(6) % 3)
    torch.testing.assert_close(parts["global_kl"], torch.stack([layer.kl_divergence() for layer in layers]).sum())
    torch.testing.assert_close(parts["loss"], parts["nll"] + parts["global_kl"] / 10)


def test_the_means_are_the_weights_that_were_there():
    model = digits()
    before = model(DIGITS)
    initial = MeanFieldLinear(nn.Linear(2, 2), initial_deviation=0.02)
    torch.testing.assert_close(initial.weight_deviation, torch.full((2, 2), 0.02))
    assert torch.equal(mean_field(model).eval()(DIGITS), before)


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_have_the_moments_of_independent_gaussian_weights(bias):
    """Two tokens of a sequence: covariance x_i' diag(var W) x_j + var b, as they share weights."""
    layer = layer_of(bias)
    tokens = torch.randn(2, 3)
    with torch.no_grad():
        noise = torch.stack(
            [layer(tokens.expand(50, 2, 3)) - layer.eval()(tokens) for _ in range(1000) if layer.train()]
        )
        products = torch.einsum("kbio,kbjo->kbijo", noise, noise).mean(1)  # independent over k, not within
        expected = torch.einsum("id,od,jd->ijo", tokens, layer.weight_deviation.square(), tokens)
        if bias:
            expected = expected + layer.bias_deviation.square()
    for result, wanted in ((products, expected), (noise.mean(1), torch.zeros(2, 2))):
        errors = (result.mean(0) - wanted) / (result.std(0) / math.sqrt(1000))
        assert errors.abs().max() < 5


def test_gradients():
    layer = layer_of().double()
    x = torch.randn(2, 3, 3, dtype=torch.double, requires_grad=True)

    def output(x, *parameters):
        torch.manual_seed(0)
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

    names, parameters = zip(*layer.named_parameters(), strict=True)
    assert torch.autograd.gradcheck(output, (x, *parameters))


def test_draws_spread_as_draws_made_one_by_one():
    model = mean_field(digits(), initial_deviation=0.1)
    with torch.no_grad():
        single = torch.stack([model(DIGITS[:2]) for _ in range(300)])
        with drawing(model.eval(), 300):
            together = model(DIGITS[:2])
    assert together.shape == (300, 2, 3)
    assert torch.equal(model(DIGITS), model(DIGITS))  # as before
    spread, other = single.var(0), together.var(0)
    assert ((spread - other) / (spread * (2 * 2 / 300) ** 0.5)).abs().max() < 5


def test_drawing_leaves_blocks_and_layers_as_they_were():
    model = mean_field(digits([SoftmaxAttention, SparseCGPAttention])).eval()
    for mode, shape in (("joint", (5, 6, 3)), ("mean", (6, 3))):
        with sampling(model, mode), draws(model, 5):
            assert model(DIGITS).shape == shape
            assert model.layers[1].attention.sampling == mode
    assert model(DIGITS).shape == (6, 3)
    assert model.layers[1].attention.sampling == "mean"


REFUSED = [
    (nn.Sequential(nn.Linear(2, 2)), {"prior_deviation": 0.0}, "prior_deviation: expected above 0, got 0.0"),
    (nn.Sequential(nn.Linear(2, 2)), {"initial_deviation": -1.0}, "initial_deviation: expected above 0"),
    (nn.Sequential(nn.ReLU()), {}, "model: expected linear layers inside, got none"),
    (nn.TransformerEncoderLayer(8, 2, 8), {}, "got torch's MultiheadAttention"),
]


@pytest.mark.parametrize(("model", "options", "message"), REFUSED)
def test_refusals(model, options, message):
    with pytest.raises(ValueError, match=message):
        mean_field(model, **options)
