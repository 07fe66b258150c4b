"""The image sets by name, in the libraries' own layouts."""

import hashlib
import pickle

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from pytorch_ood.dataset import img
from torchvision import datasets

from experiments.data.catalogue import IMAGE_SETS, read_set

NUMBERS = np.random.default_rng(0)


def pixels(count, side=32):
    return NUMBERS.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def write_arrays(root, name, images, split="test", **more):
    (root / name).mkdir(parents=True)
    np.savez(root / name / f"{split}.npz", images=images, **more)


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def cifar_root(tmp_path, monkeypatch):
    """Two tiny files in the layout of CIFAR-10, and the checksums that torchvision is to expect."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    checksums = {}
    for name, count in (("data_batch_1", 4), ("test_batch", 2)):
        content = {"data": pixels(count).transpose(0, 3, 1, 2).reshape(count, -1), "labels": [1] * count}
        (folder / name).write_bytes(pickle.dumps(content))
        checksums[name] = md5(folder / name)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}))
    meta = {**datasets.CIFAR10.meta, "md5": md5(folder / "batches.meta")}
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [["data_batch_1", checksums["data_batch_1"]]])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", checksums["test_batch"]]])
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return tmp_path


def test_cifar_by_torchvision(cifar_root):
    train, test = (read_set("cifar10", split, root=cifar_root) for split in ("train", "test"))
    assert train.images.shape == (4, 3, 32, 32)
    assert len(test.images) == 2
    assert train.labels.tolist() == [1] * 4
    assert train.classes[3] == "class 3"
    stored = pickle.loads((cifar_root / "cifar-10-batches-py" / "test_batch").read_bytes())["data"]
    assert torch.equal(test.images.flatten(1), torch.from_numpy(stored))


def test_names_an_altered_cifar_file_and_how_to_get_it(cifar_root):
    file = cifar_root / "cifar-10-batches-py" / "data_batch_1"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"cifar-10-batches-py is incomplete or altered.*torchvision.datasets.CIFAR10"):
        read_set("cifar10", "test", root=cifar_root)


def test_arrays_come_before_the_library(cifar_root):
    images = pixels(3)
    write_arrays(cifar_root, "cifar10", images)
    found = read_set("cifar10", "test", root=cifar_root)
    assert torch.equal(found.images.permute(0, 2, 3, 1), torch.from_numpy(images))
    # as torchvision names them: arrays name no class
    assert " ".join(found.classes) == "airplane automobile bird cat deer dog frog horse ship truck"


def test_svhn_by_torchvision(tmp_path, monkeypatch):
    images = pixels(3)
    content = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)}
    scipy.io.savemat(tmp_path / "test_32x32.mat", content)
    split_list = {"test": ["", "test_32x32.mat", md5(tmp_path / "test_32x32.mat")]}
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    read = read_set("svhn", "test", root=tmp_path)
    assert torch.equal(read.images.permute(0, 2, 3, 1), torch.from_numpy(images))
    assert read.labels.tolist() == [0, 1, 9]


def test_textures_by_torchvision_are_all_parts_together(tmp_path):
    for name in ("banded", "woven"):
        (tmp_path / "dtd" / "dtd" / "images" / name).mkdir(parents=True)
        Image.new("RGB", (60, 40), "white").save(tmp_path / "dtd" / "dtd" / "images" / name / "1.jpg")
    (tmp_path / "dtd" / "dtd" / "labels").mkdir()
    (tmp_path / "dtd" / "dtd" / "labels" / "train1.txt").write_text("banded/1.jpg\n")
    read = read_set("textures", "test", root=tmp_path, shape=(3, 16, 16))
    assert read.images.shape == (2, 3, 16, 16)
    assert read.classes == ("banded", "woven")


@pytest.fixture
def lsun_root(tmp_path, monkeypatch):
    """The unpacked images, and an archive whose checksum pytorch-ood is to expect."""
    folder = tmp_path / "LSUN_resize" / "LSUN_resize"
    folder.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(pixels(1)[0]).save(folder / f"{number}.png")
    (tmp_path / "LSUN_resize.tar.gz").write_bytes(b"archive")
    monkeypatch.setattr(img.LSUNResize, "tgz_md5", md5(tmp_path / "LSUN_resize.tar.gz"))
    return tmp_path


def test_lsun_by_pytorch_ood(lsun_root):
    read = read_set("lsun_resize", "test", root=lsun_root)
    assert read.images.shape == (3, 3, 32, 32)
    assert read.labels.tolist() == [-1] * 3
    stored = np.array(Image.open(lsun_root / "LSUN_resize" / "LSUN_resize" / "1.png"))
    assert torch.equal(read.images[1].permute(1, 2, 0), torch.from_numpy(stored))


def test_names_an_altered_lsun_archive(lsun_root):
    (lsun_root / "LSUN_resize.tar.gz").write_bytes(b"another archive")
    with pytest.raises(ValueError, match=r"LSUN_resize.tar.gz is incomplete or altered.*LSUNResize"):
        read_set("lsun_resize", "test", root=lsun_root)


def test_a_folder_of_images_is_an_ood_set(tmp_path):
    (tmp_path / "lsun_crop").mkdir()
    Image.new("RGB", (50, 40), "white").save(tmp_path / "lsun_crop" / "a.png")
    assert read_set("lsun_crop", "test", root=tmp_path).images.shape == (1, 3, 32, 32)


def test_crops_and_resized_images_are_made_from_whole_ones(tmp_path):
    images = pixels(5, side=64)
    write_arrays(tmp_path, "tiny_imagenet", images)
    cropped, resized = (read_set(f"tiny_imagenet_{way}", "test", root=tmp_path) for way in ("crop", "resize"))
    assert "cropped by cgp" in cropped.source
    assert "resized by cgp" in resized.source
    assert resized.images.shape == (5, 3, 64, 64)  # fitted to the model later
    windows = torch.from_numpy(images).permute(0, 3, 1, 2).unfold(2, 32, 1).unfold(3, 32, 1).permute(0, 2, 3, 1, 4, 5)
    for window, crop in zip(windows, cropped.images, strict=True):
        assert (window == crop).flatten(2).all(-1).sum() == 1


def test_crops_need_room(tmp_path):
    write_arrays(tmp_path, "tiny_imagenet", pixels(2, side=16))
    with pytest.raises(ValueError, match="expected at least 32 x 32 to crop from, got 16 x 16"):
        read_set("tiny_imagenet_crop", "test", root=tmp_path)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_a_missing_set_says_what_was_expected_and_how_to_get_it(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        read_set(name, "test", root=tmp_path)
    layout = "<root>/<name>/<split>.npz with images uint8 (N, H, W, C)"
    for words in (IMAGE_SETS[name].title, str(tmp_path / name / "test.npz"), layout, IMAGE_SETS[name].call):
        assert words in str(caught.value)


def test_an_unknown_set_names_the_known_ones(tmp_path):
    message = "flowers.train.npz is not there. .* known sets: cifar10, cifar100, svhn"
    with pytest.raises(FileNotFoundError, match=message):
        read_set("flowers", "train", root=tmp_path)
