"""Image sets in .npz files."""

import numpy as np
import pytest
import torch

from experiments.data.images import read_arrays

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2], dtype=np.uint8)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine" / "train.npz"


def test_reads_what_was_written(path):
    np.savez(path, images=IMAGES, labels=LABELS, classes=np.array(["a", "b", "c"]))
    pixels = read_arrays(path)
    assert torch.equal(pixels.images.permute(0, 2, 3, 1), torch.from_numpy(IMAGES))
    assert pixels.labels.tolist() == [2, 0, 1, 2]
    assert pixels.labels.dtype == torch.int64
    assert pixels.classes == ("a", "b", "c")
    assert pixels.source == "mine/train.npz"


def test_ood_images_need_no_labels(path):
    np.savez(path, images=IMAGES)
    assert read_arrays(path, labelled=False).labels.tolist() == [-1] * 4
    with pytest.raises(ValueError, match=r"train.npz cannot be read .*labels.*Expected <root>"):
        read_arrays(path)


def test_names_a_missing_file_and_its_layout(path):
    with pytest.raises(FileNotFoundError, match=r"mine.train.npz is not there. Expected <root>/<name>/<split>.npz"):
        read_arrays(path)


@pytest.mark.parametrize("kept", [0, 10, 200, -20])
def test_refuses_a_truncated_file(path, kept):
    np.savez(path, images=IMAGES, labels=LABELS)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"train.npz cannot be read .* Expected <root>"):
        read_arrays(path)


def test_refuses_an_altered_file(path):
    np.savez(path, images=IMAGES, labels=LABELS)
    content = bytearray(path.read_bytes())
    content[300] ^= 1  # one bit of one pixel
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"train.npz cannot be read \(Bad CRC"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("images", "labels", "found"),
    [
        (IMAGES.astype(np.float32), LABELS, "images float32"),
        (IMAGES[0], LABELS, r"images uint8 \(5, 6, 3\)"),
        (IMAGES[..., :2], LABELS, r"images uint8 \(4, 5, 6, 2\)"),
        (IMAGES, LABELS[:3], r"labels uint8 \(3,\)"),
        (IMAGES, LABELS / 2, "labels float64"),
    ],
)
def test_refuses_something_else(path, images, labels, found):
    np.savez(path, images=images, labels=labels)
    with pytest.raises(ValueError, match=f"train.npz holds .*{found}.* Expected <root>"):
        read_arrays(path)
