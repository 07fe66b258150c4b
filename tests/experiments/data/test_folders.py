"""Folders of images."""

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.data import DataDescription, folder_inputs, image_files
from experiments.data.images import read_classes

SHAPE = (3, 8, 8)
DESCRIPTION = DataDescription("image", 2, SHAPE)


def paint(path, colour, size=(8, 8), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)


def test_files_come_in_the_order_of_their_names(tmp_path):
    for name in ("b.png", "a.JPG", "sub/c.bmp", ".hidden.png", ".folder/d.png"):
        paint(tmp_path / name, "red")
    (tmp_path / "notes.txt").write_text("no image")
    assert [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)] == ["a.JPG", "b.png", "sub/c.bmp"]


def test_inputs_are_resized_cropped_and_named_after_the_folder(tmp_path):
    paint(tmp_path / "holiday" / "1.png", (255, 0, 0), (32, 16))
    paint(tmp_path / "holiday" / "2.png", (0, 0, 255), (9, 30))
    inputs = folder_inputs(tmp_path / "holiday", DESCRIPTION)
    assert inputs.name == "images-holiday"  # a folder called "test" is not the test set
    assert inputs.labels is None
    assert inputs.ids.tolist() == [0, 1]
    assert inputs.inputs.amax((-2, -1)).tolist() == [[255, 0, 0], [0, 0, 255]]
    assert inputs.inputs.shape == (2, *SHAPE)


def test_grey_palette_and_transparent_images_become_colour(tmp_path):
    for number, mode in enumerate(("L", "P", "RGBA", "1", "CMYK")):
        Image.new(mode, (8, 8)).save(tmp_path / f"{number}.{'jpg' if mode == 'CMYK' else 'png'}")
    assert folder_inputs(tmp_path, DESCRIPTION).inputs.shape == (5, *SHAPE)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    pixels = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(pixels).save(tmp_path / "deep.png")
    found = folder_inputs(tmp_path, DESCRIPTION).inputs
    assert np.array_equal(found[0, 0], pixels >> 8)
    Image.fromarray(pixels.astype(np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(ValueError, match=r"float.tif cannot be decoded \(pixels of mode F, of which nobody knows"):
        folder_inputs(tmp_path, DESCRIPTION)


def test_an_image_is_turned_as_the_camera_says(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    turned = folder_inputs(tmp_path, DESCRIPTION).inputs
    assert (turned[0, :, :4] == 0).all()
    assert (turned[0, :, 4:] == 255).all()


def test_sub_folders_are_classes(tmp_path):
    for name, colour in (("dog/1.png", "white"), ("cat/1.png", "black"), ("cat/deep/2.png", "black")):
        paint(tmp_path / name, colour)
    pixels = read_classes(tmp_path, SHAPE)
    assert pixels.classes == ("cat", "dog")
    assert pixels.labels.tolist() == [0, 0, 1]
    assert pixels.labels.dtype == torch.int64
    assert pixels.images.amax((1, 2, 3)).tolist() == [0, 0, 255]


def test_names_a_file_that_cannot_be_decoded(tmp_path):
    paint(tmp_path / "a.png", "red")
    numbers = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(numbers).save(tmp_path / "b.png")
    for content in ((tmp_path / "b.png").read_bytes()[:2000], b"no image at all"):
        (tmp_path / "b.png").write_bytes(content)
        with pytest.raises(ValueError, match="b.png cannot be decoded"):
            folder_inputs(tmp_path, DESCRIPTION)


def test_refuses_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not there. Expected a folder of images"):
        image_files(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="holds no image. Expected files that end in .png"):
        image_files(tmp_path)
    paint(tmp_path / "only" / "a.png", "red")
    with pytest.raises(FileNotFoundError, match="holds 1 sub-folders. Expected one a class, at least two"):
        read_classes(tmp_path, SHAPE)
    with pytest.raises(ValueError, match="description: expected data of images, got texts"):
        folder_inputs(tmp_path, DataDescription("text", 2))
