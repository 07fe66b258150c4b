"""Inputs predicted besides the test set: when they are checked, added, predicted again."""

import numpy as np
import pytest

from experiments.cli import main
from experiments.runs import Run
from experiments.runs.parsing import resolve
from tests.experiments.runs.conftest import SMALL, made
from tests.experiments.runs.typed import stopped, write_images

pytestmark = pytest.mark.usefixtures("unreported")


def sizes(run):
    """Draws and inputs of every predicted set."""
    return {name: run.predictions(name).logits.shape[:2] for name in run.predicted[2:]}


def stamps(run):
    return {path: path.stat().st_mtime_ns for path in [run.weights, *(run.folder / "predictions").glob("*.npz")]}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("data.ood=[nosuch.npz]", FileNotFoundError),
        ("data.ood=[inverted,inverted]", ValueError),
        ("data.corruptions.kinds=[fog]", ValueError),
    ],
)
def test_what_is_missing_is_found_before_the_training(tmp_path, value, error):
    with pytest.raises(error):
        made(tmp_path, "digits/softmax", value)
    run = Run(tmp_path / "digits" / "softmax" / "seed-0")
    assert not run.checkpoints.exists()
    run.check(resolve(["digits/softmax"], SMALL))  # the same run takes the corrected command


def test_other_inputs_are_added_to_a_trained_model(base, tmp_path):
    assert sizes(base) == {"corrupted-blur-1": (1, 6), "ood-inverted": (1, 10)}
    before = stamps(base)
    more = ("data.ood=[inverted,uniform-noise]", "data.corruptions.severities=[1,2]")
    made(tmp_path, "digits/softmax", *more)
    assert set(sizes(base)) == {"corrupted-blur-1", "corrupted-blur-2", "ood-inverted", "ood-uniform-noise"}
    assert before.items() <= stamps(base).items()
    assert set(base.sources) == set(sizes(base))
    assert not base.lacks(resolve(["digits/softmax"], [*SMALL, *more]))


def test_predict_adds_sets_and_all_corruptions(base, tmp_path, capsys):
    main(["predict", str(base.folder), "--ood", "[uniform-noise]", "--full"])
    blurred = {f"corrupted-blur-{severity}": (1, 30) for severity in range(1, 6)}  # the six of before again, too
    assert sizes(base) == blurred | {"ood-inverted": (1, 10), "ood-uniform-noise": (1, 10)}
    before = stamps(base)
    made(tmp_path)  # the row asks for less: what is there stays
    assert stamps(base) == before
    capsys.readouterr()
    write_images(tmp_path / "own" / "test", range(3))
    images = ["predict", str(base.folder), "--images", str(tmp_path / "own" / "test")]
    assert "images: expected alone" in stopped([*images, "--full"], capsys)
    main(images)  # they do not take the place of a set
    assert before.items() <= stamps(base).items()
    assert sizes(base)["images-test"] == (1, 3)


def test_a_derived_row_follows(base, tmp_path, capsys):
    dropout, temperature = made(tmp_path, "digits/mc_dropout"), made(tmp_path, "digits/temperature")
    more = ["--ood", "[uniform-noise]", "--full"]
    main(["predict", str(dropout.folder), *more])  # it has the model of its base
    assert {"ood-uniform-noise", "corrupted-blur-5"} <= set(sizes(dropout)) - set(sizes(base))
    made(tmp_path, "digits/mc_dropout", "evaluation.draws=3")
    assert sizes(dropout)["ood-inverted"] == (3, 10)
    refused = stopped(["predict", str(temperature.folder), *more], capsys)
    first = f"python -m experiments predict {base.folder} --ood '[uniform-noise]' --full"
    assert first in " ".join(refused.split())
    main(["predict", str(base.folder), *more])
    main(["predict", str(temperature.folder), *more])
    assert sizes(temperature) == sizes(base)
    assert temperature.record["sources"] == base.record["sources"]


def test_a_derived_row_of_other_data_is_refused(base, tmp_path):
    with pytest.raises(ValueError, match=r"expected the data of .*softmax/seed-0.*data.limit_train"):
        made(tmp_path, "digits/temperature", "data.limit_train=30")
    made(tmp_path, "digits/temperature", "data.limit_ood=5")  # which inputs are predicted may differ


def test_ensembles_and_temperatures_predict_images(base, tmp_path, capsys):
    write_images(tmp_path / "holiday", range(3))
    images = ["--images", str(tmp_path / "holiday")]
    made(tmp_path, "digits/softmax", "seed=1")
    main(["predict", str(base.folder), *images])  # nothing that blocks the ensemble
    ensemble = made(tmp_path, "digits/ensemble_softmax", "method.options.members=2")
    scaled = made(tmp_path, "digits/temperature")
    assert "images-holiday" not in sizes(ensemble)
    for run in (ensemble, scaled):
        main(["predict", str(run.folder), *images])
    first, joined, divided = (run.predictions("images-holiday").logits for run in (base, ensemble, scaled))
    assert joined.shape == (2, 3, 10)
    np.testing.assert_allclose(joined[:1], first, atol=1e-5)
    np.testing.assert_allclose(divided, first / scaled.record["chosen"]["temperature"], atol=1e-5)
    dropout = made(tmp_path, "digits/mc_dropout")
    capsys.readouterr()
    message = stopped(["predict", str(dropout.folder), *images], capsys)
    assert "got mc_dropout" in message
    assert str(base.folder) in message


@pytest.mark.parametrize(
    ("name", "command"),
    [("predictions/test.npz", "report"), ("weights.safetensors", "predict"), ("run.json", "predict")],
)
def test_a_damaged_or_missing_file_is_named(base, capsys, name, command):
    path = base.folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = stopped([command, str(base.folder)], capsys)
    assert str(path) in message
    assert "damaged" in message
    base.prediction_file("test").unlink()
    if command == "report":
        assert "test.npz is not there" in stopped(["report", str(base.folder)], capsys)


def test_one_flipped_bit_of_the_weights_is_refused(base, capsys):
    content = bytearray(base.weights.read_bytes())
    content[-1000] ^= 1
    base.weights.write_bytes(content)
    base.prediction_file("test").unlink()
    message = stopped(["predict", str(base.folder)], capsys)
    assert str(base.weights) in message
    assert "damaged file (its checksum is another)" in message
    assert not base.prediction_file("test").exists()


def test_a_sweep_of_another_configuration_is_refused_and_leaves_no_trace(base, tmp_path, capsys):
    before = {path.name for path in base.folder.iterdir()}
    options = ["--seeds", "0", "--out", str(tmp_path), "--trainer.accelerator", "cpu"]
    for more in ([], ["--print"]):
        message = stopped(["sweep", "digits/softmax", "--training.epochs=3", *options, *more], capsys)
        assert "holds a run of another configuration" in message
    assert {path.name for path in base.folder.iterdir()} == before
