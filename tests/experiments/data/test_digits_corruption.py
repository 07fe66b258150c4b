"""Shifted inputs."""

import numpy as np
import pytest
import scipy.ndimage
import torch

from experiments.data import DIGITS_CORRUPTIONS, corrupted_digits, digits_splits

IMAGES = digits_splits(seed=0).test.images[:40]


@pytest.mark.parametrize("kind", DIGITS_CORRUPTIONS)
def test_strength_zero_changes_nothing(kind):
    assert torch.equal(corrupted_digits(IMAGES, kind, 0, seed=0), IMAGES)


@pytest.mark.parametrize("kind", DIGITS_CORRUPTIONS)
def test_same_seed_same_images_whatever_was_drawn_before(kind):
    first = corrupted_digits(IMAGES, kind, 3, seed=5)
    torch.rand(17)
    assert torch.equal(corrupted_digits(IMAGES, kind, 3, seed=5), first)


@pytest.mark.parametrize("kind", ["rotation", "noise", "occlusion"])
def test_other_seed_other_images(kind):
    assert not torch.equal(corrupted_digits(IMAGES, kind, 3, seed=5), corrupted_digits(IMAGES, kind, 3, seed=6))


@pytest.mark.parametrize("kind", DIGITS_CORRUPTIONS)
def test_stronger_is_farther(kind):
    distances = [
        (corrupted_digits(IMAGES, kind, strength, seed=0) - IMAGES).square().mean().item() for strength in range(6)
    ]
    assert distances == sorted(distances)
    assert len(set(distances)) == 6


@pytest.mark.parametrize("kind", DIGITS_CORRUPTIONS)
@pytest.mark.parametrize("strength", range(1, 6))
def test_stays_an_image(kind, strength):
    images = corrupted_digits(IMAGES, kind, strength, seed=0)
    assert images.shape == IMAGES.shape
    assert images.dtype == torch.float32
    assert images.amin() >= 0
    assert images.amax() <= 1


def test_blur_equals_scipy():
    blurred = corrupted_digits(IMAGES, "blur", 3, seed=0)[:, 0].double().numpy()
    expected = [
        scipy.ndimage.gaussian_filter(image, 0.9, mode="mirror", radius=3) for image in IMAGES[:, 0].double().numpy()
    ]
    np.testing.assert_allclose(blurred, np.stack(expected), atol=1e-6)


def test_rotation_keeps_the_middle_and_turns_both_ways():
    ring = torch.zeros(64, 1, 9, 9)
    ring[:, :, 4, 4] = 1.0
    ring[:, :, 4, 8] = 1.0
    turned = corrupted_digits(ring, "rotation", 3, seed=0)
    torch.testing.assert_close(turned[:, 0, 4, 4], torch.ones(64))
    right = turned[:, 0, :4].sum((-2, -1)) - turned[:, 0, 5:].sum((-2, -1))
    assert (right > 0).any()
    assert (right < 0).any()


@pytest.mark.parametrize("strength", range(1, 6))
def test_occlusion_covers_one_square(strength):
    covered = corrupted_digits(torch.zeros(30, 1, 8, 8), "occlusion", strength, seed=0)[:, 0] == 0.5
    assert (covered.sum((-2, -1)) == strength**2).all()
    assert (covered.any(-1).sum(-1) == strength).all()


def test_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="kind: expected one of rotation, .* got 'fog'"):
        corrupted_digits(IMAGES, "fog", 1, seed=0)
    with pytest.raises(ValueError, match="strength: expected 0 to 5, got 6"):
        corrupted_digits(IMAGES, "blur", 6, seed=0)
