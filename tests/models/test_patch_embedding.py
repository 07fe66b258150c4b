"""Patches of images and their embedding, against a convolution."""

import pytest
import torch
from torch.nn import functional as F

from models.patch_embedding import PatchEmbedding, patches


def test_patches_are_those_of_unfold_row_by_row():
    images = torch.randn(2, 3, 6, 4)
    torch.testing.assert_close(patches(images, 2), F.unfold(images, 2, stride=2).mT)


def test_leading_dimensions_are_kept():
    images = torch.randn(5, 2, 3, 4, 4)
    torch.testing.assert_close(patches(images, 2)[4, 1], patches(images[4, 1], 2))


def test_the_embedding_is_a_strided_convolution_plus_positions():
    embedding, images = PatchEmbedding(image_size=4, patch_size=2, channels=3, embed_dim=5), torch.randn(2, 3, 4, 4)
    kernel = embedding.projection.weight.reshape(5, 3, 2, 2)
    expected = F.conv2d(images, kernel, embedding.projection.bias, stride=2).flatten(2).mT + embedding.positions
    torch.testing.assert_close(embedding(images), expected)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="patch_size: expected a divisor of image_size 5, got 2"):
        PatchEmbedding(image_size=5, patch_size=2, channels=1, embed_dim=4)
    with pytest.raises(ValueError, match=r"images: expected shape \(\*batch, 1, 4, 4\), got \(2, 1, 4, 6\)"):
        PatchEmbedding(image_size=4, patch_size=2, channels=1, embed_dim=4)(torch.zeros(2, 1, 4, 6))
