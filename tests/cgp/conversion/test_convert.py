"""Converted models against the originals, family by family, and what cannot be converted."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cgp import (
    CategoricalLikelihood,
    CGPAttention,
    Objective,
    SoftmaxAttention,
    SparseCGPAttention,
    describe,
    predict,
)
from cgp.attention import Attention, KernelAttention
from cgp.conversion import Adapter, ConvertedAttention, Projections, convert, register_adapter, registry
from cgp.conversion.registry import attention_sites
from cgp.model.blocks import attention_blocks, sampling
from cgp.model.inputs import call_model
from tests.cgp.conversion import hosts
from tests.cgp.conversion.hosts import HOSTS, Host


def run(host: Host, model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return host.output(call_model(model, host.inputs))


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("attention", ["cgp", "scgp"])
@pytest.mark.parametrize("make", HOSTS)
def test_in_mean_mode_a_converted_model_predicts_as_the_original(make, attention, layers):
    host = make()
    expected = run(host, host.model)
    converted = convert(host.model, attention, layers)
    assert (run(host, converted) - expected).abs().max() < 1e-5
    assert len(attention_blocks(converted)) == (len(attention_sites(host.model)) if layers == "all" else 1)
    assert not attention_blocks(host.model)  # a copy was converted


@pytest.mark.parametrize("attention", ["cgp", "scgp"])
@pytest.mark.parametrize("make", HOSTS)
def test_draws_vary_around_the_original(make, attention):
    host = make()
    expected, converted = run(host, host.model), convert(host.model, attention, amplitude=0.3)
    with sampling(converted, "marginal"):
        first, second = run(host, converted), run(host, converted)
    assert torch.isfinite(first).all()
    assert not torch.allclose(first, second, atol=1e-4)
    assert not torch.allclose(first, expected, atol=1e-4)


@pytest.mark.parametrize("attention", ["sgpa", "kep_svgp", lambda d, h: CGPAttention(d, h, coupling="latent")])
@pytest.mark.parametrize("make", [hosts.torchvision_vit, hosts.transformers_bert, hosts.torch_encoder])
def test_methods_with_means_of_their_own_run_and_train(make, attention):
    host = make()
    converted = convert(host.model, attention).train()
    host.output(call_model(converted, host.inputs)).sum().backward()
    block = attention_blocks(converted)[0]
    assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)
    assert block.in_proj.weight.grad.any()


def test_projections_are_the_hosts_own():
    host = hosts.transformers_bert().model
    source = host.bert.encoder.layer[-1].attention.self
    block = attention_blocks(convert(host, "cgp"))[0]
    query, key, value = block.in_proj.weight.chunk(3)
    for mine, linear in ((query, source.query), (key, source.key), (value, source.value)):
        assert torch.equal(mine, linear.weight)
    vit = hosts.timm_vit().model
    converted = convert(vit, "cgp", copy=False)
    assert converted is vit
    assert isinstance(converted.blocks[-1].attn, ConvertedAttention)


def test_frozen_projections_stay_frozen():
    host = hosts.timm_vit().model.requires_grad_(False)
    block = attention_blocks(convert(host, "scgp"))[0]
    assert not block.in_proj.weight.requires_grad
    assert not block.out_proj.weight.requires_grad
    assert block.softmax.log_amplitude.requires_grad


@pytest.mark.parametrize("make", [hosts.transformers_bert, hosts.transformers_bert_eager, hosts.transformers_roberta])
def test_what_padded_text_holds_does_not_matter(make):
    host = make()
    converted = convert(host.model, "cgp", "all", amplitude=0.3)
    ids = host.inputs["input_ids"].clone()
    ids[host.inputs["attention_mask"] == 0] = 5
    changed = {**host.inputs, "input_ids": ids}
    one, other = (predict(converted, inputs, 4, seed=1) for inputs in (host.inputs, changed))
    real = host.inputs["attention_mask"].bool()
    for name, variance in one.token_variance.items():
        torch.testing.assert_close(variance, other.token_variance[name], rtol=1e-3, atol=1e-6)
        assert not variance.transpose(-1, -2)[~real].any()
        assert (variance.transpose(-1, -2)[real] > 0).all()
    # Padding moves the dimension along which noise is drawn in no way: the draws are the same.
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=1e-3, atol=1e-4)


def test_outputs_at_padded_tokens_are_the_hosts_too():
    host = hosts.transformers_bert()
    inputs, output = host.inputs, lambda out: out.last_hidden_state
    model = host.model.bert
    with torch.no_grad():
        expected, got = (output(call_model(m, inputs)) for m in (model, convert(model, "cgp", "all")))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_flash_masks_of_two_dimensions_are_padding():
    host = hosts.transformers_bert()
    module = convert(host.model, "cgp").bert.encoder.layer[-1].attention.self
    x = torch.randn(3, 7, 16)
    real = hosts.padding(7, 7, 4, 2)
    pairs = real[:, None, None, :].expand(3, 1, 7, 7)
    torch.testing.assert_close(module(x, real.long())[0], module(x, pairs)[0])
    assert not torch.allclose(module(x, None)[0][1:], module(x, pairs)[0][1:])


def test_causal_decoders_keep_their_order():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, is_decoder=True, use_cache=False,
    )  # fmt: skip
    model = hosts.spread(transformers.BertLMHeadModel(config))
    converted = convert(model, "scgp", "all", statistics="learned")
    ids = torch.randint(3, 40, (2, 6))
    for inputs in ({"input_ids": ids}, {"input_ids": ids, "attention_mask": hosts.padding(6, 6, 4).long()}):
        with torch.no_grad():
            torch.testing.assert_close(converted(**inputs).logits, model(**inputs).logits, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"layer.0.attention.self: is_causal"):
        convert(model, "scgp", "all", statistics="sequence")(input_ids=ids)
    with pytest.raises(ValueError, match=r"layer.0.attention.self: past_key_values"):
        converted(input_ids=ids, use_cache=True)


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoders_take_causal_masks(batch_first):
    host = hosts.torch_encoder(batch_first=batch_first)
    converted = convert(host.model, "cgp", "all", statistics="learned")
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    x = torch.randn(3, 7, 16) if batch_first else torch.randn(7, 3, 16)
    with torch.no_grad():
        torch.testing.assert_close(converted(x, mask=mask), host.model(x, mask=mask), atol=1e-5, rtol=0)


def test_torch_decoders_attend_across():
    layer = hosts.spread(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True))
    converted = convert(layer, "scgp", "all")
    x, memory, pad = torch.randn(3, 4, 16), torch.randn(3, 7, 16), ~hosts.padding(7, 7, 4, 2)
    with torch.no_grad():
        expected = layer(x, memory, memory_key_padding_mask=pad)
        torch.testing.assert_close(converted(x, memory, memory_key_padding_mask=pad), expected, atol=1e-5, rtol=0)


def test_multihead_attention_takes_every_shape():
    host = hosts.spread(nn.MultiheadAttention(16, 2))
    converted = convert(host, "cgp")
    x, y = torch.randn(5, 3, 16), torch.randn(6, 3, 16)
    pairs = torch.zeros(3, 1, 5, 5, dtype=torch.bool)
    pairs[1, ..., 3:] = True
    with torch.no_grad():
        for args, options in (
            ((x, x, x), {}),
            ((x, y, y), {}),
            ((x[:, 0], x[:, 0], x[:, 0]), {}),
            ((x, x, x), {"attn_mask": pairs.expand(3, 2, 5, 5).flatten(0, 1)}),
        ):
            expected = host(*args, **options, need_weights=False)[0]
            torch.testing.assert_close(converted(*args, **options)[0], expected, atol=1e-5, rtol=0)


def test_timm_masks_that_are_padding_are_read_as_padding():
    host = hosts.timm_vit()
    converted = convert(host.model, "cgp", "all", statistics="learned")
    keep = torch.ones(1, 1, 1, 17, dtype=torch.bool)
    keep[..., 12:] = False
    with torch.no_grad():
        for mask in (keep.expand(3, 1, 17, 17), torch.zeros(17, 17).masked_fill(~keep[0, 0], -torch.inf)):
            x = torch.randn(3, 17, 16)
            expected = host.model.blocks[0](x, attn_mask=mask)
            torch.testing.assert_close(converted.blocks[0](x, attn_mask=mask), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            converted.blocks[0](x, is_causal=True), host.model.blocks[0](x, is_causal=True), atol=1e-5, rtol=0
        )


class Reference(nn.Module):
    """As the reference models: blocks of this package."""

    def __init__(self, attention) -> None:
        super().__init__()
        self.layers = nn.ModuleList(attention(16, 2) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(-2))


@pytest.mark.parametrize("attention", ["cgp", "scgp"])
def test_reference_models_keep_softmax(attention):
    model, x = Reference(SoftmaxAttention).eval(), torch.randn(3, 5, 16)
    converted = convert(model, attention, "all")
    torch.testing.assert_close(converted(x), model(x), atol=1e-5, rtol=0)
    assert all(isinstance(layer, CGPAttention | SparseCGPAttention) for layer in converted.layers)


@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_reference_models_keep_kernel_attention(kernel, symmetric):
    model = Reference(lambda d, h: KernelAttention(d, h, kernel=kernel, symmetric=symmetric)).eval()
    x = 0.1 * torch.randn(3, 5, 16)  # not normalised: the exponential kernel grows from layer to layer
    torch.testing.assert_close(convert(model, "cgp", "all")(x), model(x), atol=1e-5, rtol=0)


def test_kernel_means_start_at_the_hosts_scores():
    """A squared exponential of q s^(-1/4), k s^(-1/4) has the host's dot products."""
    host = hosts.torch_attention().model
    block = attention_blocks(convert(host, "cgp", mean="kernel"))[0]
    query, key, _ = block.in_proj.weight.chunk(3)
    host_query, host_key, _ = host.in_proj_weight.chunk(3)
    torch.testing.assert_close(query.T @ key, host_query.T @ host_key / block.head_dim**0.5)


class Scaled(nn.Module):
    """Somebody's own attention, with a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, tokens, *, mask=None):
        q, k, v = (m(tokens).unflatten(-1, (2, 8)).transpose(-2, -3) for m in self.maps[:3])
        out = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.1)
        return {"out": self.maps[3](out.transpose(-2, -3).flatten(-2))}


class ConvertedScaled(ConvertedAttention):
    def forward(self, tokens, *, mask=None):
        return {"out": self.attend(tokens)}


class ScaledAdapter(Adapter):
    hosts = (Scaled,)

    def read(self, host):
        names = ("query", "key", "value")
        weights = {n: m.weight for n, m in zip(names, host.maps, strict=False)}
        biases = {n: m.bias for n, m in zip(names, host.maps, strict=False)}
        return Projections(2, weights, biases, host.maps[3], scale=0.1)

    def wrap(self, host, block):
        return ConvertedScaled(block)


@pytest.fixture
def own_family(monkeypatch):
    monkeypatch.setattr(registry, "_ADAPTERS", list(registry._ADAPTERS))
    register_adapter(ScaledAdapter())


@pytest.mark.parametrize("options", [{}, {"statistics": "learned"}])
def test_a_family_of_ones_own(own_family, options):
    model, x = nn.Sequential(Scaled()).eval(), torch.randn(3, 5, 16)
    converted = convert(model, "cgp", **options)
    torch.testing.assert_close(converted(x)["out"], model(x)["out"], atol=1e-5, rtol=0)
    assert "ConvertedScaled" not in describe(model)


def test_only_adapters_are_registered():
    with pytest.raises(ValueError, match="adapter: expected an instance"):
        register_adapter(ScaledAdapter)


def test_subclasses_are_not_taken_for_their_parents():
    class Other(nn.MultiheadAttention):
        pass

    with pytest.raises(ValueError, match=r"got none in Sequential; not supported: 0 \(.*Other"):
        convert(nn.Sequential(Other(16, 2)))


def test_shared_layers_stay_shared():
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    model = nn.ModuleDict({"a": nn.ModuleList([layer]), "b": nn.ModuleList([layer])})
    converted = convert(model, "cgp", "all")
    assert converted["a"][0] is converted["b"][0]
    assert isinstance(converted["a"][0], ConvertedAttention)


@pytest.mark.parametrize(
    ("layers", "expected"), [("last", [2]), ("all", [0, 1, 2]), ([0], [0]), ([-1, 0], [0, 2]), ((1, 1), [1])]
)
def test_layers(layers, expected):
    converted = convert(hosts.timm_vit().model, "cgp", layers)
    is_converted = [site.adapter is None for site in attention_sites(converted)]
    assert [i for i, done in enumerate(is_converted) if done] == expected


def test_layers_can_be_converted_one_after_another():
    host = hosts.timm_vit()
    converted = convert(convert(host.model, "cgp", [0]), "scgp", [2])
    assert [type(b) for b in attention_blocks(converted)] == [CGPAttention, SparseCGPAttention]
    torch.testing.assert_close(run(host, converted), run(host, host.model), atol=1e-5, rtol=0)


def test_mode_precision_and_device_are_the_hosts():
    model = hosts.timm_vit().model.double().train()
    block = attention_blocks(convert(model, "scgp"))[0]
    assert block.training
    assert {p.dtype for p in block.parameters()} == {torch.float64}


@pytest.mark.parametrize("make", [hosts.timm_qk_norm, hosts.timm_eva_separate, hosts.torchvision_vit])
def test_bfloat16_models_run(make):
    host = make()
    model = convert(host.model, "scgp", "all").bfloat16()
    out = call_model(model, host.inputs.bfloat16())
    assert out.dtype == torch.bfloat16
    assert (out.float() - run(host, host.model)).abs().mean() < 0.1 * run(host, host.model).std()


def test_converted_models_train_by_every_parameter():
    host = hosts.timm_eva()
    model = convert(host.model, "scgp", "all").train()
    call_model(model, host.inputs).square().sum().backward()
    without = [n for n, p in model.named_parameters() if "block" in n and (p.grad is None or not p.grad.any())]
    assert not without


@pytest.mark.parametrize("attention", ["cgp", "scgp"])
def test_converted_models_are_finetuned_through_the_bound(attention):
    host, labels = hosts.torchvision_vit(), torch.tensor([0, 1, 2])
    model = convert(host.model, attention, "all").train()
    objective = Objective(model, CategoricalLikelihood(5), num_data=3)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        losses.append(objective(host.inputs, labels))
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("make", [hosts.transformers_bert_eager, hosts.transformers_vit])
def test_attention_weights_are_those_of_the_layers_that_have_some(make, layers):
    host = make()
    host.model.set_attn_implementation("eager")
    with torch.no_grad():
        out = call_model(convert(host.model, "cgp", layers), {**host.inputs, "output_attentions": True})
    assert len(out.attentions) == (2 if layers == "last" else 0)


@pytest.mark.parametrize("make", [hosts.torchvision_vit, hosts.timm_eva, hosts.transformers_vit])
def test_converted_models_compile_without_a_graph_break(make):
    torch._dynamo.reset()
    host = make()
    model = convert(host.model, "scgp", "all")
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(run(host, compiled), run(host, model))


def test_deepcopies_and_state_dicts():
    host = hosts.timm_vit()
    model = convert(host.model, "scgp", "all")
    twin = copy.deepcopy(model)
    other = convert(hosts.timm_vit().model, "scgp", "all")
    other.load_state_dict(model.state_dict())
    for candidate in (twin, other):
        assert torch.equal(run(host, candidate), run(host, model))


# What cannot be converted


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(2, 2), "got none in Linear$"),
        (
            lambda: pytest.importorskip("timm").create_model("swin_tiny_patch4_window7_224"),
            "WindowAttention, with a rel",
        ),
        (lambda: pytest.importorskip("timm").create_model("beit_base_patch16_224", depth=1), r"blocks.0.attn \(timm"),
        (lambda: nn.MultiheadAttention(16, 2, kdim=8), "MultiheadAttention: kdim, vdim"),
        (lambda: nn.MultiheadAttention(16, 2, add_zero_attn=True), "MultiheadAttention: add_bias_kv, add_zero"),
        (lambda: nn.Sequential(nn.MultiheadAttention(16, 2, add_bias_kv=True)), "^0: add_bias_kv"),
    ],
)
def test_models_without_attention_that_could_be_converted_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        convert(make())


def test_odd_head_sizes_are_refused():
    layers = pytest.importorskip("timm").layers
    with pytest.raises(ValueError, match="0: projections: expected heads of the width divided by their number"):
        convert(nn.Sequential(layers.Attention(16, 2, attn_head_dim=6)))


def test_gated_and_grouped_attention_are_refused():
    layers = pytest.importorskip("timm").layers
    with pytest.raises(ValueError, match="0: gate"):
        convert(nn.Sequential(layers.Attention(16, 2, gated=True)))
    grouped = layers.AttentionRope(16, 4, num_kv_heads=2, qkv_fused=False)
    with pytest.raises(ValueError, match="0: num_kv_heads"):
        convert(nn.Sequential(grouped))


def test_methods_that_know_no_rotations_are_refused():
    with pytest.raises(ValueError, match=r"blocks.2.attn: attention: SGPAttention is not defined for a host"):
        convert(hosts.timm_eva().model, "sgpa")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "gp"}, "attention: expected a factory or one of"),
        ({"attention": lambda d, h: nn.Linear(d, d)}, "expected a factory of cgp.attention.Attention"),
        ({"layers": "first"}, "layers: expected 'last', 'all' or indices"),
        ({"layers": [3]}, "layers: expected indices of the model's 3"),
        ({"layers": [-4]}, "layers: expected indices"),
        ({"layers": []}, "layers: expected indices"),
        ({"statistics": "none"}, "blocks.2.attn: statistics"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        convert(hosts.timm_vit().model, **options)


def test_converted_layers_are_not_converted_again():
    model = convert(hosts.timm_vit().model, "cgp")
    with pytest.raises(ValueError, match=r"blocks.2.attn is converted already"):
        convert(model, "scgp")
    with pytest.raises(ValueError, match="the model is converted already"):
        convert(CGPAttention(8, 2))


@pytest.mark.parametrize(
    ("make", "call", "path"),
    [
        (hosts.timm_vit, lambda m, mask: m.blocks[2](torch.randn(1, 5, 16), attn_mask=~mask), "blocks.2.attn"),
        (
            hosts.torch_encoder,
            lambda m, mask: m(torch.randn(1, 5, 16), mask=mask),
            "layers.2.self_attn",
        ),
        (
            hosts.transformers_bert,
            lambda m, mask: m.bert.encoder.layer[2](torch.randn(1, 5, 16), ~mask[None, None]),
            "bert.encoder.layer.2.attention.self",
        ),
    ],
)
def test_masks_that_are_neither_padding_nor_causal_are_refused(make, call, path):
    model = convert(make().model, "cgp")
    with pytest.raises(ValueError, match=f"^{path}: attention mask: expected a mask that is padding, causal"):
        call(model, torch.eye(5, dtype=torch.bool))


def test_the_hosts_dropout_of_weights_is_left_out():
    host = nn.MultiheadAttention(16, 2, dropout=0.9, batch_first=True)
    x = torch.randn(3, 5, 16)
    model = convert(host, "cgp").train()
    with sampling(model, "mean"):
        torch.testing.assert_close(model(x, x, x)[0], host.eval()(x, x, x)[0], atol=1e-5, rtol=0)


def test_the_seam_for_tokens():
    """What the conversion needs of every block: a map between projection and attention, and queries at padding."""
    block, x = SparseCGPAttention(8, 2, mean="softmax").eval(), torch.randn(3, 5, 8)
    doubled = block(x, token_map=lambda tokens: tokens._replace(q=2 * tokens.q))
    with torch.no_grad():
        block.in_proj.weight[:8] *= 2
        block.in_proj.bias[:8] *= 2
    torch.testing.assert_close(doubled, block(x))
    variance = block.token_variance(x, token_map=lambda tokens: tokens._replace(q=0.5 * tokens.q))
    assert not torch.allclose(variance, block.token_variance(x))
    mask = ~hosts.padding(5, 5, 3, 1)
    cleared = block(x, key_padding_mask=mask)
    block.clears_padding = False
    kept = block(x, key_padding_mask=mask)
    torch.testing.assert_close(kept[~mask], cleared[~mask])
    assert not torch.allclose(kept[mask], cleared[mask])
    across = block(x, x, x, key_padding_mask=mask)
    torch.testing.assert_close(kept, across)
    assert isinstance(block, Attention)
