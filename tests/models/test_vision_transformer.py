"""The vision transformer against library functions, on tiny sizes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cgp import CGPAttention, SoftmaxAttention
from cgp.networks.model.blocks import draws, sampling
from models import CGPT_CIFAR, DIGITS, KEP_SVGP_CIFAR, VisionTransformer


def build(attention=SoftmaxAttention, **changes) -> VisionTransformer:
    """A tiny model."""
    sizes = DIGITS | {"embed_dim": 16, "mlp_dim": 24, "num_classes": 10, "dropout": 0.0}
    return VisionTransformer(**(sizes | {"attention": attention} | changes))


def by_hand(model: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    """The logits from the weights, with PyTorch's encoder layer."""
    embedding, patch = model.embedding, model.embedding.patch_size
    x = F.linear(F.unfold(images, patch, stride=patch).mT, embedding.projection.weight, embedding.projection.bias)
    x = x + embedding.positions
    for source in model.layers:
        layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True).to(x)
        parts = (layer.self_attn.out_proj, source.attention.out_proj), (layer.norm1, source.attention_norm)
        parts += (layer.norm2, source.mlp_norm), (layer.linear1, source.mlp[0]), (layer.linear2, source.mlp[3])
        for theirs, given in parts:
            theirs.load_state_dict(given.state_dict())
        with torch.no_grad():
            layer.self_attn.in_proj_weight.copy_(source.attention.in_proj.weight)
            layer.self_attn.in_proj_bias.copy_(source.attention.in_proj.bias)
        x = layer(x)
    x = F.layer_norm(x, x.shape[-1:], model.norm.weight, model.norm.bias)
    score = getattr(model.pooling, "score", None)
    x = x.mean(1) if score is None else torch.einsum("bno,bnd->bd", torch.softmax(score(x), 1), x)
    return F.linear(x, model.head.weight, model.head.bias)


@pytest.mark.parametrize(("pooling", "channels"), [("mean", 1), ("sequence", 3)])
def test_equals_the_model_by_hand(pooling, channels):
    model = build(pooling=pooling, channels=channels).double()
    images = torch.rand(5, channels, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(model(images), by_hand(model, images))


@pytest.mark.parametrize("sizes", [CGPT_CIFAR, KEP_SVGP_CIFAR])
def test_named_sizes_give_64_tokens(sizes):
    model = VisionTransformer(**sizes, num_classes=10, attention=SoftmaxAttention)
    assert model.embedding.num_tokens == 64
    assert len(model.layers) == sizes["depth"]


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_any_leading_dimensions(batch):
    model, images = build(), torch.rand(*batch, 1, 8, 8)
    expected = torch.stack([model(image) for image in images.reshape(-1, 1, 8, 8)]).reshape(*batch, 10)
    torch.testing.assert_close(model(images), expected, rtol=1e-5, atol=1e-6)


def test_carries_the_draws_of_a_layer_on():
    model = build([CGPAttention, SoftmaxAttention])
    with sampling(model, "marginal"), draws(model, 3):
        logits = model(torch.rand(4, 1, 8, 8))
    assert logits.shape == (3, 4, 10)
    assert (logits[0] - logits[1]).abs().min() > 0


def test_dropout_acts_in_training_only():
    model, images = build(dropout=0.5), torch.rand(2, 1, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


class Transposed(SoftmaxAttention):
    """Returns tokens of the wrong shape."""

    def forward(self, x):
        return super().forward(x).mT


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(patch_size=3), "patch_size: expected a divisor of image_size 8, got 3"),
        (lambda: build(pooling="max"), "pooling: expected 'mean' or 'sequence', got 'max'"),
        (lambda: build([SoftmaxAttention] * 3), "one for each of 2 layers, got 3"),
        (lambda: build(lambda embed_dim, num_heads: None), "attention: expected a factory .* returned NoneType"),
        (lambda: build()(torch.rand(2, 3, 8, 8)), r"images: expected shape \(\*batch, 1, 8, 8\), got"),
        (lambda: build(Transposed, embed_dim=20)(torch.rand(2, 1, 8, 8)), r"an output of shape \(2, 16, 20\)"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
