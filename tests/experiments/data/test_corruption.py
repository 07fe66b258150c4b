"""The 19 corruptions."""

import colorsys
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.v2 import functional as transforms

from experiments.data import corruption
from experiments.data.corruption import CATEGORIES, CORRUPTIONS, corrupted
from experiments.data.filters import Draws

RANDOM = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "motion_blur", "snow"),
    *("frost", "fog", "spatter", "elastic_transform"),
)


def natural(count, side=32):
    """Smooth images with edges: something like photographs."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    images = transforms.resize(coarse, [side, side], antialias=True)
    images[:, :, side // 4 : side // 2, side // 3 : side // 2] *= 0.2
    return (images * 255).round().to(torch.uint8)


IMAGES, IDS = natural(40), torch.arange(40)
FLOATS = IMAGES.float() / 255


def in_hsv(image, change):
    """An image whose pixels were changed as hue, saturation and value."""
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in image.flatten(1).T.tolist()]
    return torch.tensor(pixels).T.reshape(image.shape)


def by_pillow(change):
    """The first three images, changed by a function of Pillow's."""
    changed = [change(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in IMAGES[:3]]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2) / 255


def draws(count=40):
    return Draws("test", ids=range(count))


# The published constants of these are not in the order of the squared distance.
UNORDERED = ("saturate", "glass_blur", "spatter", "elastic_transform")


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_stays_an_image_and_is_changed(kind, channels):
    images = IMAGES[:6, :channels]
    distances = []
    for severity in range(1, 6):
        changed = corrupted(images, kind, severity, ids=IDS[:6])
        assert changed.shape == images.shape
        assert changed.dtype == torch.uint8
        distances.append((changed.float() - images.float()).square().mean())
    # A grey image has no saturation to lose.
    assert all(distances) or (kind == "saturate" and channels == 1)
    assert distances[4] > 1.2 * distances[0] or kind in UNORDERED


@pytest.mark.parametrize("kind", CORRUPTIONS)
@given(which=st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True), severity=st.integers(1, 5))
@settings(max_examples=5)
def test_what_becomes_of_an_image_depends_on_its_id_not_on_its_company(kind, which, severity):
    together = corrupted(IMAGES[:9], kind, severity, ids=IDS[:9], seed=2**40)
    torch.rand(17)
    assert torch.equal(corrupted(IMAGES[which], kind, severity, ids=IDS[which], seed=2**40), together[which])


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_seed_and_id_determine_the_random_numbers(kind):
    images = IMAGES[:1].expand(2, -1, -1, -1)
    first, second = (corrupted(images, kind, 5, ids=torch.tensor([0, 1]), seed=seed) for seed in (0, 1))
    assert torch.equal(first, second) == (kind not in RANDOM)
    assert torch.equal(first[0], first[1]) == (kind not in RANDOM)


def test_more_images_than_fit_at_once():
    ids = torch.arange(1100)
    images = torch.full((1100, 1, 4, 4), 90, dtype=torch.uint8)
    changed = corrupted(images, "gaussian_noise", 5, ids=ids)
    assert len(changed) == 1100
    assert torch.equal(changed[1050:], corrupted(images[1050:], "gaussian_noise", 5, ids=ids[1050:]))
    assert corrupted(images[:0], "fog", 1, ids=ids[:0]).shape == (0, 1, 4, 4)


class TestNoise:
    grey = torch.full((40, 3, 32, 32), 0.4)

    @pytest.mark.parametrize(
        ("kind", "constant", "deviation"),
        [("gaussian_noise", 0.1, 0.1), ("shot_noise", 50, (0.4 / 50) ** 0.5), ("speckle_noise", 0.2, 0.08)],
    )
    def test_added_noise_has_its_moments(self, kind, constant, deviation):
        added = getattr(corruption, kind)(self.grey, draws(), constant) - self.grey
        assert abs(added.mean()) < 5 * deviation / added.numel() ** 0.5
        assert abs(added.std() - deviation) < 5 * deviation / (2 * added.numel()) ** 0.5

    def test_shot_counts_and_speckle_grows_with_the_value(self):
        counts = corruption.shot_noise(self.grey, draws(), 50) * 50
        torch.testing.assert_close(counts, counts.round(), atol=1e-4, rtol=0)
        dark, light = (corruption.speckle_noise(v * self.grey, draws(), 0.2) - v * self.grey for v in (1, 2))
        torch.testing.assert_close(light, 2 * dark, atol=1e-6, rtol=1e-5)

    def test_impulses_are_half_salt_half_pepper(self):
        changed = corruption.impulse_noise(self.grey, draws(), 0.1)
        shares = [(changed == value).double().mean().item() for value in (0.0, 1.0)]
        assert shares == pytest.approx([0.05, 0.05], abs=5 * (0.05 / changed.numel()) ** 0.5)
        assert ((changed == 0) | (changed == 1) | (changed == 0.4)).all()


class TestBlur:
    def test_a_blur_keeps_a_plain_image(self):
        plain = torch.full((3, 3, 32, 32), 0.3)
        for kind in CATEGORIES["blur"]:
            for constants in CORRUPTIONS[kind].constants:
                torch.testing.assert_close(CORRUPTIONS[kind].apply(plain, draws(3), *constants), plain)

    def test_defocus_is_a_disc(self):
        point = torch.zeros(1, 1, 15, 15)
        point[..., 7, 7] = 1.0
        spread = corruption.defocus_blur(point, draws(1), 3, 0.01)[0, 0]
        rows, columns = torch.meshgrid(torch.arange(15) - 7, torch.arange(15) - 7, indexing="ij")
        disc = ((rows**2 + columns**2) <= 9).float()
        torch.testing.assert_close(spread, disc / disc.sum())

    def test_glass_shows_neighbours_alone(self):
        places = torch.arange(32 * 32.0).reshape(1, 1, 32, 32)
        shown = corruption.glass_blur(places, draws(1), 0.0, 1, 1)[0, 0]
        down, right = shown // 32 - torch.arange(32)[:, None], shown % 32 - torch.arange(32)
        assert set(down.flatten().tolist()) == set(right.flatten().tolist()) == {-1.0, 0.0}

    def test_zoom_averages_the_magnifications(self):
        ramp = torch.linspace(-1, 1, 33).expand(1, 1, 33, 33)
        factors = [1.0, 1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
        expected = ramp * sum(1 / factor for factor in factors) / len(factors)
        torch.testing.assert_close(corruption.zoom_blur(ramp, draws(1), 1.05), expected, atol=1e-5, rtol=1e-4)


class TestWeather:
    def test_brightness_equals_colorsys(self):
        changed = corruption.brightness(FLOATS[:1], draws(1), 0.2)
        expected = in_hsv(FLOATS[0], lambda hue, saturation, value: (hue, saturation, min(value + 0.2, 1.0)))
        torch.testing.assert_close(changed[0], expected, atol=1e-5, rtol=0.0)

    def test_fog_does_not_raise_the_brightest_value(self):
        foggy = corruption.fog(FLOATS, draws(), 1.0, 2.0)
        assert (foggy.amax((1, 2, 3)) <= FLOATS.amax((1, 2, 3)) + 1e-6).all()
        assert (foggy.amin((1, 2, 3)) >= 0).all()

    def test_mud_hides_and_water_lights(self):
        mud = corruption.spatter(FLOATS, draws(), *CORRUPTIONS["spatter"].constants[4])
        hidden = ((mud - torch.tensor([63.0, 42.0, 20.0])[:, None, None] / 255).abs() < 0.06).all(1)
        assert 0.01 < hidden.float().mean() < 0.4
        water = corruption.spatter(FLOATS, draws(), *CORRUPTIONS["spatter"].constants[0])
        assert (water >= FLOATS).all()
        assert 0.005 < (water > FLOATS).any(1).float().mean() < 0.5


class TestDigital:
    def test_contrast_keeps_the_mean_of_each_channel(self):
        changed = corruption.contrast(FLOATS, draws(), 0.3)
        torch.testing.assert_close(changed.mean((-2, -1)), FLOATS.mean((-2, -1)))
        torch.testing.assert_close(changed.std((-2, -1)), 0.3 * FLOATS.std((-2, -1)))

    @pytest.mark.parametrize("share", [0.95, 0.9, 0.85, 0.75, 0.65])
    def test_pixelate_equals_pillow(self, share):
        small, box = (int(32 * share),) * 2, Image.Resampling.BOX
        expected = by_pillow(lambda image: image.resize(small, box).resize((32, 32), box))
        # Pillow rounds to bytes twice on the way.
        torch.testing.assert_close(corruption.pixelate(FLOATS[:3], draws(3), share), expected, atol=2.01 / 255, rtol=0)

    @pytest.mark.parametrize("quality", [80, 40])
    def test_jpeg_equals_pillow(self, quality):
        def reopened(image):
            image.save(stored := io.BytesIO(), "JPEG", quality=quality)
            return Image.open(stored)

        changed = corruption.jpeg_compression(FLOATS[:3], draws(3), quality)
        assert ((changed - by_pillow(reopened)).abs().mean((1, 2, 3)) < 1.0 / 255).all()

    @pytest.mark.parametrize(("factor", "shift"), CORRUPTIONS["saturate"].constants)
    def test_saturate_equals_colorsys(self, factor, shift):
        images = FLOATS[:1].clone()
        images[:, :, 0] = 0.7  # a grey row
        changed = corruption.saturate(images, draws(1), factor, shift)
        expected = in_hsv(images[0], lambda hue, saturation, value: (hue, min(saturation * factor + shift, 1.0), value))
        torch.testing.assert_close(changed[0], expected, atol=1e-4, rtol=0.0)

    def test_elastic_is_an_affine_map_of_three_points_in_the_square(self):
        side = 33
        places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).float()
        moved = corruption.elastic_transform(places.expand(40, -1, -1, -1), draws(), 0, 0, 0.08)
        middle = moved[:, :, side // 2, side // 2]
        assert (middle - side // 2).abs().amax() <= 0.08 * side
        # Without stretching, the map is affine: equal steps between neighbours, away from the mirrored edge.
        steps = moved[:, :, 10:23, 10:23].diff(dim=-1)
        torch.testing.assert_close(steps, steps[..., :1].expand_as(steps), atol=1e-4, rtol=1e-4)
        for row, column in ((27, 27), (5, 27), (5, 5)):
            shift = moved[:, :, row, column] - torch.tensor([row, column])
            assert shift.abs().amax() <= 0.08 * side + 1e-3
            assert shift.abs().amax() > 0.05 * side
