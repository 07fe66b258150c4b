"""Predictions against a plain loop of forward passes, and their attributes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cgp import CategoricalLikelihood, CGPAttention, Objective, SoftmaxAttention, SparseCGPAttention, assess, predict
from cgp.functional.noise import noise
from cgp.networks.convert import convert
from cgp.networks.model.blocks import attention_blocks, sampling
from cgp.networks.model.fingerprints import set_logit_temperature
from cgp.networks.model.inputs import call_model
from cgp.networks.model.structural_copy import structural_copy
from cgp.networks.predict.drawing import draw_noises
from cgp.networks.tasks.metrics import uncertainties
from tests.blocks import BLOCKS
from tests.cgp.helpers import Sizes
from tests.cgp.networks.convert import hosts


class Classifier(nn.Module):
    """Blocks of this package, one after another."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))  # which predictions leave out
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(8, 3)

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


def whole_passes(model, inputs, num_samples, mode, *, seed, antithetic):
    """Logits of draws, each of a whole forward pass of the model itself."""
    generator = torch.Generator().manual_seed(seed)
    seeds = iter(lambda: int(torch.randint(2**62, (), generator=generator)), None)
    draws = []
    for draw_seed, sign in draw_noises(num_samples, seeds.__next__, antithetic=antithetic):
        with torch.no_grad(), sampling(model, mode), noise(draw_seed, sign):
            draws.append(classify(call_model(model, inputs)))
    return torch.stack(draws)


@pytest.mark.parametrize(
    ("make", "mode", "layers"),
    [
        (hosts.torchvision_vit, "marginal", "all"),
        (hosts.timm_vit, "joint", "last"),
        (hosts.timm_vit, "marginal", "all"),
        (hosts.timm_eva, "marginal", "last"),
        (hosts.transformers_bert, "joint", "all"),
        (hosts.llama, "marginal", "last"),
        (hosts.t5, "marginal", "all"),
    ],
)
def test_sharing_changes_nothing(make, mode, layers):
    """The same seed in a plain loop over whole forward passes gives the same draws."""
    host = make()
    model = convert(host.model, "cgp", layers, amplitude=0.3)
    options = {"sampling": mode, "antithetic": False, "output": classify, "keep_draws": True}
    got = predict(model, host.inputs, 3, seed=5, **options)
    expected = whole_passes(model, host.inputs, 3, mode, seed=5, antithetic=False)
    torch.testing.assert_close(got.draws, expected.softmax(-1), atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(got.logits, expected.mean(0), atol=2e-5, rtol=1e-3)
    assert not torch.allclose(got.draws[0], got.draws[1], atol=1e-4)


def test_token_variance_is_the_blocks_on_the_mean_path():
    host = hosts.timm_qk_norm()
    model = convert(host.model, "sparse_cgp", [1, 2], inputs=host.inputs)
    prediction = predict(model, host.inputs, 2)
    names = ["blocks.1.attn.gp", "blocks.2.attn.gp"]
    assert list(prediction.token_variance) == names
    seen, copy = {}, structural_copy(model)
    for name, heads in copy.named_modules():
        if name in names:
            vars(heads)["attend"] = lambda inputs, name=name, heads=heads: (
                seen.__setitem__(name, heads.gaussian(inputs).variance) or heads.mean_heads(inputs)
            )
    with torch.no_grad():
        copy(host.inputs)
    for name, variance in prediction.token_variance.items():
        torch.testing.assert_close(variance, seen[name])
        assert (variance > 0).all()
    maps = prediction.patch_variance()
    assert maps.shape == (3, 2, 4, 4)
    torch.testing.assert_close(maps.flatten(2), prediction.token_variance["blocks.2.attn.gp"][..., 3:])
    assert torch.equal(prediction.patch_variance("blocks.1.attn.gp"), prediction.patch_variance(0))
    with pytest.raises(ValueError, match="layer: expected one of"):
        prediction.patch_variance(2)
    with pytest.raises(ValueError, match="patch_variance: expected a prediction by stochastic attention layers"):
        replace(prediction, token_variance={}).patch_variance()


@settings(max_examples=10)
@given(st.integers(2, 6), st.integers(1, 7), st.integers(0, 99))
def test_what_every_prediction_keeps(num_samples, batch_size, seed):
    torch.manual_seed(seed)
    model, x = classifier(noise=0.1), 3 * torch.randn(5, 4, 4)
    with torch.no_grad():
        model.head.weight *= 5
    p = predict(model, x, num_samples, batch_size=batch_size, seed=seed, keep_draws=True)
    assert p.draws.shape == (num_samples, 5, 3)
    torch.testing.assert_close(p.probabilities.sum(-1), torch.ones(5))
    assert (p.epistemic >= 0).all()
    assert (p.aleatoric <= p.total + 1e-6).all()
    assert (p.total <= torch.tensor(3.0).log() + 1e-6).all()
    torch.testing.assert_close(p.total, p.aleatoric + p.epistemic, atol=1e-6, rtol=0)
    torch.testing.assert_close(p.draws.mean(0), p.probabilities)
    expected = torch.distributions.Categorical(p.probabilities).entropy()
    torch.testing.assert_close(p.total, expected)
    with torch.inference_mode():
        again = predict(model.train(), x, num_samples, batch_size=batch_size, seed=seed, keep_variance=False)
    torch.testing.assert_close(p.probabilities, again.probabilities)
    assert again.token_variance == {}
    whole = predict(model, x, num_samples, seed=seed)
    for name, variance in p.token_variance.items():
        torch.testing.assert_close(variance, whole.token_variance[name], rtol=1e-3, atol=1e-5)


def test_seeds_leave_the_global_generator_alone_and_it_seeds_otherwise():
    model, x = classifier(), torch.randn(2, 5, 4)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    first = predict(model, x, 2, seed=1)
    assert torch.equal(torch.rand(3), expected)
    runs = []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        runs.append(predict(model, x, 2).probabilities)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert not torch.equal(runs[0], first.probabilities)
    twice = predict(model, torch.cat([x, x]), 3, seed=0, batch_size=2).probabilities
    assert not torch.allclose(twice[:2], twice[2:], atol=1e-4)  # batches have noise of their own


def test_modes_frozen_factors_and_gradients():
    model = classifier().train()
    model.blocks[0].eval()
    model.blocks[1].eval().freeze()
    prediction = predict(model, torch.randn(2, 5, 4), 2)
    assert model.blocks[1].is_frozen
    assert not prediction.logits.requires_grad
    assert model.training
    assert not model.blocks[0].training
    assert model.blocks[2].training
    assert all(block._sampling is None and "forward" not in vars(block) for block in attention_blocks(model))
    assert not any("forward" in vars(m) or "project" in vars(m) or "attend" in vars(m) for m in model.modules())


def test_results_are_ordinary_tensors_in_inference_mode_too():
    with torch.inference_mode():
        assert not predict(SparseCGPAttention(8, 2), torch.zeros(1, 3, 8), 2, task="regression").mean.is_inference()


def test_a_deterministic_model_as_it_comes_warns_of_nothing():
    """One draw is said where draws were asked for."""
    model, x = Classifier(SoftmaxAttention(8, 2)), torch.randn(2, 5, 4)
    assert predict(model, x).epistemic is None
    assert predict(model, x, 1).num_samples == 1
    for asked in ({"num_samples": 4}, {"keep_draws": True}):
        with pytest.warns(UserWarning, match="the model has no stochastic layer"):
            predict(model, x, **asked)


def test_a_deterministic_model_makes_one_draw():
    with pytest.warns(UserWarning, match="the model has no stochastic layer"):
        prediction = predict(Classifier(SoftmaxAttention(8, 2)), torch.randn(2, 5, 4), 7, keep_draws=True)
    assert prediction.draws.shape == (1, 2, 3)
    assert prediction.epistemic is None
    assert prediction.aleatoric is None
    assert prediction.token_variance == {}
    with pytest.warns(UserWarning, match="raise num_samples"):
        single = predict(classifier(), torch.randn(2, 5, 4), 1)
    assert single.epistemic is None
    torch.testing.assert_close(single.total, torch.special.entr(single.probabilities).sum(-1))


@pytest.mark.parametrize("make", [hosts.timm_eva, hosts.transformers_bert])
def test_autocast(make):
    host = make()
    model = convert(host.model, "sparse_cgp", "all", inputs=host.inputs)
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
    expected = whole_passes(model, x, 3, "marginal", seed=0, antithetic=False)
    torch.testing.assert_close(got.draws, expected.softmax(-1))


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


def test_logits_are_divided_by_the_temperature():
    model, x = Classifier(SoftmaxAttention(8, 2), SparseCGPAttention(8, 2)).eval(), torch.randn(4, 5, 4)
    options = {"seed": 0, "keep_draws": True}
    plain, mean = predict(model, x, 3, **options), model(x)
    set_logit_temperature(model, 2.5)
    divided = predict(torch.compile(model, backend="eager"), x, 3, **options)
    torch.testing.assert_close(divided.logits, plain.logits / 2.5)
    torch.testing.assert_close(divided.draws, (plain.draws.log() / 2.5).softmax(-1))
    assert torch.equal(model(x), mean)
    with pytest.raises(ValueError, match="temperature: expected a positive number, got 0.0"):
        set_logit_temperature(model, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples: expected at least 1"),
        ({"num_samples": 2.5}, "num_samples: expected at least 1, a whole number, got 2.5"),
        ({"num_samples": torch.zeros(2)}, "num_samples: expected at least 1, a whole number, got a Tensor"),
        ({"sampling": "mean"}, "sampling: expected 'marginal' or 'joint'"),
        ({"task": "regresion"}, "task: expected one of .* got 'regresion'; did you mean 'regression'?"),
        ({"task": "regression", "output": lambda out: out[:, 0]}, r"model: expected outputs \(N"),
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"output": lambda out: out[:, :1]}, "model: expected logits"),
        ({"output": lambda out: out.sum()}, "model: expected logits"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        predict(classifier(), torch.randn(2, 5, 4), **options)


def test_threads_predict_as_one_after_the_other():
    """8 threads give the same bits as calls in turn, and the model is as it was; converted ones: test_concurrency.py"""
    model = Classifier(*(BLOCKS[name](8, 2) for name in ("sparse_cgp", "cgp", "sgpa", "kep_svgp"))).eval()
    x, labels = torch.randn(8, 5, 4), torch.arange(8) % 3
    plain = model(x)
    model.train()  # modes are to be left alone
    attributes = [
        {name: copy(value) if isinstance(value, dict | list | set) else value for name, value in vars(module).items()}
        for module in model.modules()
    ]
    objective = Objective(model, CategoricalLikelihood(3), num_data=8, num_samples=2)

    def call(index):
        return predict(model, x[index % 4][None], 2, seed=index % 5, keep_variance=index % 5 > 2).probabilities

    alone = [call(index) for index in range(20)]
    # PyTorch counts its own threads in each Python thread anew: as many as here, or sums round differently.
    with ThreadPoolExecutor(9, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        loss = pool.submit(objective, x, labels)  # training goes on beside
        together = list(pool.map(call, range(40)))
    different = [index for index, got in enumerate(together) if not torch.equal(got, alone[index % 20])]
    assert different == []
    assert loss.result().isfinite()
    model.eval()
    assert torch.equal(model(x), plain)
    model.train()
    assert [dict(vars(module)) for module in model.modules()] == attributes


@pytest.mark.parametrize("mode", ["marginal", "joint"])
@pytest.mark.parametrize("name", [name for name, make in BLOCKS.items() if make(8, 2).stochastic])
def test_a_pair_averages_to_the_posterior_mean(name, mode):
    """With one block and an affine map above, opposite noise cancels."""
    block, x = BLOCKS[name](8, 2), torch.randn(4, 5, 4)
    if name.endswith("softmax"):
        nn.init.zeros_(block.softmax.log_amplitude)
    model = Classifier(block).eval()
    expected = model(x)
    draws = predict(model, x, 4, seed=0, sampling=mode, task=None, keep_draws=True).draws
    assert (draws - expected).abs().max() > 1e-2
    torch.testing.assert_close(draws[::2] + draws[1::2], 2 * expected.expand(2, 4, 3), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(draws[0], draws[2], atol=1e-3)


def test_the_first_of_a_pair_is_the_draw_of_its_seed():
    model, x = convert(hosts.timm_vit().model, "cgp", "all", amplitude=0.5), torch.randn(3, 3, 16, 16)
    options = {"seed": 4, "keep_draws": True, "sampling": "joint"}
    plain = predict(model, x, 2, antithetic=False, **options).draws
    four = predict(model, x, 4, antithetic=True, **options).draws
    three = predict(model, x, 3, antithetic=True, **options).draws
    for drawn, expected in ((four[0], plain[0]), (four[2], plain[1])):
        torch.testing.assert_close(drawn, expected)
    assert torch.equal(three, four[:3])
    assert not torch.allclose(four[1], plain[1], atol=1e-4)


def test_every_source_of_inputs_gives_the_same_prediction():
    model, x, y = classifier(), torch.randn(7, 5, 4), torch.arange(7) % 3
    examples = torch.utils.data.TensorDataset(x, y)
    expected = predict(model, x, 2, seed=0, batch_size=3)
    sources = {
        "tuple": (x,),
        "dict": {"x": x},
        "array": x.double().numpy(),
        "data set": examples,
        "loader": torch.utils.data.DataLoader(examples, 3),
        "dicts": [{"x": example.numpy(), "labels": int(c)} for example, c in examples],
        "batches": iter([x[:3], x[3:6], x[6:]]),
    }
    for source, inputs in sources.items():
        got = predict(model, inputs, 2, seed=0, batch_size=3)
        torch.testing.assert_close(got.probabilities, expected.probabilities, msg=source)
        assert (got.labels is not None and torch.equal(got.labels, y)) == (source in ("data set", "loader", "dicts"))
    words = torch.randint(0, 9, (7, 5))
    embedded = torch.nn.Sequential(torch.nn.Embedding(9, 4), model)
    of_tensor, of_array = (predict(embedded, inputs, 2, seed=0) for inputs in (words, words.numpy()))
    assert torch.equal(of_tensor.probabilities, of_array.probabilities)
    mask = (torch.arange(5) >= 3).expand(7, 5)
    for masked in ({"x": x, "key_padding_mask": mask}, (x, mask)):
        got = predict(model, masked, 2, seed=0, batch_size=3)
        assert all(not variance[..., 3:].any() for variance in got.token_variance.values())


def test_sums_over_draws_are_those_of_the_draws():
    model, x = classifier(noise=0.1), torch.randn(5, 4, 4)
    for task in ("classification", "multilabel", "regression", None):
        noise = torch.tensor([0.1, 0.2, 0.3]) if task == "regression" else None
        p = predict(model, x, 6, seed=0, task=task, keep_draws=True, noise=noise)
        if task == "classification":
            expected = uncertainties(p.draws)
        elif task == "multilabel":
            expected = uncertainties(torch.stack([p.draws, 1 - p.draws], -1))
        else:
            pairs = p.draws.unflatten(0, (3, 2))  # of opposite noise
            spread = (pairs[:, 0] - pairs[:, 1]).div(2).square().mean(0) + pairs.mean(1).var(0)
            of_noise = torch.tensor([0.1, 0.2, 0.3]).expand_as(spread)
            expected = (spread + of_noise, of_noise, spread) if task else (None, None, spread)
            torch.testing.assert_close(p.mean, p.draws.mean(0))
            assert p.probabilities is None
        for got, value in zip((p.total, p.aleatoric, p.epistemic), expected, strict=True):
            assert (got is None) == (value is None)
            if value is not None:
                torch.testing.assert_close(got, value, atol=2e-6, rtol=1e-4)
        if p.probabilities is not None:
            torch.testing.assert_close(p.probabilities, p.draws.mean(0))


def test_a_single_output_is_enough_for_a_regression():
    model, x = classifier(), torch.randn(2, 5, 4)
    every = predict(model, x, 2, seed=0, task="regression")
    single = predict(model, x, 2, seed=0, task="regression", output=lambda out: out[:, :1])
    torch.testing.assert_close(single.mean, every.mean[:, :1])


def test_draws_of_large_outputs_are_not_kept():
    """Token probabilities over a vocabulary are summed: the largest tensor that lives on is one draw."""
    model = nn.Sequential(SparseCGPAttention(8, 2), nn.Linear(8, 5000)).eval()
    with Sizes() as sizes:
        prediction = predict(model, torch.randn(2, 6, 8), 16, seed=0)
    assert prediction.probabilities.shape == (2, 6, 5000)
    assert sizes.largest() == 2 * 6 * 5000


def test_embeddings_are_found_in_outputs():
    host = hosts.transformers_bert()
    model = convert(host.model.bert, "cgp")
    prediction = predict(model, host.inputs, 4, task=None, seed=0)
    out = model(**host.inputs)
    result = out.last_hidden_state if out.pooler_output is None else out.pooler_output
    assert prediction.mean.shape == prediction.epistemic.shape == result.shape
    assert (prediction.mean - result).abs().max() < 0.5


@pytest.mark.parametrize("layers", ["last", "all", [0]])
@pytest.mark.parametrize("make", [hosts.llama, hosts.gpt2, hosts.mistral])
def test_every_draw_finds_a_cache_as_it_was_given(make, layers):
    """And leaves it as it was; each draw is that of the whole sequence, at the places of the new tokens."""
    host = make()
    model, ids = convert(host.model, layers=layers, amplitude=1e-4), host.inputs["input_ids"]
    with torch.enable_grad():  # keys and values may belong to a graph
        cache = host.model(ids[:, :5]).past_key_values
    before = [layer.keys.clone() for layer in cache.layers]
    inputs = {"input_ids": ids[:, 5:], "past_key_values": cache}
    prediction = predict(model, inputs, 6, seed=0, keep_draws=True)
    assert cache.get_seq_length() == 5
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before, strict=True))
    with torch.no_grad():
        expected = host.model(ids).logits[:, 5:].softmax(-1)
    torch.testing.assert_close(prediction.draws, expected.expand(6, *expected.shape), atol=2e-3, rtol=0)
    with pytest.raises(ValueError, match="batch_size: expected None with a cache"):
        predict(model, inputs, 2, batch_size=1)


def test_an_argument_that_predict_has_not_is_answered_with_the_nearest():
    with pytest.raises(TypeError, match=r"predict: unexpected argument 'num_sample'; did you mean 'num_samples'\?"):
        predict(nn.Linear(2, 2), torch.zeros(1, 2), num_sample=16)


def test_one_example_of_a_network_with_batch_norm_is_answered_with_a_batch():
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2))
    expected = (
        r"with examples along the first dimension \(x\[None\] of one example x\), got .* \(1, 4, 4\) \(expected 4D"
    )
    with pytest.raises(ValueError, match=expected):
        predict(network, torch.zeros(1, 4, 4))
    assert predict(network, torch.zeros(1, 1, 4, 4)).mean.shape == (1, 2)


@pytest.mark.parametrize(
    ("inputs", "said"), [((3, 4, 4), r"\(not enough values to unpack"), ((2, 4, 4, 3), r"\(Input width \(3\)")]
)
def test_what_a_vision_transformer_refuses_is_answered_with_shapes(inputs, said):
    """It unpacks four sizes, and asserts each: one example, and channels that come last."""

    class Patches(nn.Module):
        def forward(self, images):
            _, _, _, width = images.shape
            assert width == 4, f"Input width ({width}) doesn't match model (4)."
            return images.mean((2, 3))

    expected = rf"takes, with examples along the first dimension .*, got torch.float32 {re.escape(str(inputs))} {said}"
    with pytest.raises(ValueError, match=expected) as found:
        predict(Patches(), torch.zeros(inputs))
    assert isinstance(found.value.__cause__, ValueError | AssertionError)
    with pytest.raises(ValueError, match=expected):
        assess(Patches(), [(torch.zeros(inputs), torch.zeros(inputs[0], dtype=torch.long))])
