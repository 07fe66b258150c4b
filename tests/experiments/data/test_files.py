"""Image sets in .npz files, and CIFAR-10-C as it was published."""

import numpy as np
import pytest
import torch

from experiments.data.corrupted_sets import published_corruption
from experiments.data.images import read_arrays
from tests.experiments.data.files import write_published

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2], dtype=np.uint8)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "train.npz", images=IMAGES, labels=LABELS, classes=np.array(["a", "b", "c"]))
    return tmp_path / "mine" / "train.npz"


def test_arrays_are_read_as_they_were_written(path):
    pixels = read_arrays(path)
    assert torch.equal(pixels.images.permute(0, 2, 3, 1), torch.from_numpy(IMAGES))
    assert pixels.labels.tolist() == [2, 0, 1, 2]
    assert pixels.labels.dtype == torch.int64
    assert (pixels.classes, pixels.source) == (("a", "b", "c"), "mine/train.npz")
    np.savez(path, images=IMAGES)
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
    ("images", "labels", "found"),
    [
        (IMAGES.astype(np.float32), LABELS, "images float32"),
        (IMAGES[0], LABELS, r"images uint8 \(5, 6, 3\)"),
        (IMAGES[..., :2], LABELS, r"images uint8 \(4, 5, 6, 2\)"),
        (IMAGES, LABELS[:3], r"labels uint8 \(3,\)"),
        (IMAGES, LABELS / 2, "labels float64"),
    ],
)
def test_other_arrays_are_refused(path, images, labels, found):
    np.savez(path, images=images, labels=labels)
    with pytest.raises(ValueError, match=f"train.npz holds .*{found}.* Expected <root>"):
        read_arrays(path)


CLASSES = np.arange(10000) % 10
IDS = torch.tensor([9999, 0, 1234])


@pytest.fixture
def folder(tmp_path):
    """The images at hand bear the number of their row."""
    images = {}
    for row in ((10000 * np.arange(5))[:, None] + IDS.numpy()).flatten().tolist():
        images[row] = np.zeros((32, 32, 3), np.uint8)
        images[row][5, 6] = row // 10000, row % 10000 // 256, row % 10000 % 256
    return write_published(tmp_path, np.tile(CLASSES, 5).astype(np.uint8), images)


def published(folder, severity=1, kind="fog", order=IDS):
    return published_corruption(folder, kind, severity, ids=IDS, labels=torch.from_numpy(CLASSES)[order])


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_published_images_are_the_rows_of_the_severity(folder, severity):
    images = published(folder, severity)
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.uint8
    expected = [[severity - 1, place // 256, place % 256] for place in IDS.tolist()]
    assert images[:, :, 5, 6].tolist() == expected
    assert images.sum() == sum(map(sum, expected))


def test_published_files_that_are_missing_or_wrong_are_named(folder):
    with pytest.raises(FileNotFoundError, match=r"snow.npy is not there. Expected the whole of CIFAR-10-C: 19 files"):
        published(folder, kind="snow")
    with pytest.raises(ValueError, match="labels.npy differs from the labels of the test set"):
        published(folder, order=IDS.flip(0))
    with (folder / "fog.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=r"fog.npy cannot be read .* Expected the whole of CIFAR-10-C"):
        published(folder)
    for shape in ((100, 32, 32, 3), (50000, 1, 1, 3)):
        np.save(folder / "fog.npy", np.zeros(shape, np.uint8))
        with pytest.raises(ValueError, match=r"fog.npy holds uint8 \(\d+, .* Expected the whole of CIFAR-10-C"):
            published(folder)
    (folder / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels.npy is not there.*pytorch_ood.dataset.img.CIFAR10C"):
        published(folder)
