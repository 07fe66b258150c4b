"""Converted models against the originals, by family, and models that cannot be converted."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torch import nn

from cgp import CGPAttention, SoftmaxAttention, predict
from cgp.networks.convert import ConvertedHeads, HostAttention, attention_sites, convert, describe
from cgp.networks.convert.convert import _Intercept
from tests.cgp.networks.convert import hosts
from tests.cgp.networks.convert.hosts import DECODERS, HOSTS, Host, heads_of, watched


def draw(host: Host, model: nn.Module, mode: str | None = "marginal") -> torch.Tensor:
    for heads in heads_of(model):
        heads.sampling = mode
    return host.run(model)


def sparse(host: Host) -> dict:
    return {"method": "sparse_cgp", "num_inducing": 5, "inputs": host.inputs}


@pytest.mark.parametrize("method", ["cgp", "sparse_cgp"])
@pytest.mark.parametrize("make", HOSTS)
def test_a_converted_model_predicts_as_the_original_and_its_draws_vary(make, method):
    host = make()
    expected = host.run()
    options = sparse(host) if method == "sparse_cgp" else {}
    last = convert(host.model, **options)
    torch.testing.assert_close(host.run(last), expected, atol=1e-5, rtol=0)
    assert len(heads_of(last)) == 1
    model = convert(host.model, layers="all", amplitude=0.3, **options)
    assert len(heads_of(model)) == len(attention_sites(host.model))
    mean = host.run(model)
    torch.testing.assert_close(mean, expected, atol=1e-5, rtol=0)
    first, second = draw(host, model), draw(host, model)
    assert torch.isfinite(first).all()
    assert not torch.allclose(first, second, atol=1e-4)
    assert not torch.allclose(first, expected, atol=1e-4)
    assert torch.equal(draw(host, model, "mean"), mean)
    added = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in host.model.parameters())
    table = describe(model)
    assert int(table.rpartition(" ")[2].replace(",", "")) == added
    assert len(table.splitlines()) == len(heads_of(model)) + 2


@pytest.mark.parametrize("make", [hosts.timm_vit, hosts.torch_encoder, hosts.llama, hosts.t5])
def test_the_host_is_left_as_it_was(make):
    host = make()
    before = {name: (type(m), dict(vars(m)), m.training) for name, m in host.model.named_modules()}
    state = {name: value.clone() for name, value in host.model.state_dict().items()}
    draw(host, convert(host.model, layers="all", **sparse(host)))
    for name, module in host.model.named_modules():
        kind, attributes, training = before[name]
        assert type(module) is kind
        assert module.training == training
        assert vars(module).keys() == attributes.keys()
    assert host.model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in host.model.state_dict().items())


def test_parameters_are_shared_and_keys_only_gain():
    host = hosts.transformers_bert()
    converted = convert(host.model, layers="all")
    mine, theirs = dict(converted.named_parameters()), dict(host.model.named_parameters())
    assert all(mine[name] is parameter for name, parameter in theirs.items())
    assert set(converted.state_dict()) - set(host.model.state_dict()) == {
        f"bert.encoder.layer.{i}.attention.self.gp.{name}"
        for i in range(3)
        for name in ("raw_noise", "log_amplitude", "log_lengthscale", "layer", "cgp_temperature", "cgp_weights")
    }


def test_the_covariance_is_of_the_hosts_queries_and_keys():
    """Against the projections by hand, dense, one sequence."""
    host = nn.MultiheadAttention(16, 2, batch_first=True).double()
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    model = convert(host, amplitude=0.7, noise=0.05, lengthscale=1.3)
    seen = watched(model, "joint")
    model(x, x, x)
    Q, K, _ = (x @ host.in_proj_weight.T + host.in_proj_bias).chunk(3, -1)
    for h in range(2):
        q, k = (z[0, :, 8 * h : 8 * h + 8] / 8**0.25 / 1.3 for z in (Q, K))

        def R(a, b):
            return torch.exp(-0.5 * torch.cdist(a, b).square())

        factor = torch.linalg.cholesky(R(k, k) + 0.05 * torch.eye(5).double())
        expected = 0.7**2 * (R(q, q) - R(q, k) @ torch.cholesky_solve(R(k, q), factor))
        torch.testing.assert_close(seen[0].variance[0, h], expected.diagonal())
        torch.testing.assert_close(seen[0].joint().covariance[0, h], expected)


def test_scales_of_the_scores_are_the_hosts():
    """Queries that a host has multiplied already count as those that it has not."""
    q, k = torch.randn(2, 1, 2, 5, 4).unbind()
    heads = ConvertedHeads(2)
    plain = heads.gaussian(HostAttention(lambda: q, q, k)).variance
    ready = heads.gaussian(HostAttention(lambda: q, q * 4**-0.5, k, scale=1.0)).variance
    torch.testing.assert_close(ready, plain)


def test_with_every_query_and_key_among_them_the_sparse_variance_is_exact():
    host = hosts.custom()
    host = Host(host.model.double(), host.inputs[:1].double())
    seen = []
    for options in ({}, {**sparse(host), "num_inducing": 14}):
        model = convert(host.model, **options)
        seen.append(watched(model))
        host.run(model)
    torch.testing.assert_close(seen[1][0].variance, seen[0][0].variance, rtol=1e-3, atol=1e-6)


# Masks and caches


@pytest.mark.parametrize("method", ["cgp", "sparse_cgp"])
def test_what_padded_text_holds_does_not_matter(method):
    host = hosts.transformers_bert()
    converted = convert(host.model, layers="all", amplitude=0.3, **(sparse(host) if method == "sparse_cgp" else {}))
    ids = host.inputs["input_ids"].clone()
    ids[host.inputs["attention_mask"] == 0] = 5
    other = host._replace(inputs={**host.inputs, "input_ids": ids})
    outputs = []
    for each in (host, other):
        torch.manual_seed(1)
        outputs.append(draw(each, converted))
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)


def test_padded_queries_have_no_variance():
    host = hosts.transformers_bert()
    model, real = convert(host.model, amplitude=0.3), host.inputs["attention_mask"].bool()
    seen = watched(model)
    host.run(model)
    variance = seen[0].variance.transpose(-1, -2)
    assert (variance[real] > 0).all()
    assert not variance[~real].any()


@pytest.mark.parametrize("make", DECODERS)
def test_no_token_looks_ahead(make):
    host = make()
    model = convert(host.model, layers="all", amplitude=0.3)
    ids = host.inputs["input_ids"]
    outputs = []
    for changed in (ids, torch.cat([ids[:, :-2], ids[:, -2:] + 1], 1) % 40):
        torch.manual_seed(1)
        outputs.append(draw(Host(model, {"input_ids": changed}), model)[:, :-2])
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("make", DECODERS)
def test_new_tokens_see_all_cached_ones(make):
    """Variances of the last layer token by token, against one pass."""
    host = make()
    model = convert(host.model)
    seen, ids = watched(model), host.inputs["input_ids"]
    with torch.no_grad():
        model(ids)
        whole = seen.pop().variance
        past = None
        for t in range(ids.shape[1]):
            past = model(ids[:, t : t + 1], past_key_values=past, use_cache=True).past_key_values
    by_token = torch.cat([posterior.variance for posterior in seen], -1)
    torch.testing.assert_close(by_token, whole, rtol=1e-3, atol=1e-6)


def test_joint_draws_need_queries_that_see_the_same_keys():
    host = hosts.torch_encoder()
    assert not torch.allclose(draw(host, convert(host.model, amplitude=0.3), "joint"), host.run(), atol=1e-4)
    host = hosts.llama()
    with pytest.raises(ValueError, match=r"layers.1.self_attn: sampling 'joint' is not defined"):
        draw(host, convert(host.model), "joint")


PADDING = ~hosts.padding(7, 7, 4, 2)
CAUSAL = torch.ones(7, 7).triu(1).bool()
MASKS = {
    "padding": {"key_padding_mask": PADDING},
    "pairs": {"attn_mask": CAUSAL},
    "both": {"key_padding_mask": PADDING, "attn_mask": CAUSAL},
    "float pairs": {"key_padding_mask": PADDING, "attn_mask": torch.zeros(7, 7).masked_fill(CAUSAL, -torch.inf)},
    "bias": {"attn_mask": torch.linspace(-1, 1, 49).view(7, 7)},
    "float padding": {"key_padding_mask": torch.zeros(3, 7).masked_fill(PADDING, -torch.inf)},
    "by head": {"attn_mask": torch.stack([CAUSAL, CAUSAL.T] * 3), "key_padding_mask": PADDING & False},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_takes_every_mask(name, batch_first):
    host = hosts.spread(nn.MultiheadAttention(16, 2, batch_first=batch_first))
    x = torch.randn(3, 7, 16) if batch_first else torch.randn(7, 3, 16)
    expected, weights = host(x, x, x, **MASKS[name])
    got, same = convert(host)(x, x, x, **MASKS[name])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(same, weights)


def test_multihead_attention_takes_every_shape():
    host = hosts.spread(nn.MultiheadAttention(16, 2))
    converted = convert(host)
    x, y = torch.randn(5, 3, 16), torch.randn(6, 3, 16)
    for args in ((x, x, x), (x, y, y), (x[:, 0], y[:, 0], y[:, 0])):
        expected = host(*args, need_weights=False)[0]
        torch.testing.assert_close(converted(*args, need_weights=False)[0], expected, atol=1e-5, rtol=0)


def make_eager(model: nn.Module) -> None:
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    for module in model.modules():
        if hasattr(module, "fused_attn"):  # of timm
            module.fused_attn = False


@pytest.mark.parametrize(
    "make",
    [
        hosts.transformers_bert, hosts.llama, hosts.mistral, hosts.gpt2, hosts.bart, hosts.t5, hosts.timm_vit,
        hosts.timm_eva_separate, hosts.timm_swin,
    ],
)  # fmt: skip
def test_eager_attention_draws_equal_those_of_fused_attention(make):
    host = make()
    fused, draws = copy.deepcopy(host.model), []
    make_eager(host.model)
    expected = host.run()
    for each in (host.model, fused):
        model = convert(each, layers="all")
        torch.testing.assert_close(host.run(model), expected, atol=1e-5, rtol=0)
        torch.manual_seed(1)
        draws.append(draw(host, model))
    torch.testing.assert_close(*draws, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(draws[0], expected, atol=1e-4)


def test_eager_attention_shows_its_weights_and_the_host_stays_eager():
    host = hosts.transformers_bert()
    make_eager(host.model)
    shown = [m(**host.inputs, output_attentions=True).attentions for m in (convert(host.model), host.model)]
    for weights, other in zip(*shown, strict=True):
        torch.testing.assert_close(weights, other)


# What else a model is put through


@pytest.mark.parametrize(("layers", "expected"), [("last", [2]), ([0], [0]), ([-1, 0], [0, 2]), ((1, 1), [1])])
def test_layers(layers, expected):
    converted = convert(hosts.timm_vit().model, layers=layers)
    assert [i for i, site in enumerate(attention_sites(converted)) if site.state == "converted"] == expected


def test_shared_layers_stay_shared():
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    model = nn.ModuleDict({"a": nn.ModuleList([layer]), "b": nn.ModuleList([layer])})
    converted = convert(model, layers="all")
    assert converted["a"][0] is converted["b"][0]
    assert isinstance(converted["a"][0].gp, ConvertedHeads)


def test_mode_precision_and_device_are_the_hosts():
    model = hosts.timm_vit().model.double().train()
    heads = heads_of(convert(model))[0]
    assert heads.training
    assert {p.dtype for p in heads.parameters()} == {torch.float64}


@pytest.mark.parametrize("make", [hosts.timm_qk_norm, hosts.timm_eva_separate, hosts.torchvision_vit, hosts.llama])
def test_bfloat16_models_run(make):
    host = make()
    expected = host.run()
    inputs = host.inputs.bfloat16() if isinstance(host.inputs, torch.Tensor) else host.inputs
    half = Host(host.model.bfloat16(), inputs, host.output)
    out = draw(half, convert(half.model, layers="all", amplitude=0.01))
    assert out.dtype == torch.bfloat16
    assert (out.float() - expected).abs().mean() < 0.1 * expected.std()


@pytest.mark.parametrize("make", [hosts.timm_eva, hosts.torchvision_vit, hosts.llama])
def test_converted_models_train_by_every_parameter(make):
    host = make()
    model = convert(host.model, layers="all", **sparse(host)).train()
    host.call(model).square().sum().backward()
    assert not [n for n, p in model.named_parameters() if ".gp." in n and (p.grad is None or not p.grad.any())]


@pytest.mark.parametrize("make", [hosts.torchvision_vit, hosts.transformers_bert, hosts.llama])
def test_converted_models_compile_without_a_graph_break(make):
    """In mean mode; BERT's sparse draws, too."""
    torch._dynamo.reset()
    host = make()
    model = convert(host.model, layers="all", **sparse(host))
    compiled, expected = torch.compile(model, fullgraph=True, backend="eager"), host.run(model)
    torch.testing.assert_close(host.run(compiled), expected)
    if make is hosts.transformers_bert:
        out = draw(host, compiled)
        assert torch.isfinite(out).all()
        assert not torch.allclose(out, expected, atol=1e-4)


@pytest.mark.parametrize("make", [hosts.torchvision_vit, hosts.transformers_bert])
def test_converted_models_are_exported_in_mean_mode(make):
    host = make()
    model = convert(host.model, layers="all")
    args, options = ((), host.inputs) if isinstance(host.inputs, dict) else ((host.inputs,), {})
    with torch.no_grad():
        exported = torch.export.export(model, args, options).module()
    torch.testing.assert_close(host.run(exported), host.run(), atol=1e-5, rtol=0)


def test_copies_pickles_and_state_dicts():
    host = hosts.timm_vit()
    model = convert(host.model, layers="all", **sparse(host))
    other = convert(hosts.timm_vit().model, layers="all", **sparse(host))
    other.load_state_dict(model.state_dict())
    for candidate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other):
        assert torch.equal(host.run(candidate), host.run(model))
        assert len(heads_of(candidate)) == 3
        assert not torch.equal(draw(host, candidate), host.run(model))


def test_forwards_that_were_replaced_on_the_module_are_kept():
    """As accelerate replaces them."""
    host = hosts.timm_vit()
    attention, calls = host.model.blocks[2].attn, []
    attention._old_forward = attention.forward

    def forward(module, *args, **options):
        calls.append(module)
        return module._old_forward(*args, **options)

    attention.forward = functools.partial(forward, attention)
    converted = convert(host.model, amplitude=0.3)
    assert torch.equal(host.run(converted), host.run())
    assert calls[0] is converted.blocks[2].attn
    assert not torch.equal(draw(host, converted), host.run())


def test_reference_models_are_hosts_too():
    model, x = nn.Sequential(SoftmaxAttention(16, 2), SoftmaxAttention(16, 2)).eval(), torch.randn(3, 5, 16)
    torch.testing.assert_close(convert(model, layers="all")(x), model(x), atol=1e-5, rtol=0)


# What cannot be converted


class LinearAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qk = nn.Linear(16, 32)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        return q.softmax(-1) @ (k.softmax(-2).mT @ x)


def flash_bert():
    model = hosts.transformers_bert().model
    model.config._attn_implementation_internal = "flash_attention_2"
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(2, 2), "got none in Linear: cgp.assess takes any"),
        (lambda: nn.Sequential(LinearAttention()), r"0 \(.*LinearAttention\): not softmax attention"),
        (flash_bert, r"self \(.*BertSelfAttention\): .* by 'flash_attention_2': .*attn_implementation='sdpa'"),
        (lambda: CGPAttention(8, 2), "a Gaussian-process block already"),
        (lambda: convert(nn.MultiheadAttention(16, 2)), "converted already"),
    ],
)
def test_attention_that_cannot_be_reached_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        convert(make())


def test_layers_that_cannot_be_converted_are_listed():
    host = hosts.timm_vit()
    host.model.blocks[1].attn = LinearAttention()
    with pytest.raises(ValueError, match=r"got 1 of 3 .*\n  blocks.1.attn .*not softmax attention"):
        convert(host.model, layers="all")
    assert len(heads_of(convert(host.model, layers="all", strict=False))) == 2
    assert len(heads_of(convert(host.model, layers=[0, 2]))) == 2
    with pytest.raises(ValueError, match="got none in VisionTransformer"):
        convert(host.model, layers=[1], strict=False)


def test_keys_that_are_no_tokens_are_keys():
    host = hosts.spread(nn.MultiheadAttention(16, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True))
    x, model = torch.randn(3, 7, 16), convert(host)
    seen = watched(model)
    model(x, x, x)
    torch.testing.assert_close(host.out_proj(seen[0].mean.transpose(1, 2).flatten(-2)), host(x, x, x)[0])
    assert seen[0].bracket.C.shape == (3, 2, 7, 9)
    assert (seen[0].variance > 0).all()


@pytest.mark.parametrize("shape", ["windows", "folded", "packed", "one key head"])
def test_heads_are_found_where_a_host_has_them(shape):
    """Before windows, folded into the batch, or side by side as the queries of one new token; masks with them."""
    q, k, v = torch.randn(3, 2, 4, 5, 8).unbind(0)
    mask = torch.rand(2, 4, 5, 5) < 0.5
    mask[..., 0] = True
    heads = ConvertedHeads(4, amplitude=1.0)
    heads.sampling = "marginal"

    def attend(q, k, v, mask):
        torch.manual_seed(0)
        call = functools.partial(nn.functional.scaled_dot_product_attention, q, k, v, mask)
        return _Intercept(heads, True)._attend(HostAttention(call, q, k, mask))

    if shape == "windows":
        moved = attend(*(x[:, :, None] for x in (q, k, v, mask)))[:, :, 0]
    elif shape == "folded":
        moved = attend(*(x.flatten(0, 1) for x in (q, k, v, mask))).unflatten(0, (2, 4))
    else:  # four heads of queries, two of keys or one
        n = {"packed": 2, "one key head": 1}[shape]
        q, mask, k, v = q[..., :1, :], mask[..., :1, :], k[:, :n], v[:, :n]
        moved = attend(q.reshape(2, n, -1, 8), k, v, mask.reshape(2, n, -1, 5)).unflatten(2, (-1, 1)).flatten(1, 2)
        k, v = k.repeat_interleave(4 // n, 1), v.repeat_interleave(4 // n, 1)
    torch.testing.assert_close(moved, attend(q, k, v, mask))


def test_wrong_numbers_of_heads_are_named():
    model = convert(hosts.custom().model)
    heads_of(model)[0].num_heads = 3
    with pytest.raises(ValueError, match=r"1: expected queries of 3 heads, got shape \(3, 2, 7, 8\)"):
        draw(hosts.custom(), model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gp"}, "method: expected one of"),
        ({"layers": "first"}, "layers: expected 'last', 'all' or indices"),
        ({"layers": "lats"}, "got 'lats'; did you mean 'last'"),
        (
            {"layers": [3]},
            "layers: expected indices of the model's 3 attention layers, 0 to 2 or -1 for the last, got ",
        ),
        ({"layers": 1}, r"layers: expected 'last', 'all' or a list of indices, got 1: \[1\]"),
        ({"layers": [-4]}, "layers: expected indices"),
        ({"layers": []}, "layers: expected indices"),
        ({"amplitude": 0.0}, "amplitude: expected a number above"),
        ({"num_inducing": 3}, "num_inducing: expected None for 'cgp'"),
        ({"method": "sparse_cgp"}, "inputs: expected a batch"),
        ({"method": "sparse_cgp", "num_inducing": 0}, "num_inducing: expected None for 'cgp', at least 1"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        convert(hosts.timm_vit().model, **options)


def test_attention_of_some_tokens_is_refused():
    """Longformer's global queries attend by softmax, its windows do not: they were without a posterior, in silence."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.LongformerConfig(vocab_size=40, attention_window=4, max_position_embeddings=64, **sizes)
    model = convert(transformers.LongformerForSequenceClassification(config).eval(), amplitude=0.5)
    inputs = {"input_ids": torch.randint(3, 40, (2, 8)), "attention_mask": torch.ones(2, 8, dtype=torch.int64)}
    marked = {**inputs, "global_attention_mask": torch.eye(8, dtype=torch.int64)[[0, 0]]}
    with pytest.raises(ValueError, match="expected softmax attention of every token, got it of 2 of 16"):
        predict(model, marked, 2)
