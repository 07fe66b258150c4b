"""CIFAR-10-C as it was published."""

import numpy as np
import pytest
import torch

from experiments.data.corrupted_sets import published_corruption

LABELS = np.arange(10000) % 10
IDS = torch.tensor([9999, 0, 1234])


@pytest.fixture
def folder(tmp_path):
    """Sparse files of the published shape; the images at hand bear the number of their row."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    images = np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(50000, 32, 32, 3))
    for severity in range(5):
        for place in IDS.tolist():
            images[severity * 10000 + place, 5, 6] = severity, place // 256, place % 256
    images.flush()
    return folder


def read(folder, severity=1, kind="fog", labels=None):
    labels = torch.from_numpy(LABELS)[IDS] if labels is None else labels
    return published_corruption(folder, kind, severity, ids=IDS, labels=labels)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_takes_the_rows_of_the_severity(folder, severity):
    images = read(folder, severity)
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.uint8
    expected = [[severity - 1, place // 256, place % 256] for place in IDS.tolist()]
    assert images[:, :, 5, 6].tolist() == expected
    assert images.sum() == sum(map(sum, expected))


def test_names_a_missing_file(folder):
    with pytest.raises(FileNotFoundError, match=r"snow.npy is not there. Expected the whole of CIFAR-10-C: 19 files"):
        read(folder, kind="snow")
    (folder / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels.npy is not there.*pytorch_ood.dataset.img.CIFAR10C"):
        read(folder)


def test_refuses_a_truncated_file(folder):
    with (folder / "fog.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=r"fog.npy cannot be read .* Expected the whole of CIFAR-10-C"):
        read(folder)


@pytest.mark.parametrize("array", [np.zeros((100, 32, 32, 3), np.uint8), np.zeros((50000, 1, 1, 3), np.uint8)])
def test_refuses_another_shape(folder, array):
    np.save(folder / "fog.npy", array)
    with pytest.raises(ValueError, match=r"fog.npy holds uint8 \(\d+, .* Expected the whole of CIFAR-10-C"):
        read(folder)


def test_refuses_labels_of_another_order(folder):
    with pytest.raises(ValueError, match="labels.npy differs from the labels of the test set"):
        read(folder, labels=torch.from_numpy(LABELS)[IDS.flip(0)])
