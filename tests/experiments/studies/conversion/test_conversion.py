"""The proof of conversion in small: random images, one step, a few rows."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

from experiments.data import CorruptionConfig
from experiments.runs.prediction import load_predictions
from experiments.studies.conversion.compare import compare
from experiments.studies.conversion.methods import METHODS, Task, validation_part
from experiments.studies.conversion.parts import cifar10_parts
from experiments.studies.conversion.training import train, trained

SIZES = {"cifar10/train": 5064, "cifar10/test": 30, "cifar100/test": 20, "textures/test": 20, "tiny_imagenet/test": 20}
FEW = CorruptionConfig(kinds=("gaussian_noise", "contrast"), severities=(1, 5), limit=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, count in SIZES.items():
        (root / name).parent.mkdir(exist_ok=True)
        side = 64 if name.startswith("tiny") else 32
        images = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        np.savez(root / f"{name}.npz", images=images, labels=np.arange(count) % 10)
    return root


@pytest.fixture(scope="module")
def out(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    train(data=data, out=folder, epochs=1, limit=64)
    return folder


def test_the_parts_do_not_meet_and_are_all_of_it(data):
    parts = cifar10_parts(data)
    ids = torch.cat([part.ids for part in parts[:3]])
    assert [len(part.ids) for part in parts] == [64, 4000, 1000, 30]
    assert torch.equal(ids.sort().values, torch.arange(5064))


@pytest.mark.parametrize(("kind", "count"), [("clean", 0), ("tenth", 100), ("fifth", 200), ("disturbed", 500)])
def test_some_images_are_disturbed_and_nothing_else_changes(data, kind, count):
    parts = cifar10_parts(data)
    part = validation_part(parts, kind)
    assert (part.images != parts.calibration.images).flatten(1).any(1).sum() == count
    assert torch.equal(part.labels, parts.calibration.labels)


def test_a_trained_transformer_is_read_again(data, out):
    images = cifar10_parts(data, 5).test.images
    model = trained(out)
    assert not model.training
    torch.testing.assert_close(trained(out)(images), model(images), rtol=0, atol=0)
    assert train(data=data, out=out).exists()  # does nothing again


def test_nothing_was_trained(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"experiments\.conversion train"):
        trained(tmp_path)


@pytest.mark.parametrize("name", ["GP in the second layer and temperature, a fifth disturbed", "GP in the last layer"])
def test_conversion_and_calibration_leave_the_model_alone(data, out, name):
    task = Task(trained(out), cifar10_parts(data, 40), draws=3, steps=2)
    before = {key: value.clone() for key, value in task.model.state_dict().items()}
    logits = METHODS[name](task).logits(task.parts.test.images)
    assert logits.shape == (3, 30, 10)
    assert not torch.equal(logits[0], logits[1])
    for key, value in task.model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_rows_are_kept_and_the_tables_follow_from_them(data, out, monkeypatch):
    monkeypatch.setenv("CGP_CACHE", str(out / "cache"))
    options = {"data": data, "out": out, "corruptions": FEW, "ood": 10, "limit": 40, "draws": 2, "steps": 1}
    compare(methods=["softmax, as trained", "GP in the last layer"], **options)
    with (out / "conversion.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows)[:2] == ["softmax, as trained", "temperature"]
    assert len(rows) == 6  # and three further temperatures, from the same predictions
    assert rows["temperature"]["accuracy"] == rows["softmax, as trained"]["accuracy"]
    original, divided = (load_predictions(out / "rows" / n / "test.npz") for n in ("softmax-as-trained", "temperature"))
    note = json.loads((out / "rows" / "temperature" / "fit.json").read_text())["note"]
    ratio = torch.from_numpy(original.logits).double() / torch.from_numpy(divided.logits).double()
    assert note.startswith(f"T = {ratio.median():.3f};")
    torch.testing.assert_close(ratio, ratio.median().expand_as(ratio), rtol=1e-5, atol=0.0)
    stamp = (out / "rows" / "softmax-as-trained" / "test.npz").stat().st_mtime_ns
    compare(methods=["softmax, as trained"], **options)
    assert (out / "rows" / "softmax-as-trained" / "test.npz").stat().st_mtime_ns == stamp
    assert (out / "conversion.md").read_text().count("\n") == 8


def test_unknown_rows_are_refused(data, out):
    with pytest.raises(ValueError, match="methods: expected some of"):
        compare(data=data, out=out, methods=["magic"])
