"""The patches of an image among the tokens."""

import pytest
import torch
from torch import nn

from cgp.networks.predict.prediction import TokenLayout, token_layout
from tests.cgp.networks.convert import hosts


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (hosts.torchvision_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_qk_norm, TokenLayout(3, (4, 4))),
        (hosts.timm_deit, TokenLayout(2, (4, 4))),
        (hosts.transformers_vit, TokenLayout(1, (4, 4))),
        (hosts.transformers_dinov2, TokenLayout(3, (4, 4))),
        (hosts.torch_encoder, TokenLayout(0, None)),
    ],
)
def test_layouts(make, expected):
    assert token_layout(make().model) == expected


def test_sizes_that_are_pairs():
    model = nn.Module()
    model.image_size, model.patch_size = (32, 24), [8, 4]
    assert token_layout(model) == TokenLayout(0, (4, 6))
    model.patch_size = (8, 4, 2)  # of a video
    assert token_layout(model) == TokenLayout(0, None)


def test_patches_lie_row_by_row():
    values = torch.arange(7.0).expand(2, 7)
    assert TokenLayout(1, None).patches(values, (2, 3))[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert TokenLayout(3, (9, 9)).patches(values).tolist() == [[[3, 4], [5, 6]]] * 2
    with pytest.raises(ValueError, match=r"grid: expected 6 patches \(7 tokens, 1 of them before"):
        TokenLayout(1, None).patches(values, (2, 2))
