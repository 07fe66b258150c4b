"""Images from folders and files of arrays, converted to a model's shape."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.data.examples import DataDescription
from experiments.data.images import fitted, image_files, read_arrays, read_classes
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


ARRAY = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2], dtype=np.uint8)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "train.npz", images=ARRAY, labels=LABELS, classes=np.array(["a", "b", "c"]))
    return tmp_path / "mine" / "train.npz"


def test_arrays_are_read_as_they_were_written(path):
    pixels = read_arrays(path)
    assert torch.equal(pixels.images.permute(0, 2, 3, 1), torch.from_numpy(ARRAY))
    assert pixels.labels.tolist() == [2, 0, 1, 2]
    assert pixels.labels.dtype == torch.int64
    assert (pixels.classes, pixels.source) == (("a", "b", "c"), "mine/train.npz")
    np.savez(path, images=ARRAY)
    assert read_arrays(path, labelled=False).labels.tolist() == [-1] * 4
    with pytest.raises(ValueError, match=r"train.npz cannot be read .*labels.*Expected <root>"):
        read_arrays(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"mine.train.npz is not there. Expected <root>/<name>/<split>.npz"):
        read_arrays(path)


@pytest.mark.parametrize("kept", [0, 10, 200, -20])
def test_a_truncated_file_is_refused(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"train.npz cannot be read .* Expected <root>"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (ARRAY.astype(np.float32), LABELS, "images float32"),
        (ARRAY[0], LABELS, r"images uint8 \(5, 6, 3\)"),
        (ARRAY[..., :2], LABELS, r"images uint8 \(4, 5, 6, 2\)"),
        (ARRAY, LABELS[:3], r"labels uint8 \(3,\)"),
        (ARRAY, LABELS / 2, "labels float64"),
    ],
)
def test_other_arrays_are_refused(path, images, labels, message):
    np.savez(path, images=images, labels=labels)
    with pytest.raises(ValueError, match=f"train.npz holds .*{message}.* Expected <root>"):
        read_arrays(path)
