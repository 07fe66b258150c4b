"""What is predicted with a trained model beside its test set: when it is looked for, added, predicted again."""

import csv
import json

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from experiments.cli import main
from experiments.data import load, write_stand_in
from experiments.evaluation import DETECTORS
from experiments.runs.prediction import load_predictions
from experiments.runs import RunFolder, experiment_from
from experiments.runs.fitting import perform
from experiments.runs.reporting import report_run
from experiments.training.fit import QUIET
from tests.experiments.runs.test_commands import stopped, write_images

SMALL = [
    *("training.epochs=1", "training.warmup_epochs=0", "training.validation_draws=1", "evaluation.draws=2"),
    *("data.limit_train=40", "data.limit_validation=20", "data.limit_test=30", "data.limit_ood=10"),
    *("data.corruptions.kinds=[blur]", "data.corruptions.severities=[1]", "data.corruptions.limit=6"),
    "data.ood=[inverted]",
]


def small(row, *values):
    return experiment_from([row], [*SMALL, *values])


def made(out, row="digits/softmax", *values):
    return perform(small(row, *values), out=out, trainer=QUIET)


def sizes(folder):
    """Draws and inputs of every predicted set."""
    found = {path.stem: load_predictions(path).logits.shape[:2] for path in folder.predictions.glob("*.npz")}
    return {name: size for name, size in found.items() if name not in ("test", "validation")}


def record(folder):
    return json.loads(folder.summary.read_text())


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
    folder = RunFolder(tmp_path / "digits" / "softmax" / "seed-0")
    assert not folder.checkpoints.exists()
    made(tmp_path)  # the same folder takes the corrected command
    assert folder.is_complete


def test_other_inputs_are_added_to_a_trained_model(tmp_path):
    folder = made(tmp_path)
    assert sizes(folder) == {"corrupted-blur-1": (1, 6), "ood-inverted": (1, 10)}
    weights, before = folder.weights.stat().st_mtime_ns, (folder.predictions / "test.npz").stat().st_mtime_ns
    more = ("data.ood=[inverted,uniform-noise]", "data.corruptions.severities=[1,2]")
    made(tmp_path, "digits/softmax", *more)
    assert set(sizes(folder)) == {
        *("corrupted-blur-1", "corrupted-blur-2"),
        *("ood-inverted", "ood-uniform-noise"),
    }
    assert folder.weights.stat().st_mtime_ns == weights
    assert (folder.predictions / "test.npz").stat().st_mtime_ns == before
    assert set(record(folder)["sources"]) == set(sizes(folder))
    assert not folder.lacks(small("digits/softmax", *more))


def test_predict_adds_sets_and_all_corruptions(tmp_path, capsys):
    folder = made(tmp_path)
    main(["predict", str(folder.path), "--ood", "[uniform-noise]", "--full"])
    blurred = {f"corrupted-blur-{severity}": (1, 30) for severity in range(1, 6)}  # the six of before again, too
    assert sizes(folder) == blurred | {"ood-inverted": (1, 10), "ood-uniform-noise": (1, 10)}
    assert "ood-uniform-noise" in (folder.path / "report.html").read_text()
    stamps = {path: path.stat().st_mtime_ns for path in folder.predictions.glob("*.npz")}
    made(tmp_path)  # the row asks for less: what is there stays
    assert {path: path.stat().st_mtime_ns for path in folder.predictions.glob("*.npz")} == stamps
    capsys.readouterr()
    write_images(tmp_path / "own", range(2))
    both = ["predict", str(folder.path), "--images", str(tmp_path / "own"), "--full"]
    assert "images: expected alone" in stopped(both, capsys)


def test_other_draws_are_drawn_again(tmp_path):
    folder = made(tmp_path, "digits/cgp_direct")
    assert sizes(folder)["corrupted-blur-1"] == (2, 6)
    made(tmp_path, "digits/cgp_direct", "evaluation.draws=3")
    assert sizes(folder) == {"corrupted-blur-1": (3, 6), "ood-inverted": (3, 10)}
    assert len(load_predictions(folder.predictions / "test.npz").logits) == 3


def test_a_derived_row_follows(tmp_path):
    made(tmp_path)
    folder = made(tmp_path, "digits/mc_dropout")
    more = ("data.ood=[inverted,uniform-noise]", "evaluation.draws=3")
    made(tmp_path, "digits/softmax", *more)
    made(tmp_path, "digits/mc_dropout", *more)
    assert sizes(folder)["ood-uniform-noise"] == (3, 10)
    assert sizes(folder)["ood-inverted"] == (3, 10)
    assert set(record(folder)["sources"]) == set(sizes(folder))


def test_predict_takes_a_derived_row_too(tmp_path, capsys):
    base = made(tmp_path)
    temperature, dropout = made(tmp_path, "digits/temperature"), made(tmp_path, "digits/mc_dropout")
    more = ["--ood", "[uniform-noise]", "--full"]
    main(["predict", str(dropout.path), *more])  # it has the model of its base
    assert {"ood-uniform-noise", "corrupted-blur-5"} <= set(sizes(dropout)) - set(sizes(base))
    refused = stopped(["predict", str(temperature.path), *more], capsys)
    first = f"python -m experiments predict {base.path} --ood '[uniform-noise]' --full"
    assert first in " ".join(refused.split())
    main(["predict", str(base.path), *more])
    main(["predict", str(temperature.path), *more])
    assert sizes(temperature) == sizes(base)
    assert record(temperature)["sources"] == record(base)["sources"]


def test_a_derived_row_of_other_data_is_refused(tmp_path):
    made(tmp_path)
    with pytest.raises(ValueError, match=r"digits/mc_dropout: expected the data of .*limit_train 40 there, 50 here"):
        made(tmp_path, "digits/mc_dropout", "data.limit_train=50")
    made(tmp_path, "digits/temperature", "data.limit_ood=5")  # which inputs are predicted may differ


def test_what_a_start_was_reduced_to_is_said(tmp_path):
    made(tmp_path, "digits/kernel_asymmetric", "reduced=[half a start]")
    words = record(made(tmp_path, "digits/cgpt"))["reduced"]
    assert "of what it starts from: half a start" in words
    assert len(set(words)) == len(words)


def test_published_corruptions_are_called_published(tmp_path):
    root = tmp_path / "data"
    write_stand_in(root, "cifar10", count=40)
    values = [
        *SMALL,
        *(f"data.root={root}", f"data.cache={tmp_path / 'cache'}", "data.unchecked=true", "data.ood=[]"),
        *("data.corruptions.kinds=[fog]", "model.depth=1", "model.embed_dim=16", "model.mlp_dim=16"),
    ]
    experiment = experiment_from(["cifar10/softmax"], values)
    folder = perform(experiment, out=tmp_path / "runs", trainer=QUIET)
    assert record(folder)["corruptions"] == "generated"
    generated = load_predictions(folder.predictions / "corrupted-fog-1.npz").logits
    dropout = perform(experiment_from(["cifar10/mc_dropout"], values), out=tmp_path / "runs", trainer=QUIET)
    assert record(dropout)["corruptions"] == "generated"

    official = root / "CIFAR-10-C"
    official.mkdir()
    labels = np.zeros((5, 10000), np.uint8)
    test = load(experiment.data, 0).test
    labels[:, test.ids] = test.labels
    np.save(official / "labels.npy", labels.reshape(-1))
    images = np.lib.format.open_memmap(official / "fog.npy", mode="w+", dtype=np.uint8, shape=(50000, 32, 32, 3))
    images[:40] = 99
    images.flush()
    main(["predict", str(folder.path)])  # the files have come: they are taken instead of ours
    assert record(folder)["corruptions"] == "official"
    assert record(folder)["sources"] == {"corrupted-fog-1": "CIFAR-10-C"}
    assert not np.allclose(load_predictions(folder.predictions / "corrupted-fog-1.npz").logits, generated)
    before = load_predictions(dropout.predictions / "corrupted-fog-1.npz").logits
    main(["predict", str(dropout.path)])
    assert record(dropout)["sources"] == {"corrupted-fog-1": "CIFAR-10-C"}
    assert not np.allclose(load_predictions(dropout.predictions / "corrupted-fog-1.npz").logits, before)


def test_images_of_ones_own_do_not_take_the_place_of_a_set(tmp_path):
    folder = made(tmp_path)
    before = (folder.predictions / "test.npz").read_bytes()
    write_images(tmp_path / "own" / "test", range(3))
    main(["predict", str(folder.path), "--images", str(tmp_path / "own" / "test")])
    assert (folder.predictions / "test.npz").read_bytes() == before
    assert sizes(folder)["images-test"] == (1, 3)


def test_ensembles_and_temperatures_predict_images(tmp_path, capsys):
    write_images(tmp_path / "holiday", range(3))
    members = [made(tmp_path, "digits/softmax", f"seed={seed}") for seed in range(5)]
    main(["predict", str(members[0].path), "--images", str(tmp_path / "holiday")])  # nothing that blocks the ensemble
    ensemble, scaled = made(tmp_path, "digits/ensemble_softmax"), made(tmp_path, "digits/temperature")
    assert "images-holiday" not in sizes(ensemble)
    for folder in (ensemble, scaled):
        main(["predict", str(folder.path), "--images", str(tmp_path / "holiday")])
    first, joined, divided = (
        load_predictions(folder.predictions / "images-holiday.npz").logits for folder in (members[0], ensemble, scaled)
    )
    assert joined.shape == (5, 3, 10)
    np.testing.assert_allclose(joined[:1], first, atol=1e-5)
    np.testing.assert_allclose(divided, first / record(scaled)["chosen"]["temperature"], atol=1e-5)
    dropout = made(tmp_path, "digits/mc_dropout")
    capsys.readouterr()
    said = stopped(["predict", str(dropout.path), "--images", str(tmp_path / "holiday")], capsys)
    assert "got mc_dropout" in said
    assert str(members[0].path) in said


def test_every_detector_is_in_the_report_of_any_data(tmp_path):
    folder = made(tmp_path)
    report_run(folder, "pooled")
    rows = list(csv.DictReader((folder.path / "detection.csv").read_text().splitlines()))
    assert [row["detector"] for row in rows] == list(DETECTORS)
    test, strange = (
        load_predictions(folder.predictions / f"{n}.npz").logits[0] for n in ("test", "ood-inverted")
    )
    positive = np.repeat([0, 1], [len(test), len(strange)])
    confidence = np.concatenate([softmax(test, -1).max(-1), softmax(strange, -1).max(-1)])
    (row,) = (row for row in rows if row["detector"] == "MaxSoftmax")
    assert float(row["auroc"]) == pytest.approx(roc_auc_score(positive, -confidence), abs=1e-6)
    assert "MaxSoftmax" in (folder.path / "report.html").read_text()


@pytest.mark.parametrize("right", [True, False])
def test_a_report_of_predictions_that_are_all_right_or_all_wrong(tmp_path, right):
    folder = made(tmp_path)
    found = load_predictions(folder.predictions / "test.npz")
    labels = found.logits[0].argmax(-1) if right else (found.logits[0].argmax(-1) + 1) % 10
    np.savez(folder.predictions / "test.npz", logits=found.logits, ids=found.ids, labels=labels)
    report_run(folder, "pooled")
    assert "Confidence on the test set" in (folder.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("predictions/test.npz", "test"),
        ("diagnostics.npz", "test"),
        ("weights.safetensors", "predict"),
        ("run.json", "test"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, capsys, name, command):
    folder = made(tmp_path)
    path = folder.path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    said = stopped([command, str(folder.path)], capsys)
    assert str(path) in said
    assert "damaged" in said


def test_a_missing_file_is_named(tmp_path, capsys):
    folder = made(tmp_path)
    (folder.predictions / "test.npz").unlink()
    assert "test.npz is not there" in stopped(["plot", str(folder.path)], capsys)


def test_a_sweep_of_another_configuration_is_refused_and_leaves_no_trace(tmp_path, capsys):
    folder = made(tmp_path)
    before = {path.name for path in folder.path.iterdir()}
    options = ["--seeds", "0", "--out", str(tmp_path), "--trainer.accelerator", "cpu"]
    for more in ([], ["--print"]):
        said = stopped(["sweep", "digits/softmax", "--settings", "[training.epochs=3]", *options, *more], capsys)
        assert "holds a run of another configuration" in said
    assert {path.name for path in folder.path.iterdir()} == before
