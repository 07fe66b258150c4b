"""OOD inputs."""

import pytest
import torch

from experiments.data import OOD_KINDS, digits_splits, ood_images

IMAGES = digits_splits(seed=0).test.images[:40]


@pytest.mark.parametrize("kind", OOD_KINDS)
def test_same_seed_same_images_and_all_in_range(kind):
    first = ood_images(IMAGES, kind, seed=5)
    torch.rand(17)
    assert torch.equal(ood_images(IMAGES, kind, seed=5), first)
    assert first.shape == IMAGES.shape
    assert first.amin() >= 0
    assert first.amax() <= 1


def test_shuffling_keeps_the_patches_and_moves_them():
    image = torch.arange(64.0).reshape(1, 1, 8, 8) / 64
    mixed = ood_images(image.expand(20, -1, -1, -1), "shuffled-patches", seed=0)

    def tiles(x):
        return sorted(x[i : i + 2, j : j + 2].flatten().tolist() for i in range(0, 8, 2) for j in range(0, 8, 2))

    assert all(tiles(one[0]) == tiles(image[0, 0]) for one in mixed)
    assert all(not torch.equal(one, image[0]) for one in mixed)
    assert not torch.equal(mixed[0], mixed[1])


def test_gaussian_noise_has_the_brightness_of_the_images():
    noise = ood_images(torch.full((500, 1, 8, 8), 0.5) + 0.1 * torch.randn(500, 1, 8, 8), "gaussian-noise", seed=0)
    assert abs(noise.mean() - 0.5) < 0.005
    assert abs(noise.std() - 0.1) < 0.005


def test_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="kind: expected one of inverted, .* got 'cats'"):
        ood_images(IMAGES, "cats", seed=0)
