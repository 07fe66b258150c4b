"""Several draws per step through hosts without a leading dimension for draws."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import nn

from cgp import CategoricalLikelihood, Objective, SoftmaxAttention, convert, predict
from cgp.networks.model.blocks import attention_blocks, draws, sampling
from models import VisionTransformer
from tests.cgp.networks.convert import hosts

CONVERT = import_module("cgp.networks.convert.convert")
FAMILIES = (hosts.torchvision_vit, hosts.timm_vit, hosts.timm_eva, hosts.transformers_vit, hosts.transformers_bert)
LABELS = torch.tensor([0, 1, 2])


def bound(model, num_samples, **options):
    return Objective(model, CategoricalLikelihood(5), num_data=3, num_samples=num_samples, **options)


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("make", FAMILIES)
def test_draws_are_those_of_whole_passes(make, layers):
    """Value and gradients against the host run three times, its logits averaged by hand."""
    host = make()
    model = convert(
        host.model, "sparse_cgp", layers, amplitude=0.5, num_inducing=4, inputs=host.inputs
    )  # in eval mode: without dropout
    with sampling(model, "marginal"):
        torch.manual_seed(1)
        draws = torch.stack([host.call(model) for _ in range(3)])
        expected = torch.stack([nn.functional.cross_entropy(draw, LABELS) for draw in draws]).mean()
        torch.manual_seed(1)
        got = bound(model, 3)(host.inputs, LABELS)
    torch.testing.assert_close(got, expected)
    assert draws.std(0).max() > 1e-3
    parameters = [p for p in model.parameters() if p.requires_grad]
    pairs = zip(*(torch.autograd.grad(x, parameters, allow_unused=True) for x in (got, expected)), strict=True)
    for mine, whole in pairs:
        assert (mine is None) == (whole is None)
        if mine is not None:
            torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-5)


def test_what_lies_below_the_first_stochastic_layer_runs_once():
    host = hosts.torchvision_vit()
    model = convert(host.model, "cgp").train()
    below, above = (model.encoder.layers[index].mlp[0] for index in (0, -1))
    calls = []
    for layer in (below, above):
        layer.forward = lambda x, forward=layer.forward, layer=layer: calls.append(layer) or forward(x)
    bound(model, 4)(host.inputs, LABELS).backward()
    assert calls == [below, above, above, above, above]
    assert below.weight.grad.any()
    predict(model, host.inputs, 4)  # the first draw is the run that is recorded
    assert calls[5:] == [below, above, above, above, above]


def test_the_first_layer_projects_once_for_all_draws(monkeypatch):
    """`nn.MultiheadAttention` projects by functions, and has no modules that could be replayed."""
    host, calls, linear = hosts.torchvision_vit(), [], CONVERT._linear
    monkeypatch.setattr(CONVERT, "_linear", lambda *args: calls.append(args) or linear(*args))
    predict(convert(host.model, layers=[0, 2]), host.inputs, 4, seed=0)
    assert len(calls) == 1 + 4 + 1  # first layer, draws of the last, its mean


def test_mean_mode_is_one_pass_and_cross_entropy():
    host = hosts.timm_vit()
    model = convert(host.model, "cgp")
    loss = bound(model, 4)(host.inputs, LABELS)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(host.model(host.inputs), LABELS), atol=1e-5, rtol=0)


def test_function_values_are_taken_from_any_output():
    host = hosts.transformers_bert()
    model = convert(host.model.bert, "cgp").train()
    objective = Objective(
        model, CategoricalLikelihood(16), 3, num_samples=2, output=lambda out: out.last_hidden_state[:, 0]
    )
    objective(host.inputs, LABELS).backward()
    assert attention_blocks(model)[0].log_amplitude.grad.any()
    with pytest.raises(ValueError, match="pass output="):
        Objective(model, CategoricalLikelihood(16), 3, num_samples=2)(host.inputs, LABELS)


def test_recomputed_activations_are_those_of_their_draw():
    """Gradient checkpointing runs layers again in the backward pass, when nothing stands for their outputs any more."""
    host = hosts.transformers_vit()
    model = convert(host.model, "sparse_cgp", amplitude=0.5, num_inducing=4, inputs=host.inputs).train()
    gradients = []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.zero_grad()
        torch.manual_seed(3)
        bound(model, 3)(host.inputs, LABELS).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-5)


def test_draws_one_by_one_and_in_one_pass_have_the_same_loss():
    model = VisionTransformer(
        image_size=8, patch_size=4, channels=1, num_classes=5, depth=2, embed_dim=16, mlp_dim=16, num_heads=2,
        attention=SoftmaxAttention, pooling="mean", dropout=0.0,
    )  # fmt: skip
    converted = convert(model, "cgp", amplitude=0.5).train()
    x = torch.randn(3, 1, 8, 8)
    with draws(converted, 64):
        in_one_pass = -CategoricalLikelihood(5).expected_log_prob(LABELS, converted(x)).mean()
    torch.testing.assert_close(bound(converted, 64)(x, LABELS), in_one_pass, rtol=0.1, atol=0.05)
