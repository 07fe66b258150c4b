"""Predictions against a plain loop of forward passes, and what they keep."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cgp import CGPAttention, Prediction, SGPAttention, SoftmaxAttention, SparseCGPAttention, predict
from cgp.conversion import convert
from cgp.model.blocks import attention_blocks, sampling
from cgp.model.inputs import call_model
from cgp.model.predict import uncertainties
from cgp.model.temperature import set_logit_temperature
from tests.cgp.conversion import hosts
from tests.cgp.conversion.hosts import HOSTS


class Classifier(nn.Module):
    """Blocks of this package, one after another."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(4, 8), nn.ModuleList(blocks), nn.Linear(8, 3)

    def forward(self, x, key_padding_mask=None):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x, key_padding_mask=key_padding_mask)
        return self.head(x.mean(-2))


def classifier(**options) -> Classifier:
    return Classifier(SoftmaxAttention(8, 2), SparseCGPAttention(8, 2, **options), CGPAttention(8, 2)).eval()


def classify(out):
    """Logits (N, C) out of whatever a host returns."""
    out = getattr(out, "logits", out)
    out = out[0] if isinstance(out, tuple) else out
    return out.mean(1) if out.dim() == 3 else out


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("mode", ["marginal", "joint"])
@pytest.mark.parametrize("make", HOSTS)
def test_sharing_changes_nothing(make, mode, layers):
    """The same seed in a plain loop over whole forward passes gives the same draws."""
    host = make()
    model = convert(host.model, "cgp", layers, amplitude=0.3)
    options = {"sampling": mode, "antithetic": False, "output": classify, "keep_draws": True}
    got = predict(model, host.inputs, 3, seed=5, **options)
    torch.manual_seed(5)
    with torch.no_grad(), sampling(model, mode):
        expected = torch.stack([classify(call_model(model, host.inputs)) for _ in range(3)])
    torch.testing.assert_close(got.draws, expected.softmax(-1), atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(got.logits, expected.mean(0), atol=2e-5, rtol=1e-3)
    assert not torch.allclose(got.draws[0], got.draws[1], atol=1e-4)


@pytest.mark.parametrize("make", [hosts.timm_vit, hosts.transformers_bert, hosts.torchvision_vit])
def test_layers_below_run_once(make):
    host = make()
    model = convert(host.model, "scgp", [1])
    calls = {"below": 0, "above": 0}
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]

    def count(norm, where):
        original = norm.forward

        def forward(x):
            calls[where] += 1
            return original(x)

        norm.forward = forward

    count(norms[0], "below")
    count(norms[-1], "above")
    predict(model, host.inputs, 6, output=classify)
    assert calls == {"below": 1, "above": 7}


def test_token_variance_is_the_blocks_on_the_mean_path():
    host = hosts.timm_qk_norm()
    model = convert(host.model, "scgp", [1, 2])
    prediction = predict(model, host.inputs, 2)
    assert list(prediction.token_variance) == ["blocks.1.attn.block", "blocks.2.attn.block"]
    seen = {}
    for name, module in model.named_modules():
        if name in prediction.token_variance:
            module.register_forward_hook(
                lambda block, args, kwargs, out, name=name: seen.__setitem__(
                    name, block.token_variance(*args, **kwargs)
                ),
                with_kwargs=True,
            )
    with torch.no_grad():
        model(host.inputs)
    for name, variance in prediction.token_variance.items():
        torch.testing.assert_close(variance, seen[name])
        assert (variance > 0).all()
    maps = prediction.patch_variance()
    assert maps.shape == (3, 2, 4, 4)
    torch.testing.assert_close(maps.flatten(2), prediction.token_variance["blocks.2.attn.block"][..., 3:])
    assert torch.equal(prediction.patch_variance("blocks.1.attn.block"), prediction.patch_variance(0))
    with pytest.raises(ValueError, match="layer: expected one of"):
        prediction.patch_variance(2)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 99))
def test_what_every_prediction_keeps(num_samples, batch_size, seed):
    torch.manual_seed(seed)
    model, x = classifier(noise=0.1), 3 * torch.randn(5, 4, 4)
    with torch.no_grad():
        model.head.weight *= 5
    p = predict(model, x, num_samples, batch_size=batch_size, seed=seed, keep_draws=True)
    assert p.draws.shape == (num_samples, 5, 3)
    torch.testing.assert_close(p.probabilities.sum(-1), torch.ones(5))
    torch.testing.assert_close(p.draws.mean(0), p.probabilities)
    assert (p.epistemic >= 0).all()
    assert (p.aleatoric <= p.total + 1e-6).all()
    assert (p.total <= torch.tensor(3.0).log() + 1e-6).all()
    torch.testing.assert_close(p.total, p.aleatoric + p.epistemic, atol=1e-6, rtol=0)
    expected = torch.distributions.Categorical(p.probabilities).entropy()
    torch.testing.assert_close(p.total, expected)
    again = predict(model, x, num_samples, batch_size=batch_size, seed=seed)
    assert torch.equal(p.probabilities, again.probabilities)
    whole = predict(model, x, num_samples, seed=seed)
    for name, variance in p.token_variance.items():
        torch.testing.assert_close(variance, whole.token_variance[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("propagation", ["sampling", "linearised"])
def test_variances_need_not_be_kept(propagation):
    model, x = Classifier(SoftmaxAttention(8, 2), SparseCGPAttention(8, 2)), torch.randn(4, 5, 4)
    kept, left = (
        predict(model, x, 3, seed=0, batch_size=3, propagation=propagation, keep_variance=keep)
        for keep in (True, False)
    )
    assert left.token_variance == {}
    torch.testing.assert_close(left.probabilities, kept.probabilities)
    with pytest.raises(ValueError, match=r"layer: expected one of \[\]"):
        left.patch_variance()


def test_batches_agree_in_distribution():
    model, x = classifier(), torch.randn(4, 5, 4)
    with torch.no_grad():
        model.head.weight *= 5
    options = {"antithetic": False, "keep_draws": True}
    whole, parts = (predict(model, x, 1000, batch_size=size, seed=size, **options) for size in (4, 1))
    error = (whole.draws.var(0) / 1000).sqrt() + (parts.draws.var(0) / 1000).sqrt()
    assert ((whole.probabilities - parts.probabilities).abs() < 5 * error).all()


def test_seeds_and_generators_leave_the_global_generator_alone():
    model, x = classifier(), torch.randn(2, 5, 4)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    first = predict(model, x, 2, seed=1)
    second = predict(model, x, 2, generator=torch.Generator().manual_seed(4))
    assert torch.equal(torch.rand(3), expected)
    third = predict(model, x, 2, generator=torch.Generator().manual_seed(4))
    assert torch.equal(second.probabilities, third.probabilities)
    assert not torch.equal(first.probabilities, second.probabilities)


def test_inputs_of_every_form_and_masks():
    model, x = classifier(), torch.randn(4, 5, 4)
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[:, 3:] = True
    forms = (x, (x,), {"x": x})
    alone = [predict(model, form, 2, seed=0, batch_size=3).probabilities for form in forms]
    assert all(torch.equal(alone[0], other) for other in alone)
    masked = predict(model, {"x": x, "key_padding_mask": mask}, 2, seed=0, batch_size=3)
    assert all(not variance[..., 3:].any() for variance in masked.token_variance.values())
    assert predict(model, (x, mask), 2, seed=0).probabilities.shape == (4, 3)


def test_modes_come_back_and_gradients_are_not_kept():
    model = classifier().train()
    model.blocks[0].eval()
    prediction = predict(model, torch.randn(2, 5, 4), 2)
    assert not prediction.logits.requires_grad
    assert model.training
    assert not model.blocks[0].training
    assert model.blocks[1].training
    assert all(block._sampling is None and "forward" not in vars(block) for block in attention_blocks(model))
    assert not any("forward" in vars(m) or "project" in vars(m) or "attend" in vars(m) for m in model.modules())


def test_frozen_factors_are_kept():
    model = classifier()
    model.blocks[1].freeze()
    predict(model, torch.randn(2, 5, 4), 2)
    assert model.blocks[1].frozen_factor("whitening") is not None


def test_a_deterministic_model_makes_one_draw():
    prediction = predict(Classifier(SoftmaxAttention(8, 2)), torch.randn(2, 5, 4), 7, keep_draws=True)
    assert prediction.draws.shape == (1, 2, 3)
    assert not prediction.epistemic.any()
    assert prediction.token_variance == {}


def test_dropout_is_off():
    model = Classifier(nn.Dropout(0.5))
    model.blocks[0] = SoftmaxAttention(8, 2)
    model.embed = nn.Sequential(model.embed, nn.Dropout(0.9))
    x = torch.randn(2, 5, 4)
    assert torch.equal(predict(model.train(), x).logits, predict(model, x).logits)


@pytest.mark.parametrize("make", [hosts.timm_eva, hosts.transformers_bert])
def test_autocast(make):
    host = make()
    model = convert(host.model, "scgp", "all")
    half = predict(model, host.inputs, 4, seed=0, autocast=torch.bfloat16)
    full = predict(model, host.inputs, 4, seed=0)
    assert half.logits.dtype == torch.float32
    assert (half.logits - full.logits).abs().max() < 0.15 * full.logits.std()
    assert (half.logits != full.logits).any()


def test_layers_that_are_shared_are_run_each_time():
    block = SparseCGPAttention(8, 2)
    model = Classifier(block, SoftmaxAttention(8, 2), block).eval()
    x = torch.randn(2, 5, 4)
    got = predict(model, x, 3, antithetic=False, seed=0, keep_draws=True)
    torch.manual_seed(0)
    with torch.no_grad(), sampling(model, "marginal"):
        expected = torch.stack([model(x) for _ in range(3)]).softmax(-1)
    torch.testing.assert_close(got.draws, expected)


def test_columns_with_covariances_of_their_own_are_drawn_too():
    model, x = Classifier(SGPAttention(8, 2, num_inducing=3)).eval(), torch.randn(2, 5, 4)
    prediction = predict(model, x, 5, seed=0)
    assert prediction.token_variance["blocks.0"].shape == (2, 2, 5)
    assert (prediction.epistemic > 0).all()


@pytest.mark.parametrize(
    "compiled", [lambda m: torch.compile(m, backend="eager"), lambda m: m.compile(backend="eager") or m]
)
def test_compiled_models_predict_the_same(compiled):
    torch._dynamo.reset()
    host = hosts.torchvision_vit()
    model = convert(host.model, "cgp", [1], amplitude=0.3)
    expected = predict(model, host.inputs, 3, seed=0)
    model = compiled(model)
    with torch.no_grad():
        model(host.inputs)
    got = predict(model, host.inputs, 3, seed=0)
    torch.testing.assert_close(got.probabilities, expected.probabilities)
    torch.testing.assert_close(got.patch_variance(), expected.patch_variance())


@pytest.mark.parametrize("propagation", ["sampling", "linearised"])
def test_logits_are_divided_by_the_temperature(propagation):
    model, x = Classifier(SoftmaxAttention(8, 2), SparseCGPAttention(8, 2)).eval(), torch.randn(4, 5, 4)
    options = {"seed": 0, "propagation": propagation, "keep_draws": True}
    plain, mean = predict(model, x, 3, **options), model(x)
    set_logit_temperature(model, 2.5)
    divided = predict(torch.compile(model, backend="eager"), x, 3, **options)
    torch.testing.assert_close(divided.logits, plain.logits / 2.5)
    torch.testing.assert_close(divided.draws, (plain.draws.log() / 2.5).softmax(-1))
    assert torch.equal(model(x), mean)
    with pytest.raises(ValueError, match="temperature: expected a positive number, got 0.0"):
        set_logit_temperature(model, 0.0)


def test_per_token_predictions():
    block = SparseCGPAttention(8, 2)
    prediction = predict(nn.Sequential(block, nn.Linear(8, 3)), torch.randn(2, 5, 8), 3)
    assert prediction.probabilities.shape == (2, 5, 3)
    assert prediction.epistemic.shape == (2, 5)


def test_uncertainties_of_agreeing_draws_are_aleatoric():
    total, aleatoric, epistemic = uncertainties(torch.tensor([0.25, 0.75]).expand(6, 2, 2))
    torch.testing.assert_close(total, aleatoric)
    assert epistemic.max() < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples: expected at least 1"),
        ({"sampling": "mean"}, "sampling: expected 'marginal' or 'joint'"),
        ({"propagation": "exact"}, "propagation: expected one of"),
        ({"seed": 1, "generator": torch.Generator()}, "seed, generator: expected one of them"),
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"output": lambda out: out[:, :1]}, "model: expected logits"),
        ({"output": lambda out: out.sum()}, "model: expected logits"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        predict(classifier(), torch.randn(2, 5, 4), **options)


def test_outputs_without_logits_are_refused():
    host = hosts.transformers_bert()
    with pytest.raises(ValueError, match=r"model: expected a tensor of logits or an output with .logits"):
        predict(convert(host.model.bert, "cgp"), host.inputs)


def test_tensors_that_cannot_be_split_are_refused():
    with pytest.raises(
        ValueError, match=r"inputs: expected tensors with one first dimension to split, got sizes \[2, 3\]"
    ):
        predict(classifier(), (torch.randn(2, 5, 4), torch.zeros(3, 5)), batch_size=1)


def test_a_prediction_cannot_be_changed():
    prediction = predict(classifier(), torch.randn(2, 5, 4), 2)
    assert isinstance(prediction, Prediction)
    with pytest.raises(AttributeError):
        prediction.logits = prediction.logits
