"""Blocks in the place of a transformer's attention."""

import pytest
import torch
from torch import nn

import cgp
from cgp.networks.convert import replace_attention


class Joint(nn.Module):
    """Attention of timm: one map of queries, keys and values."""

    def __init__(self, width=8, heads=2, narrow=False):
        super().__init__()
        self.num_heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        if narrow:
            self.qkv = nn.Linear(width, width)


def encoder():
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)


def test_blocks_keep_the_values_and_the_output_map():
    host = encoder().eval()
    model = replace_attention(host, cgp.SGPAttention, num_inducing=4)
    for layer, old in zip(model.layers, host.layers, strict=True):
        block, attention = layer.self_attn, old.self_attn
        assert isinstance(block, cgp.SGPAttention)
        assert not block.training
        torch.testing.assert_close(block.in_proj.weight[8:], attention.in_proj_weight[16:])
        torch.testing.assert_close(block.in_proj.bias[8:], attention.in_proj_bias[16:])
        torch.testing.assert_close(block.out_proj.weight, attention.out_proj.weight)
        assert layer.linear1.weight is old.linear1.weight
        assert isinstance(attention, nn.MultiheadAttention)


def test_the_result_runs_with_padding_and_learns():
    model = replace_attention(encoder().eval(), dropout=0.1)
    x, padding = torch.randn(3, 5, 8), torch.arange(5) > torch.tensor([[4], [3], [2]])
    with torch.no_grad():
        y = model(x, src_key_padding_mask=padding)
        shorter = model(x[2:, :3])
    torch.testing.assert_close(y[2, :3], shorter[0], rtol=1e-4, atol=1e-5)
    model.train()(x, src_key_padding_mask=padding).square().mean().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "self_attn" in name)


def test_layers_of_one_joint_map_are_replaced_by_their_numbers():
    host = nn.Sequential(Joint(), nn.Identity(), Joint())
    model = replace_attention(host, cgp.CGPAttention, layers="last")
    assert model[0] is not host[0]
    assert isinstance(model[0], Joint)
    block = model[2]
    torch.testing.assert_close(block.in_proj.weight[16:], host[2].qkv.weight[16:])
    assert not block.in_proj.bias[16:].any()
    assert block(torch.zeros(2, 3, 8)).shape == (2, 3, 8)


def test_attention_itself_is_replaced():
    block = replace_attention(nn.MultiheadAttention(8, 2, batch_first=True))
    assert block.training
    y, weights = block(*3 * [torch.zeros(2, 3, 8)], need_weights=True)
    assert (y.shape, weights.shape) == ((2, 3, 8), (2, 3, 3))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "model: expected torch.nn.MultiheadAttention, .* got none in Linear$"),
        (
            nn.Sequential(nn.TransformerEncoderLayer(8, 2)),
            "model: expected 0.self_attn with batch_first=True, .* got batch_first=False; cgp.convert takes it",
        ),
        (
            nn.MultiheadAttention(8, 2, batch_first=True, kdim=4, add_bias_kv=True, add_zero_attn=True),
            "got kdim=4, vdim=8, add_bias_kv=True, add_zero_attn=True; cgp.convert takes it",
        ),
        (
            nn.Sequential(Joint(narrow=True)),
            "0 with as wide heads as tokens, got qkv from 8 to 8 features",
        ),
    ],
)
def test_what_cannot_be_replaced_is_said(model, message):
    with pytest.raises(ValueError, match=message):
        replace_attention(model)


def one_layer(kind):
    """A small model of transformers."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes, vocab_size=8))


def test_attention_that_can_be_converted_is_said_to_be():
    model = one_layer("Bert")
    with pytest.raises(ValueError, match="got none in BertModel; cgp.convert takes it"):
        replace_attention(model)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            "sparse_cgp",
            "block: expected a class of cgp.attention, .*'sparse_cgp'; did you mean cgp.SparseCGPAttention, the class",
        ),
        ("cgp", "got 'cgp'; did you mean cgp.CGPAttention, the class"),
        ("SGPAttention", "got 'SGPAttention'; did you mean cgp.SGPAttention, the class"),
        (None, "got None$"),
        (nn.Linear, "expected a class of cgp.attention, .* got <class 'torch.nn.modules.linear.Linear'>"),
        (cgp.SparseCGPAttention(8, 2), "got a SparseCGPAttention in place of its class"),
        (
            lambda *sizes: nn.Identity(),
            r"expected what returns a block .*, got one that returns Identity\(\)",
        ),
    ],
)
def test_a_block_that_is_no_class_is_refused(block, message):
    with pytest.raises(ValueError, match=message):
        replace_attention(encoder(), block)


@pytest.mark.parametrize("block", [cgp.SoftmaxAttention, cgp.SparseCGPAttention, cgp.KEPSVGPAttention])
def test_dropout_leaves_channels_of_the_heads_out(block):
    attention = block(8, 2, dropout=0.5).train()
    attention.sampling = "mean"
    seen = []
    attention.out_proj.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = torch.randn(4, 9, 8)
    attention(x)
    attention.eval()(x)
    share = (seen[0] == 0.0).double().mean()
    assert 0.35 < share < 0.65
    assert (seen[1] != 0.0).all()


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("block", [cgp.SparseCGPAttention, cgp.SGPAttention, cgp.KernelAttention])
def test_the_parameters_that_blocks_add_are_counted(block):
    host = encoder()
    model = replace_attention(host, block, layers=[1])
    *_, first, second, total = cgp.describe(model).splitlines()
    added = size(model) - size(host)
    assert [int(line.split()[-1].replace(",", "")) for line in (first, second, total)] == [0, added, added]
    assert "as it was" not in second


def test_what_a_block_adds_is_not_known_where_it_replaced_nothing():
    line, total = cgp.describe(nn.Sequential(cgp.SparseCGPAttention(8, 2))).splitlines()[1:]
    assert line.endswith(" –")
    assert total.endswith(" –")


@pytest.mark.parametrize("kind", ["ViT", "Dinov2"])
def test_image_encoders_of_transformers_run_learn_and_say_their_variance(kind):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    torch.manual_seed(0)
    host = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes)).eval()
    layers = "last" if kind == "ViT" else "all"
    model = replace_attention(host, cgp.SparseCGPAttention, layers=layers)
    blocks = [module for module in model.modules() if isinstance(module, cgp.SparseCGPAttention)]
    olds = [module for module in host.modules() if hasattr(module, "v_proj")]
    assert len(blocks) == (1 if layers == "last" else 2)
    torch.testing.assert_close(blocks[-1].out_proj.weight, olds[-1].o_proj.weight)
    width = slice(blocks[-1].processes.index("value") * 8, None)
    torch.testing.assert_close(blocks[-1].in_proj.weight[width][:8], olds[-1].v_proj.weight)
    model.train()(torch.randn(3, 3, 8, 8)).last_hidden_state.square().mean().backward()
    assert all(p.grad is not None for p in blocks[-1].parameters() if p.requires_grad)
    layer = next(module for module in model.modules() if type(module).__name__ == "_Paired")
    with pytest.raises(ValueError, match="attention_mask: expected None, as a block"):
        layer(torch.zeros(1, 5, 8), attention_mask=torch.zeros(1, 1, 5, 5))


def test_decoders_of_transformers_are_refused():
    model = one_layer("Llama")
    with pytest.raises(ValueError, match="model: expected"):
        replace_attention(model)


class Pooled(nn.Module):
    """A host that counts its dimensions from the front, as most do."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = encoder(), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


@pytest.mark.parametrize("batch", [4, 5])
def test_draws_of_hosts_are_made_one_by_one(batch):
    """Also where the batch is as long as the sequence, so that the wrong dimension would be taken without an error."""
    model = replace_attention(Pooled(), cgp.CGPAttention).train()
    x, y = torch.randn(batch, 5, 8), torch.arange(batch) % 3
    objective = cgp.Objective(model, cgp.CategoricalLikelihood(3), num_data=batch, num_samples=8)
    single = cgp.Objective(model, cgp.CategoricalLikelihood(3), num_data=batch)
    with torch.no_grad():
        torch.manual_seed(0)
        together = objective.parts(x, y)["nll"]
        torch.manual_seed(0)
        alone = torch.stack([single.parts(x, y)["nll"] for _ in range(8)])
    torch.testing.assert_close(together, alone.mean())
    assert alone.std() > 0.0
