"""Images from folders, brought to a model's shape, and their statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.data.examples import DataDescription
from experiments.data.images import fitted, image_files, read_classes
from experiments.data.ood import folder_inputs
from tests.experiments.data.files import paint

SHAPE = (3, 8, 8)
RANDOM = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


def as_tensor(image):
    return torch.from_numpy(np.array(image).reshape(*image.size[::-1], -1)).permute(2, 0, 1)[None]


def read(folder):
    return folder_inputs(folder, DataDescription("image", 2, SHAPE))


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
    assert fitted(result, shape) is result


def test_resizing_and_grey_equal_pillow():
    image = Image.fromarray(RANDOM)
    for changed, shape in (
        (image.resize((32, 32), Image.Resampling.BILINEAR), (3, 32, 32)),
        (image.convert("L"), (1, 64, 64)),
    ):
        difference = fitted(as_tensor(image), shape).int() - as_tensor(changed).int()
        assert difference.abs().amax() <= 1


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.png", "a.JPG", "sub/c.bmp", ".hidden.png", ".folder/d.png"):
        paint(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    assert [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)] == ["a.JPG", "b.png", "sub/c.bmp"]
    paint(tmp_path / "holiday" / "1.png", (255, 0, 0), (32, 16))
    paint(tmp_path / "holiday" / "2.png", (0, 0, 255), (9, 30))
    inputs = read(tmp_path / "holiday")
    assert inputs.name == "images-holiday"  # a folder called "test" is not the test set
    assert inputs.labels is None
    assert inputs.ids.tolist() == [0, 1]
    assert inputs.images.amax((-2, -1)).tolist() == [[255, 0, 0], [0, 0, 255]]
    assert inputs.images.shape == (2, *SHAPE)


def test_images_of_every_mode_become_eight_bits_of_colour(tmp_path):
    for number, mode in enumerate(("L", "P", "RGBA", "1", "CMYK")):
        Image.new(mode, (8, 8)).save(tmp_path / f"{number}.{'jpg' if mode == 'CMYK' else 'png'}")
    assert read(tmp_path).images.shape == (5, *SHAPE)
    deep = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(deep).save(tmp_path / "a.png")
    assert np.array_equal(read(tmp_path).images[-1, 0], deep >> 8)  # scaled, not clipped
    Image.fromarray(deep.astype(np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(ValueError, match=r"float.tif cannot be decoded \(pixels of mode F, of which nobody knows"):
        read(tmp_path)


def test_an_image_is_turned_as_the_camera_says(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read(tmp_path).images[0].permute(1, 2, 0), pixels[::-1])


def test_sub_folders_are_classes(tmp_path):
    for name, colour in (("dog/1.png", "white"), ("cat/1.png", "black"), ("cat/deep/2.png", "black")):
        paint(tmp_path / name, colour)
    pixels = read_classes(tmp_path, SHAPE)
    assert pixels.classes == ("cat", "dog")
    assert torch.equal(pixels.labels, torch.tensor([0, 0, 1]))
    assert pixels.images.amax((1, 2, 3)).tolist() == [0, 0, 255]


def test_what_cannot_be_decoded_or_is_not_there_is_named(tmp_path):
    Image.fromarray(RANDOM).save(tmp_path / "b.png")
    for content in ((tmp_path / "b.png").read_bytes()[:2000], b"no image at all"):
        (tmp_path / "b.png").write_bytes(content)
        with pytest.raises(ValueError, match="b.png cannot be decoded"):
            read(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere is not there. Expected a folder of images"):
        image_files(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no image. Expected files that end in .png"):
        image_files(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="holds 1 sub-folders. Expected one a class, at least two"):
        read_classes(tmp_path, SHAPE)
    with pytest.raises(ValueError, match="description: expected data of images, got texts"):
        folder_inputs(tmp_path, DataDescription("text", 2))
