"""Operations of corruptions against other libraries and slow loops."""

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.filters import Draws, clouds, plasma, resampled, streaked

IMAGES = torch.rand(4, 3, 12, 14, generator=torch.Generator().manual_seed(0))


def test_streaks_equal_a_loop():
    angles = torch.tensor([0.0, 31.0, -44.0, -90.0])
    blurred = streaked(IMAGES, 3, 1.5, angles)
    weights = [math.exp(-(step**2) / (2 * 1.5**2)) for step in range(7)]
    for image, angle, result in zip(IMAGES, angles.deg2rad().tolist(), blurred, strict=True):
        for row, column in ((0, 0), (5, 6), (11, 13), (10, 2)):
            expected = torch.zeros(3)
            for step, weight in enumerate(weights):
                there = round(row + step * math.sin(angle)), round(column + step * math.cos(angle))
                inside = min(max(there[0], 0), 11), min(max(there[1], 0), 13)
                expected += weight / sum(weights) * image[:, inside[0], inside[1]]
            torch.testing.assert_close(result[:, row, column], expected, atol=1e-6, rtol=1e-5)


def test_resampling_equals_scipy():
    offsets = 6 * torch.rand(4, 12, 14, 2) - 3
    result = resampled(IMAGES, offsets)
    rows, columns = np.mgrid[:12, :14]
    for image, offset, changed in zip(IMAGES.double().numpy(), offsets.double().numpy(), result, strict=True):
        places = [rows + offset[..., 1], columns + offset[..., 0]]
        expected = [scipy.ndimage.map_coordinates(channel, places, order=1, mode="mirror") for channel in image]
        np.testing.assert_allclose(changed.numpy(), np.stack(expected), atol=1e-5)


def slow_plasma(noise, decay):
    """The diamond-square algorithm, point by point."""
    size = len(noise)
    clouds = np.zeros((size, size))
    step, amplitude = size, 1.0
    while step > 1:
        half = step // 2
        for row in range(half, size, step):
            for column in range(half, size, step):
                corners = [(row + a, column + b) for a in (-half, half) for b in (-half, half)]
                clouds[row, column] = sum(clouds[r % size, c % size] for r, c in corners) / 4
                clouds[row, column] += amplitude * noise[row, column]
        for row in range(0, size, half):
            for column in range((row + half) % step, size, step):
                sides = [(row - half, column), (row + half, column), (row, column - half), (row, column + half)]
                clouds[row, column] = sum(clouds[r % size, c % size] for r, c in sides) / 4
                clouds[row, column] += amplitude * noise[row, column]
        step, amplitude = half, amplitude / decay**2
    return (clouds - clouds.min()) / (clouds.max() - clouds.min())


@pytest.mark.parametrize("size", [2, 8, 16])
@pytest.mark.parametrize("decay", [1.4, 3.0])
def test_plasma_equals_a_loop(size, decay):
    noise = 2 * torch.rand(3, size, size, dtype=torch.float64) - 1
    expected = np.stack([slow_plasma(image.numpy(), decay) for image in noise])
    np.testing.assert_allclose(plasma(noise, decay).numpy(), expected, atol=1e-12)


@given(height=st.integers(1, 70), width=st.integers(1, 70))
def test_clouds_have_the_size_of_the_images(height, width):
    result = clouds(Draws("clouds", ids=[0, 1]), torch.zeros(2, 3, height, width), 2.0)
    assert result.shape == (2, 1, height, width)
    assert result.amin() >= 0
    assert result.amax() <= 1
