"""Images that fit a model, and their statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.data.images import fitted, pixel_statistics


@given(
    count=st.integers(0, 3),
    channels=st.sampled_from([1, 3]),
    sides=st.tuples(st.integers(3, 40), st.integers(3, 40)),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(2, 24), st.integers(2, 24)),
)
def test_any_image_fits(count, channels, sides, shape):
    images = torch.full((count, channels, *sides), 77, dtype=torch.uint8)
    result = fitted(images, shape)
    assert result.shape == (count, *shape)
    assert result.dtype == torch.uint8
    assert result.unique().tolist() in ([], [77])


def test_what_fits_is_left_alone():
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    assert fitted(images, (3, 8, 8)) is images


def test_the_longer_side_is_cropped_evenly():
    images = torch.zeros(1, 1, 4, 8, dtype=torch.uint8)
    images[..., 2:6] = 200
    assert (fitted(images, (1, 4, 4)) == 200).all()


def test_resizing_equals_pillow():
    images = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    expected = Image.fromarray(images[0].permute(1, 2, 0).numpy()).resize((32, 32), Image.Resampling.BILINEAR)
    difference = fitted(images, (3, 32, 32))[0].permute(1, 2, 0).int() - torch.from_numpy(np.array(expected)).int()
    assert difference.abs().amax() <= 1


def test_grey_equals_pillow():
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    expected = np.array(Image.fromarray(images[0].permute(1, 2, 0).numpy()).convert("L"))
    assert np.abs(fitted(images, (1, 8, 8))[0, 0].int().numpy() - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_equal_numpy(channels):
    images = torch.randint(0, 256, (7, channels, 5, 6), dtype=torch.uint8)
    mean, deviation = pixel_statistics(images)
    values = images.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(mean, values.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(deviation, values.std((0, 2, 3)), rtol=1e-12)
