"""Image sets in three parts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.configuration import DataConfig
from experiments.data import batch, load, write_stand_in
from experiments.data.digits import digits_parts
from tests.experiments.data.files import paint, parts, random_images, write_arrays


def test_the_digits_are_a_data_set():
    splits = load(DataConfig(), seed=5)
    for part, known in zip(parts(splits), digits_parts(0).values(), strict=True):
        assert torch.equal(part.inputs, known.images)
        assert torch.equal(part.labels, known.labels)
        assert torch.equal(part.ids, known.ids)
    following = load(DataConfig(split_seed=None, limit_train=100), seed=5)
    assert torch.equal(following.test.ids, digits_parts(5)["test"].ids)
    assert following.description.deviations == ("100 of 1,077 train examples",)


def test_a_known_set_keeps_bytes_and_its_own_test_part(tmp_path):
    write_stand_in(tmp_path, "cifar10", count=100)
    splits = load(DataConfig(name="cifar10", root=tmp_path, unchecked=True), seed=0)
    assert [len(part) for part in parts(splits)] == [90, 10, 100]
    assert splits.train.inputs.dtype == torch.uint8
    with np.load(tmp_path / "cifar10" / "train.npz") as content:
        stored = torch.from_numpy(content["images"]).permute(0, 3, 1, 2)
    for part in (splits.train, splits.validation):
        assert torch.equal(part.inputs, stored[part.ids])
    assert sorted([*splits.train.ids.tolist(), *splits.validation.ids.tolist()]) == list(range(100))
    assert splits.validation.labels.bincount().tolist() == [1] * 10
    assert splits.test.ids.tolist() == list(range(100))
    description = splits.description
    assert (description.num_classes, description.image_shape) == (10, (3, 32, 32))
    pixels = batch(splits.train, slice(None))[0].double()
    np.testing.assert_allclose(description.mean, pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(description.deviation, pixels.std((0, 2, 3), correction=0), rtol=1e-6)


def test_a_known_set_is_whole_unless_it_is_agreed_to(tmp_path):
    write_stand_in(tmp_path, "cifar10")
    data = DataConfig(name="cifar10", root=tmp_path, unchecked=True)
    message = r"train.npz holds 40 of the 50,000 train images of CIFAR-10; .*torchvision.datasets.CIFAR10.*unchecked"
    with pytest.raises(ValueError, match=message):
        load(replace(data, unchecked=False), seed=0)
    deviations = load(data, seed=0).description.deviations
    assert deviations[1] == "cifar10/test.npz holds 40 of the 10,000 test images of CIFAR-10"
    for labels in ([0, 1, 2, -1], [0, 1, 2, 10]):
        write_arrays(tmp_path, "cifar10", "test", random_images(4), labels=np.array(labels))
        with pytest.raises(ValueError, match=rf"cifar10/test.npz: expected labels from 0 to 9, got {labels[-1]}"):
            load(data, seed=0)
    (tmp_path / "cifar10" / "test.npz").unlink()
    with pytest.raises(FileNotFoundError, match="cifar10.test.npz is not there"):
        load(data, seed=0)


def test_arrays_of_ones_own(tmp_path):
    write_arrays(
        tmp_path, "mine", "train", random_images(50, 12, 1)[:, :10], labels=np.arange(50) % 5, classes=list("abcde")
    )
    splits = load(DataConfig(name="mine", root=tmp_path), seed=0)
    assert [len(part) for part in parts(splits)] == [35, 5, 10]
    assert sorted(torch.cat([part.ids for part in parts(splits)]).tolist()) == list(range(50))
    assert splits.test.labels.bincount().tolist() == [2] * 5
    assert splits.description.image_shape == (1, 10, 10)
    assert splits.description.class_names == tuple("abcde")
    assert splits.description.deviations == ()
    write_arrays(tmp_path, "mine", "test", random_images(4, 30, 1), labels=np.arange(4))
    write_arrays(tmp_path, "mine", "validation", random_images(3, 10, 1), labels=np.arange(3))
    splits = load(DataConfig(name="mine", root=tmp_path, image_size=6), seed=0)
    assert [tuple(part.inputs.shape) for part in parts(splits)] == [(50, 1, 6, 6), (3, 1, 6, 6), (4, 1, 6, 6)]


def test_a_folder_of_classes(tmp_path):
    for name, colour in (("light", "white"), ("dark", "black")):
        for number in range(10):
            paint(tmp_path / name / ("deep" if number == 9 else "") / f"{number}.png", colour)
    splits = load(DataConfig(name="lamps", folder=tmp_path, image_size=16), seed=0)
    assert [len(part) for part in parts(splits)] == [14, 2, 4]
    for part in parts(splits):
        assert torch.equal(part.inputs.amax((1, 2, 3)) == 255, part.labels == 1)
        assert part.inputs.shape[1:] == (3, 16, 16)
        assert set(part.labels.tolist()) == {0, 1}
    assert splits.description.class_names == ("dark", "light")
    assert load(DataConfig(name="lamps", folder=tmp_path), seed=0).description.image_shape == (3, 32, 32)


def test_a_folder_of_parts(tmp_path):
    for part, count in (("train", 4), ("val", 2), ("test", 3)):
        for name in ("a", "b"):
            for number in range(count):
                paint(tmp_path / part / name / f"{number}.png", "red")
    splits = load(DataConfig(name="lamps", folder=tmp_path), seed=0)
    assert [len(part) for part in parts(splits)] == [8, 4, 6]
    paint(tmp_path / "test" / "c" / "0.png", "red")
    with pytest.raises(ValueError, match=r"test: expected the classes of .*train, \('a', 'b'\); got \('a', 'b', 'c'\)"):
        load(DataConfig(name="lamps", folder=tmp_path), seed=0)


def test_what_cannot_be_learned_from_is_refused(tmp_path):
    write_arrays(tmp_path, "mine", "train", random_images(4), labels=np.zeros(4, np.int64))
    with pytest.raises(ValueError, match="mine/train.npz: expected at least two classes, got 1"):
        load(DataConfig(name="mine", root=tmp_path), seed=0)
    write_arrays(tmp_path, "mine", "train", random_images(3), labels=np.arange(3))
    with pytest.raises(ValueError, match="expected enough images to hold some out for validation, got none"):
        load(DataConfig(name="mine", root=tmp_path), seed=0)
    with pytest.raises(FileNotFoundError, match="data.folder: expected a folder with one sub-folder a class"):
        load(DataConfig(name="lamps", folder=tmp_path / "nowhere"), seed=0)
    with pytest.raises(ValueError, match=r"data.name: expected a name of your own for data.folder=.*, got 'digits'"):
        load(DataConfig(folder=tmp_path), seed=0)
    write_stand_in(tmp_path, "textures")
    with pytest.raises(ValueError, match="textures serves as OOD images only"):
        load(DataConfig(name="textures", root=tmp_path, unchecked=True), seed=0)
