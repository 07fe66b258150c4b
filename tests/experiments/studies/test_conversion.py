"""The study of conversion in small: random images, one step, a few rows."""

import pytest
import torch

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.studies.conversion.compare import METHODS, Task, calibration_images, compare, timing
from experiments.studies.conversion.training import cifar10, train, trained
from tests.experiments.data.stand_ins import write_stand_in

FEW = CorruptionConfig(kinds=("gaussian_noise", "contrast"), severities=(1, 5), limit=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name, count, side in (
        ("cifar10", 500, 32),
        ("cifar100", 20, 32),
        ("textures", 20, 32),
        ("tiny_imagenet", 20, 64),
    ):
        write_stand_in(root, name, count=count, side=side)
    return root


@pytest.fixture(scope="module")
def out(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    train(data=data, out=folder, epochs=1, limit=64)
    return folder


def parts_of(data, **options):
    return cifar10(DataConfig(name="cifar10", root=data, unchecked=True, **options))


def test_the_parts_do_not_meet_and_are_all_of_it(data):
    splits, calibration = parts_of(data)
    ids = torch.cat([splits.train.ids, splits.validation.ids, calibration.ids])
    assert [len(part) for part in (splits.train, splits.validation, calibration)] == [450, 40, 10]
    assert torch.equal(ids.sort().values, torch.arange(500))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_a_share_of_the_images_is_corrupted_and_nothing_else_changes(data, share):
    splits, _ = parts_of(data)
    clean, labels = calibration_images(splits.train, 0.0)
    images, same = calibration_images(splits.train, share)
    assert (images != clean).flatten(1).any(1).sum() == round(share * 450)
    assert torch.equal(labels, same)
    torch.testing.assert_close(clean, splits.train.images.float() / 255)


def test_a_trained_transformer_is_read_again(data, out):
    images = parts_of(data, limit_test=8)[0].test.images.float() / 255
    model = trained(out)
    assert not model.training
    torch.testing.assert_close(trained(out)(images), model(images), rtol=0, atol=0)
    assert train(data=data, out=out).exists()  # does nothing again


@pytest.mark.parametrize("name", METHODS)
def test_methods_leave_the_model_alone(data, out, name):
    splits, calibration = parts_of(data, limit_train=40, limit_test=8)
    task = Task(trained(out), splits.train, calibration, draws=3)
    before = {key: value.clone() for key, value in task.model.state_dict().items()}
    images = splits.test.images.float() / 255
    logits = METHODS[name](task)(images)
    assert logits.shape == (1 if name.startswith(("softmax", "temperature")) else 3, 8, 10)
    # The best likelihood on labels at random is that of no variance at all.
    assert len(logits) == 1 or name.endswith("likelihood") or not torch.equal(logits[0], logits[1])
    for key, value in task.model.state_dict().items():
        assert torch.equal(value, before[key]), key
    if name.startswith("temperature"):
        ratio = task.model(images).detach() / logits[0]
        torch.testing.assert_close(ratio, ratio.median().expand_as(ratio), rtol=1e-4, atol=0.0)


def test_predictions_are_kept_and_the_table_follows_from_them(data, out, monkeypatch):
    monkeypatch.setenv("CGP_CACHE", str(out / "cache"))
    options = {"data": data, "out": out, "corruptions": FEW, "ood": 10, "limit": 40, "draws": 2}
    rows = ["softmax, as trained", "temperature", "GP in the first layer"]
    compare(methods=rows, **options)
    table = (out / "conversion.md").read_text().replace("\\_", "_")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert [line[0] for line in lines][2:] == rows
    assert lines[0][1:] == [
        *("accuracy", "nll", "ece", "aurc"),
        *("corrupted accuracy", "corrupted nll", "corrupted ece", "corrupted aurc"),
        *("AUROC ood-cifar100", "AUROC ood-textures", "AUROC ood-tiny_imagenet_resize"),
    ]
    assert lines[2][1] == lines[3][1]  # a temperature changes no answer
    kept = out / "rows" / "softmax-as-trained" / "test.npy"
    stamp = kept.stat().st_mtime_ns
    compare(methods=rows[:1], **options)
    assert kept.stat().st_mtime_ns == stamp


def test_what_is_not_there_is_refused(data, out, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"experiments\.studies\.conversion train"):
        trained(tmp_path)
    with pytest.raises(ValueError, match="methods: expected some of"):
        compare(data=data, out=out, methods=["magic"])


def test_timing_writes_a_row_for_every_conversion(data, out):
    timing(data=data, out=out, draws=(1,), batch_size=4, rounds=2)
    rows = (out / "timing.md").read_text().splitlines()[2:]
    assert len(rows) == 8
    assert all(float(row.split(" | ")[1].strip(" |")) > 0 for row in rows)
