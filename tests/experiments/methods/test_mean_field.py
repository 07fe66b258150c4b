"""Mean-field layers against torch.distributions and the algebra of linear Gaussian models."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from cgp import SoftmaxAttention, SparseCGPAttention
from cgp.model.likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
from cgp.model.objective import Objective
from experiments.methods import MeanFieldLinear, drawing, mean_field
from models import TextTransformer, VisionTransformer

SIZES = {"depth": 2, "embed_dim": 8, "mlp_dim": 16, "num_heads": 2, "dropout": 0.0}


def vision(attention=SoftmaxAttention):
    return VisionTransformer(image_size=8, patch_size=4, channels=1, num_classes=3, attention=attention, **SIZES)


def text():
    return TextTransformer(vocabulary_size=9, max_length=8, num_classes=2, attention=SoftmaxAttention, **SIZES)


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
    model = mean_field(vision())
    layers = [module for module in model.modules() if isinstance(module, MeanFieldLinear)]
    assert len(layers) == 1 + 2 * 4 + 1  # patches, four a transformer layer, classes
    parts = Objective(model, CategoricalLikelihood(3), num_data=10).parts(torch.randn(4, 1, 8, 8), torch.arange(4) % 3)
    torch.testing.assert_close(parts["global_kl"], torch.stack([layer.kl_divergence() for layer in layers]).sum())
    torch.testing.assert_close(parts["loss"], parts["nll"] + parts["global_kl"] / 10)


def test_the_means_are_the_weights_that_were_there():
    model, images = vision(), torch.randn(4, 1, 8, 8)
    before = model(images)
    initial = MeanFieldLinear(nn.Linear(2, 2), initial_deviation=0.02)
    torch.testing.assert_close(initial.weight_deviation, torch.full((2, 2), 0.02))
    assert torch.equal(mean_field(model).eval()(images), before)


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_have_the_moments_of_independent_gaussian_weights(bias):
    """Two tokens of a sequence: covariance x_i' diag(var W) x_j + var b, as they share weights."""
    layer = layer_of(bias)
    tokens = torch.randn(2, 3)
    with torch.no_grad():
        noise = torch.stack(
            [layer(tokens.expand(50, 2, 3)) - layer.eval()(tokens) for _ in range(2000) if layer.train()]
        )
        products = torch.einsum("kbio,kbjo->kbijo", noise, noise).mean(1)  # independent over k, not within
        expected = torch.einsum("id,od,jd->ijo", tokens, layer.weight_deviation.square(), tokens)
        if bias:
            expected = expected + layer.bias_deviation.square()
    for draws, wanted in ((products, expected), (noise.mean(1), torch.zeros(2, 2))):
        errors = (draws.mean(0) - wanted) / (draws.std(0) / math.sqrt(2000))
        assert errors.abs().max() < 5


def test_gradients():
    layer = layer_of().double()
    x = torch.randn(2, 3, 3, dtype=torch.double, requires_grad=True)

    def output(x, *parameters):
        torch.manual_seed(0)
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

    names, parameters = zip(*layer.named_parameters(), strict=True)
    assert torch.autograd.gradcheck(output, (x, *parameters))


def test_exact_optimum_of_linear_regression_is_stationary():
    """Best mean field of a Gaussian posterior: its mean, and the inverse of the precision's diagonal."""
    torch.set_default_dtype(torch.double)
    x, noise, prior = torch.randn(20, 3), 0.25, 0.7
    y = x @ torch.tensor([[1.0], [-1.0], [0.5]]) + noise**0.5 * torch.randn(20, 1)
    precision = x.T @ x / noise + torch.eye(3) / prior**2
    mean = torch.cholesky_solve(x.T @ y / noise, torch.linalg.cholesky(precision))
    layer = MeanFieldLinear(nn.Linear(3, 1, bias=False), prior_deviation=prior)
    with torch.no_grad():
        layer.weight.copy_(mean.T)
        layer.raw_weight_deviation.copy_((precision.diagonal() ** -0.5).expm1().log()[None])
    likelihood = HomoscedasticLikelihood(1, initial_noise=noise)
    objective = Objective(nn.Sequential(layer), likelihood, num_data=20)
    gradients = []
    for _ in range(1500):
        loss = objective(x, y)
        gradients.append(torch.cat(torch.autograd.grad(loss, [layer.weight, layer.raw_weight_deviation])))
    gradients = torch.stack(gradients)
    assert (gradients.mean(0) / (gradients.std(0) / math.sqrt(1500))).abs().max() < 4.5
    gradient = torch.autograd.grad(layer.kl_divergence() / 20, layer.raw_weight_deviation)[0]
    assert gradient.abs().min() > 10 * (gradients[:, 1].std(0) / math.sqrt(1500)).max()  # the test can see a lost term


def test_draws_of_reference_models():
    images = torch.randn(4, 1, 8, 8)
    model = mean_field(vision(), initial_deviation=0.1).eval()
    assert model(images).shape == (4, 3)
    with drawing(model, 5):
        draws = model(images)
    assert draws.shape == (5, 4, 3)
    assert draws.std(0).min() > 1e-3
    assert torch.equal(model(images), model(images))  # as before

    words = mean_field(text()).eval()
    tokens, padding = torch.arange(10).reshape(2, 5) % 9, torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with drawing(words, 5):
        assert words(tokens, padding).shape == (5, 2, 2)
    with drawing(words, 1):
        assert words(tokens, padding).shape == (2, 2)


def test_draws_spread_as_draws_made_one_by_one():
    images = torch.randn(2, 1, 8, 8)
    model = mean_field(vision(), initial_deviation=0.1)
    with torch.no_grad():
        single = torch.stack([model(images) for _ in range(600)])
        with drawing(model.eval(), 600):
            together = model(images)
    spread, other = single.var(0), together.var(0)
    assert ((spread - other) / (spread * (2 * 2 / 600) ** 0.5)).abs().max() < 5


def test_drawing_leaves_blocks_and_layers_as_they_were():
    model = vision([SoftmaxAttention, SparseCGPAttention]).eval()
    images = torch.randn(4, 1, 8, 8)
    with drawing(model, 5):
        assert model(images).shape == (5, 4, 3)
    mean_field(model).eval()
    with drawing(model, 5, "joint"):
        assert model(images).shape == (5, 4, 3)
        assert model.layers[1].attention.sampling == "joint"
    with drawing(model, 5, "mean"):
        assert model(images).shape == (4, 3)
    assert model(images).shape == (4, 3)
    assert model.layers[1].attention.sampling == "mean"


REFUSED = {
    "prior": ({"prior_deviation": 0.0}, "prior_deviation: expected above 0, got 0.0"),
    "initial": ({"initial_deviation": -1.0}, "initial_deviation: expected above 0"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_options(options, message):
    with pytest.raises(ValueError, match=message):
        MeanFieldLinear(nn.Linear(2, 2), **options)


def test_refused_models():
    with pytest.raises(ValueError, match="model: expected linear layers inside, got none"):
        mean_field(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match="got torch's MultiheadAttention"):
        mean_field(nn.TransformerEncoderLayer(8, 2, 8))
    with pytest.raises(ValueError, match="num_samples: expected at least 1, got 0"), drawing(nn.Linear(1, 1), 0):
        pass
