"""Data sets and further inputs from their configuration."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import batch, corruption_source, input_sets, load
from experiments.data.corrupted_sets import published_corruption
from experiments.data.corruption import CORRUPTIONS, corrupted
from experiments.data.digits import DIGITS_CORRUPTIONS, OOD_KINDS, digits_parts
from tests.experiments.data.files import paint, parts, random_images, write_arrays
from tests.experiments.data.stand_ins import write_stand_in


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


@pytest.fixture
def root(tmp_path):
    for name in ("cifar10", "cifar100", "svhn"):
        write_stand_in(tmp_path, name, count=20)
    write_stand_in(tmp_path, "tiny_imagenet", count=20, side=64)
    return tmp_path


CLASSES = np.arange(10000) % 10
IDS = torch.tensor([9999, 0, 1234])


@pytest.fixture
def folder(tmp_path):
    """Sparse files of the published shape; the images at hand bear the number of their row."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(CLASSES, 5).astype(np.uint8))
    images = np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(50000, 32, 32, 3))
    for severity in range(5):
        for place in IDS.tolist():
            images[severity * 10000 + place, 5, 6] = severity, place // 256, place % 256
    images.flush()
    return folder


def config(root, *, name="cifar10", corruptions=None, **options):
    corruptions = corruptions or CorruptionConfig(kinds=())
    return DataConfig(name=name, root=root, unchecked=True, validation=0.5, corruptions=corruptions, **options)


def sets(data, *, full=False, seed=0):
    splits = load(data, seed)
    return splits, {part.name: part for part in input_sets(data, splits, seed, full=full)}


def test_everything_of_the_digits():
    _, result = sets(DataConfig(limit_test=50))
    corruptions = [f"corrupted-{kind}-{severity}" for kind in DIGITS_CORRUPTIONS for severity in (1, 3, 5)]
    assert list(result) == ["validation", "test", *corruptions, *(f"ood-{kind}" for kind in OOD_KINDS)]
    assert {len(part) for name, part in result.items() if name != "validation"} == {50}
    assert corruption_source(DataConfig()) == "generated"


def test_all_nineteen_of_cifar(root):
    data = config(root, corruptions=CorruptionConfig(severities=(2,), limit=4))
    splits, result = sets(data)
    assert list(result)[2:] == [f"corrupted-{kind}-2" for kind in CORRUPTIONS]
    fog = result["corrupted-fog-2"]
    assert fog.source == "generated by cgp from 4 test images"
    assert torch.equal(fog.labels, splits.test.labels[fog.ids])
    expected = corrupted(splits.test.inputs[fog.ids], "fog", 2, ids=fog.ids, seed=0)
    assert torch.equal(fog.inputs, expected)


def test_the_images_are_the_same_for_every_seed_and_kind(root):
    kinds = CorruptionConfig(kinds=("gaussian_noise", "fog"), severities=(1, 5), limit=5)
    data = config(root, corruptions=kinds, ood=("svhn",), limit_ood=6)
    (_, first), (_, second), (_, full) = sets(data), sets(data, seed=7), sets(data, full=True)
    ids = {tuple(part.ids.tolist()) for name, part in first.items() if name.startswith("corrupted")}
    assert len(ids) == 1
    assert len(first["ood-svhn"]) == 6
    for name, part in first.items():
        assert torch.equal(part.inputs, second[name].inputs)
        assert torch.equal(part.ids, second[name].ids)
    corrupted_sets = [name for name in full if name.startswith("corrupted")]
    assert corrupted_sets == [f"corrupted-{kind}-{severity}" for kind in kinds.kinds for severity in range(1, 6)]
    assert {len(full[name]) for name in corrupted_sets} == {20}
    noise, whole = first["corrupted-gaussian_noise-5"], full["corrupted-gaussian_noise-5"]
    assert torch.equal(noise.inputs, whole.inputs[noise.ids])


def test_published_files_are_taken_where_they_are(root, folder):
    data = config(root, corruptions=CorruptionConfig(kinds=("fog",), severities=(5,)))
    assert corruption_source(data) == "official"
    _, result = sets(data)
    fog = result["corrupted-fog-5"]
    assert fog.source == "CIFAR-10-C"
    assert fog.inputs[fog.ids == 0, :, 5, 6].tolist() == [[4, 0, 0]]
    assert fog.inputs.sum() == 4
    with pytest.raises(FileNotFoundError, match=r"snow.npy is not there. Expected the whole of CIFAR-10-C"):
        sets(config(root, corruptions=CorruptionConfig(kinds=("fog", "snow"))))
    generated = CorruptionConfig(kinds=("fog",), severities=(5,), source="generated")
    _, result = sets(config(root, corruptions=generated))
    assert "generated by cgp" in result["corrupted-fog-5"].source


def test_other_sets_are_corrupted_on_request(root):
    assert list(sets(config(root, name="svhn", corruptions=CorruptionConfig()))[1]) == ["validation", "test"]
    assert corruption_source(config(root, name="svhn", corruptions=CorruptionConfig())) is None
    corruptions = CorruptionConfig(kinds=("fog",), severities=(1,))
    assert "corrupted-fog-1" in sets(config(root, name="svhn", corruptions=corruptions))[1]


def test_ood_sets_by_name_file_and_folder(root, tmp_path):
    for number in range(3):
        paint(tmp_path / "holiday" / f"{number}.png", (number, 0, 0))
    np.savez(tmp_path / "blobs.npz", images=np.full((5, 9, 9, 1), 7, np.uint8))
    requested = ("svhn", "tiny_imagenet_crop", str(tmp_path / "holiday"), str(tmp_path / "blobs.npz"), "inverted")
    splits, result = sets(config(root, ood=requested))
    ood = {name: part for name, part in result.items() if name.startswith("ood")}
    names = [f"ood-{name}" for name in ("svhn", "tiny_imagenet_crop", "holiday", "blobs", "inverted")]
    assert {name: len(part) for name, part in ood.items()} == dict(zip(names, (20, 20, 3, 5, 20), strict=True))
    assert all(part.inputs.shape[1:] == (3, 32, 32) and part.labels is None for part in ood.values())
    assert result["ood-svhn"].source == "svhn/test.npz: 20 of 20 images (20 of the 26,032 that are public)"
    assert result["ood-holiday"].inputs.amax((1, 2, 3)).tolist() == [0, 1, 2]
    torch.testing.assert_close(result["ood-inverted"].inputs, 1 - splits.test.inputs.float() / 255)


OFFICIAL = CorruptionConfig(kinds=("fog",), source="official")
REFUSED = [
    ({"name": "cifar100", "corruptions": OFFICIAL}, "labels.npy is not there. Expected the whole of CIFAR-100-C"),
    ({"name": "svhn", "corruptions": OFFICIAL}, "source: expected generated, as there are .* got official for svhn"),
    *(
        ({"name": name, "corruptions": CorruptionConfig(kinds=(kind,))}, f"kinds: expected some of .*, got {kind}")
        for name, kind in (("cifar10", "rotation"), ("digits", "fog"), ("cifar10", "hail"))
    ),
    ({"ood": ("svhn", "/some/where/svhn")}, "data.ood: expected sets of different names, got svhn, svhn"),
    ({"ood": ("lsun_crop",)}, "LSUN, cropped: .* is not there"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_not_there_is_refused(root, options, message):
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        sets(config(root, **options))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("svhn", "data.ood: expected the folder that holds the image set 'svhn', which is not made from the test"),
        ("invrted", "an .npz file or an image set .*, got 'invrted'; did you mean 'inverted'?"),
    ],
)
def test_an_ood_set_that_needs_a_folder_is_named(item, message, monkeypatch):
    monkeypatch.delenv("CGP_DATA", raising=False)
    with pytest.raises(ValueError, match=message):
        sets(DataConfig(limit_test=20, ood=(item,)))


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
