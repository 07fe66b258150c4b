"""The image sets by name, in the libraries' own layouts."""

import hashlib
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from pytorch_ood.dataset import img
from torchvision import datasets

from experiments.data.catalogue import IMAGE_SETS, read_set
from tests.experiments.data.files import paint, random_images, write_arrays


def stored(pixels):
    return pixels.images.permute(0, 2, 3, 1).numpy()


def test_cifar_by_torchvision_unless_there_are_arrays(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, count in (("data_batch_1", 4), ("test_batch", 2)):
        content = {"data": random_images(count).transpose(0, 3, 1, 2).reshape(count, -1), "labels": [1] * count}
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}))
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [["data_batch_1", ""]])
    monkeypatch.setattr(datasets.cifar, "check_integrity", lambda path, md5: True)
    train, test = (read_set("cifar10", split, root=tmp_path) for split in ("train", "test"))
    np.testing.assert_array_equal(stored(train), random_images(4))
    np.testing.assert_array_equal(stored(test), random_images(2))
    assert train.labels.tolist() == [1] * 4
    assert train.classes[3] == "class 3"
    write_arrays(tmp_path, "cifar10", "test", random_images(3))
    result = read_set("cifar10", "test", root=tmp_path)
    np.testing.assert_array_equal(stored(result), random_images(3))
    # as torchvision names them: arrays name no class
    assert " ".join(result.classes) == "airplane automobile bird cat deer dog frog horse ship truck"


def test_lsun_by_pytorch_ood(tmp_path, monkeypatch):
    folder, archive = tmp_path / "LSUN_resize" / "LSUN_resize", tmp_path / "LSUN_resize.tar.gz"
    folder.mkdir(parents=True)
    for number, image in enumerate(random_images(3)):
        Image.fromarray(image).save(folder / f"{number}.png")
    archive.write_bytes(b"archive")
    monkeypatch.setattr(img.LSUNResize, "tgz_md5", hashlib.md5(b"archive", usedforsecurity=False).hexdigest())
    result = read_set("lsun_resize", "test", root=tmp_path)
    np.testing.assert_array_equal(stored(result), random_images(3))
    assert result.labels.tolist() == [-1] * 3
    archive.write_bytes(b"another archive")
    with pytest.raises(ValueError, match=r"LSUN_resize.tar.gz is incomplete or altered.*LSUNResize"):
        read_set("lsun_resize", "test", root=tmp_path)


def test_a_folder_of_images_is_an_ood_set(tmp_path):
    paint(tmp_path / "lsun_crop" / "a.png", size=(50, 40))
    assert read_set("lsun_crop", "test", root=tmp_path).images.shape == (1, 3, 32, 32)


def test_crops_and_resized_images_are_made_from_whole_ones(tmp_path):
    write_arrays(tmp_path, "tiny_imagenet", "test", random_images(5, 64))
    cropped, resized = (read_set(f"tiny_imagenet_{way}", "test", root=tmp_path) for way in ("crop", "resize"))
    assert "cropped by cgp" in cropped.source
    assert "resized by cgp" in resized.source
    np.testing.assert_array_equal(stored(resized), random_images(5, 64))  # fitted to the model later
    windows = torch.from_numpy(random_images(5, 64)).unfold(1, 32, 1).unfold(2, 32, 1)  # (5, 33, 33, 3, 32, 32)
    for window, crop in zip(windows, cropped.images, strict=True):
        assert (window == crop).flatten(2).all(-1).sum() == 1
    write_arrays(tmp_path, "tiny_imagenet", "test", random_images(2, 16))
    with pytest.raises(ValueError, match="expected at least 32 x 32 to crop from, got 16 x 16"):
        read_set("tiny_imagenet_crop", "test", root=tmp_path)


@pytest.mark.parametrize("name", [*IMAGE_SETS, "flowers"])
def test_a_missing_set_names_what_was_expected_and_how_to_get_it(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        read_set(name, "test", root=tmp_path)
    known = IMAGE_SETS.get(name)
    hints = (known.title, known.call) if known else ("known sets: cifar10, cifar100, svhn",)
    for words in (*hints, str(tmp_path / name / "test.npz"), "images uint8 (N, H, W, C)"):
        assert words in str(caught.value)
