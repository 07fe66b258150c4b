"""The vision transformer against library functions, on tiny sizes."""

import pytest
import torch
from torch import nn

from models import CGPT_CIFAR, DIGITS, KEP_SVGP_CIFAR, VisionTransformer
from models.patch_embedding import patches
from tests.models.softmax_reference import DrawingAttention, PlainAttention, logits_by_hand

TINY = DIGITS | {"embed_dim": 16, "mlp_dim": 24}


def build(attention=PlainAttention, **changes) -> VisionTransformer:
    """A tiny model with a fixed start."""
    torch.manual_seed(0)
    return VisionTransformer(**(TINY | {"num_classes": 10, "attention": attention} | changes))


@pytest.mark.parametrize("pooling", ["mean", "sequence"])
@pytest.mark.parametrize("channels", [1, 3])
def test_equals_the_model_by_hand(pooling, channels):
    model = build(pooling=pooling, channels=channels).double().eval()
    nn.init.normal_(model.embedding.positions)
    images = torch.rand(5, channels, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(model(images), logits_by_hand(model, images))


@pytest.mark.parametrize("sizes", [CGPT_CIFAR, KEP_SVGP_CIFAR])
def test_named_sizes_give_64_tokens(sizes):
    model = VisionTransformer(**sizes, num_classes=10, attention=PlainAttention).eval()
    assert model.embedding.num_tokens == 64
    assert len(model.layers) == sizes["depth"]
    with torch.no_grad():
        assert model(torch.rand(1, 3, 32, 32)).shape == (1, 10)


def test_patches_are_read_row_by_row():
    image = torch.arange(2 * 4 * 6.0).reshape(2, 4, 6)
    expected = torch.stack([image[:, i : i + 2, j : j + 2].flatten() for i in (0, 2) for j in (0, 2, 4)])
    assert torch.equal(patches(image, 2), expected)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3)])
def test_any_leading_dimensions(batch):
    model = build().eval()
    images = torch.rand(*batch, 1, 8, 8)
    one_by_one = [model(image) for image in images.reshape(-1, 1, 8, 8)]
    expected = torch.stack(one_by_one).reshape(*batch, 10)
    torch.testing.assert_close(model(images), expected, rtol=1e-5, atol=1e-6)


def test_carries_the_draws_of_a_layer_on():
    model = build([DrawingAttention, PlainAttention]).eval()
    logits = model(torch.rand(4, 1, 8, 8))
    assert logits.shape == (3, 4, 10)
    assert (logits[0] - logits[1]).abs().min() > 0


def test_overfits_eight_samples():
    model = build(dropout=0.0)
    images, labels = torch.rand(8, 1, 8, 8), torch.arange(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    assert torch.equal(model(images).argmax(-1), labels)


def test_every_parameter_gets_a_gradient():
    model = build()
    nn.functional.cross_entropy(model(torch.rand(4, 1, 8, 8)), torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_dropout_acts_in_training_only():
    model = build(dropout=0.5)
    images = torch.rand(2, 1, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


class Transposed(PlainAttention):
    """Returns tokens of the wrong shape."""

    def forward(self, x):
        """Swap tokens and channels."""
        return super().forward(x).mT


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="patch_size: expected a divisor of image_size 8, got 3"):
        build(patch_size=3)
    with pytest.raises(ValueError, match="pooling: expected 'mean' or 'sequence', got 'max'"):
        build(pooling="max")
    with pytest.raises(ValueError, match="one for each of 2 layers, got 3"):
        build([PlainAttention] * 3)
    with pytest.raises(ValueError, match="attention: expected a factory .* returned NoneType"):
        build(lambda embed_dim, num_heads: None)
    with pytest.raises(ValueError, match=r"images: expected shape \(\*batch, 1, 8, 8\), got"):
        build()(torch.rand(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"attention: expected an output of shape \(2, 16, 20\)"):
        build(Transposed, embed_dim=20)(torch.rand(2, 1, 8, 8))
