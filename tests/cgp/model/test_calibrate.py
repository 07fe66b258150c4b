"""Scales fitted on a validation set."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cgp import CGPAttention, SparseCGPAttention, calibrate, convert, freeze, predict
from cgp.model.calibrate import mixture_nll
from cgp.model.temperature import logit_temperature, set_logit_temperature
from tests.cgp.conversion import hosts


def overconfident(attention: str = "scgp", layers="last") -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model whose logits are far too large for labels that are mostly noise."""
    torch.manual_seed(0)
    host = hosts.timm_vit()
    with torch.no_grad():
        host.model.head.weight *= 8
    x = torch.randn(48, 3, 16, 16)
    labels = host.model(x).argmax(-1)
    noisy = torch.rand(48) < 0.5
    labels[noisy] = torch.randint(0, 5, (int(noisy.sum()),))
    return convert(host.model, attention, layers), x, labels


@pytest.mark.parametrize("attention", ["cgp", "scgp"])
def test_the_likelihood_rises_and_nothing_else_moves(attention):
    model, x, y = overconfident(attention)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    mean = model.eval()(x)
    model.train()
    report = calibrate(model, [(x[:24], y[:24]), (x[24:], y[24:])], steps=60)
    assert report.nll_after < report.nll_before - 0.05
    assert report.nll_after < report.nll_mean - 0.05
    assert report.num_data == 48
    assert len(report.losses) == report.steps == 60
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    scales = ("raw_noise", "log_amplitude", "log_lengthscale")
    assert moved == {f"blocks.2.attn.block.softmax.{name}" for name in scales}
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert torch.equal(model.eval()(x), mean)
    torch.testing.assert_close(report.nll_mean, nn.functional.cross_entropy(mean, y).item(), rtol=1e-5, atol=1e-5)
    amplitude, noise = report.scales["blocks.2.attn.block.softmax"]
    posterior = model.blocks[2].attn.block.softmax
    torch.testing.assert_close(amplitude, posterior.log_amplitude.detach().exp())
    torch.testing.assert_close(noise, posterior.noise.detach())
    assert str(report).splitlines()[0].startswith("60 steps on 48 examples in ")


def test_frozen_factors_do_not_outlive_their_lengthscale():
    model, x, y = overconfident("scgp")
    calibrate(freeze(model), [(x, y)], steps=5, learning_rate=0.3)
    found = predict(model, x, 2, seed=0).token_variance
    model.train()
    fresh = predict(model.eval(), x, 2, seed=0).token_variance
    for name, variance in fresh.items():
        torch.testing.assert_close(found[name], variance)


@pytest.mark.parametrize("temperature", [False, True])
def test_the_figures_are_those_of_predictions(temperature):
    model, x, y = overconfident()
    report = calibrate(model, [(x, y)], steps=3, num_samples=40, temperature=temperature)
    probabilities = predict(model, x, 200, seed=9).probabilities
    expected = nn.functional.nll_loss(probabilities.log(), y)
    assert abs(report.nll_after - expected.item()) < 0.1


def test_the_same_seed_gives_the_same_scales():
    runs = []
    for _ in range(2):
        model, x, y = overconfident()
        state = torch.get_rng_state()
        runs.append(calibrate(model, [(x, y)], steps=5, seed=3))
        assert torch.equal(torch.get_rng_state(), state)
    assert runs[0].losses == runs[1].losses


def test_scales_are_put_back_if_the_loss_has_not_fallen():
    model, x, y = overconfident()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def wants_little_spread(logits, targets):
        return (logits.std(0, correction=0).mean() - 0.5).square()

    report = calibrate(
        model, [(x, y)], steps=1, learning_rate=30.0, loss=wants_little_spread, temperature=True
    )  # a step far beyond
    assert 0 < report.losses[0] < 0.25
    assert report.nll_after == report.nll_before
    assert report.temperature == logit_temperature(model) == 1.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_without_variance_the_temperature_is_that_of_temperature_scaling():
    model, x, y = overconfident()
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "log_amplitude"):
                module.log_amplitude.fill_(-20.0)  # what remains is one number
        logits = model(x).double()
    report = calibrate(model, [(x, y)], steps=150, num_samples=1, learning_rate=0.2, temperature=True)
    grid = torch.linspace(0.5, 20.0, 4000, dtype=torch.float64)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, y) for t in grid])
    assert abs(report.temperature - float(grid[losses.argmin()])) < 0.02 * report.temperature
    assert abs(report.nll_after - float(losses.min())) < 1e-3
    assert f"temperature {report.temperature:.3f}" in str(report)


def test_a_temperature_and_the_scales_do_better_than_either():
    found = {}
    for temperature in (False, True):
        model, x, y = overconfident()
        mean = model(x)
        report = calibrate(model, [(x, y)], steps=100, num_samples=16, temperature=temperature)
        found[temperature] = report.nll_after
        assert torch.equal(model(x), mean)
        assert logit_temperature(model) == report.temperature
        assert (report.temperature > 1.2) == temperature
    assert found[True] < found[False] - 0.05


def test_a_temperature_that_the_model_has_stays_and_counts():
    model, x, y = overconfident()
    set_logit_temperature(model, 3.0)
    report = calibrate(model, [(x, y)], steps=2)
    assert report.temperature == logit_temperature(model) == 3.0
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model(x) / 3.0, y).item()
    torch.testing.assert_close(report.nll_mean, expected, rtol=1e-5, atol=1e-5)


def test_several_layers_and_text():
    host = hosts.transformers_bert()
    model = convert(host.model, "cgp", "all")
    report = calibrate(model, [{**host.inputs, "labels": torch.tensor([0, 1, 2])}], steps=3, num_samples=2)
    assert len(report.scales) == 3
    moved = [m.log_amplitude for m in model.modules() if hasattr(m, "log_amplitude")]
    assert all(not torch.equal(p.detach(), torch.full((2,), math.log(0.1))) for p in moved)


def test_frozen_parameters_stay_frozen():
    model, x, y = overconfident()
    model.head.requires_grad_(False)
    calibrate(model, [(x, y)], steps=1)
    assert not model.head.weight.requires_grad
    assert model.norm.weight.requires_grad


def test_the_mixture_is_the_averaged_prediction():
    logits, targets = torch.randn(6, 4, 3, dtype=torch.float64), torch.tensor([0, 2, -100, 1])
    real = targets >= 0
    p = logits.softmax(-1).mean(0)[real].gather(-1, targets[real][:, None])
    torch.testing.assert_close(mixture_nll(logits, targets), -p.log().mean())


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(2, 2), {}, "model: expected layers with softmax's mean"),
        (CGPAttention(8, 2), {}, "model: expected layers with softmax's mean"),
        (SparseCGPAttention(8, 2, mean="softmax"), {}, "loader: expected at least one batch"),
        (SparseCGPAttention(8, 2, mean="softmax"), {"loader": [torch.zeros(2, 3, 8)]}, r"loader: expected batches \("),
        (SparseCGPAttention(8, 2, mean="softmax"), {"steps": 0}, "steps, num_samples"),
        (SparseCGPAttention(8, 2, mean="softmax"), {"learning_rate": 0.0}, "learning_rate: expected a positive"),
    ],
)
def test_bad_arguments_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        calibrate(model, **{"loader": [], **options})
