"""The digits: their parts, their corruptions, and OOD images."""

import numpy as np
import pytest
import scipy.ndimage
import torch
from sklearn.datasets import load_digits

from experiments.data import corrupted_digits
from experiments.data.digits import DIGITS_CORRUPTIONS, OOD_KINDS, digits_parts, ood_images

IMAGES = digits_parts(seed=0)["test"].images[:40]


def assert_images(images):
    assert images.shape == IMAGES.shape
    assert images.dtype == torch.float32
    assert images.amin() >= 0
    assert images.amax() <= 1


def test_parts_are_disjoint_and_whole_and_labels_belong_to_their_images():
    digits, parts = load_digits(), digits_parts(seed=3).values()
    assert torch.equal(torch.cat([part.ids for part in parts]).sort().values, torch.arange(1797))
    for part in parts:
        assert torch.equal(part.labels, torch.from_numpy(digits.target)[part.ids])
        assert torch.equal(part.images[:, 0].double() * 16, torch.from_numpy(digits.images)[part.ids])


@pytest.mark.parametrize("kind", DIGITS_CORRUPTIONS)
def test_seed_and_strength_determine_the_corruption_of_an_image(kind):
    first = corrupted_digits(IMAGES, kind, 3, seed=5)
    torch.rand(17)
    assert torch.equal(corrupted_digits(IMAGES, kind, 3, seed=5), first)
    random = kind in ("rotation", "noise", "occlusion")
    assert torch.equal(first, corrupted_digits(IMAGES, kind, 3, seed=6)) != random
    stronger = [corrupted_digits(IMAGES, kind, strength, seed=0) for strength in range(6)]
    assert torch.equal(stronger[0], IMAGES)
    distances = [(images - IMAGES).square().mean().item() for images in stronger]
    assert distances == sorted(set(distances))
    for images in stronger:
        assert_images(images)


def test_blur_equals_scipy():
    blurred = corrupted_digits(IMAGES, "blur", 3, seed=0)[:, 0].double().numpy()
    smooth = (scipy.ndimage.gaussian_filter(image, 0.9, mode="mirror", radius=3) for image in IMAGES[:, 0].double())
    np.testing.assert_allclose(blurred, np.stack(list(smooth)), atol=1e-6)


def test_rotation_keeps_the_middle_and_turns_both_ways():
    ring = torch.zeros(64, 1, 9, 9)
    ring[:, :, 4, [4, 8]] = 1.0
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


@pytest.mark.parametrize("kind", OOD_KINDS)
def test_ood_images_are_repeatable_and_in_range(kind):
    first = ood_images(IMAGES, kind, seed=5)
    torch.rand(17)
    assert torch.equal(ood_images(IMAGES, kind, seed=5), first)
    assert_images(first)


def test_shuffling_keeps_the_patches_and_moves_them():
    image = torch.arange(64.0).reshape(1, 1, 8, 8) / 64
    mixed = ood_images(image.expand(20, -1, -1, -1), "shuffled-patches", seed=0)

    def tiles(x):
        return sorted(x[i : i + 2, j : j + 2].flatten().tolist() for i in range(0, 8, 2) for j in range(0, 8, 2))

    assert all(tiles(copy[0]) == tiles(image[0, 0]) for copy in mixed)
    assert len({str(copy.tolist()) for copy in [*mixed, image[0]]}) == 21
