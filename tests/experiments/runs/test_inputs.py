"""What is predicted with a trained model beside its test set: when it is looked for, added, predicted again."""

import json

import numpy as np
import pytest

from experiments.cli import main
from experiments.data import load, write_stand_in
from experiments.runs import Run
from experiments.runs.fitting import perform
from experiments.runs.parsing import resolve
from experiments.runs.prediction import load_predictions
from experiments.training.fit import QUIET
from tests.experiments.runs.test_commands import stopped, write_images

SMALL = [
    *("training.epochs=1", "training.warmup_epochs=0", "training.validation_draws=1", "evaluation.draws=2"),
    *("data.limit_train=40", "data.limit_validation=20", "data.limit_test=30", "data.limit_ood=10"),
    *("data.corruptions.kinds=[blur]", "data.corruptions.severities=[1]", "data.corruptions.limit=6"),
    "data.ood=[inverted]",
]


def small(row, *values):
    return resolve([row], [*SMALL, *values])


def made(out, row="digits/softmax", *values):
    return perform(small(row, *values), out=out, trainer=QUIET)


def sizes(run):
    """Draws and inputs of every predicted set."""
    found = {path.stem: load_predictions(path).logits.shape[:2] for path in (run.folder / "predictions").glob("*.npz")}
    return {name: size for name, size in found.items() if name not in ("test", "validation")}


def record(run):
    return json.loads(run.record_file.read_text())


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
    made(tmp_path)  # the same run takes the corrected command
    assert run.is_complete


def test_other_inputs_are_added_to_a_trained_model(tmp_path):
    run = made(tmp_path)
    assert sizes(run) == {"corrupted-blur-1": (1, 6), "ood-inverted": (1, 10)}
    weights, before = run.weights.stat().st_mtime_ns, (run.prediction_file("test")).stat().st_mtime_ns
    more = ("data.ood=[inverted,uniform-noise]", "data.corruptions.severities=[1,2]")
    made(tmp_path, "digits/softmax", *more)
    assert set(sizes(run)) == {
        *("corrupted-blur-1", "corrupted-blur-2"),
        *("ood-inverted", "ood-uniform-noise"),
    }
    assert run.weights.stat().st_mtime_ns == weights
    assert (run.prediction_file("test")).stat().st_mtime_ns == before
    assert set(record(run)["sources"]) == set(sizes(run))
    assert not run.lacks(small("digits/softmax", *more))


def test_predict_adds_sets_and_all_corruptions(tmp_path, capsys):
    run = made(tmp_path)
    main(["predict", str(run.folder), "--ood", "[uniform-noise]", "--full"])
    blurred = {f"corrupted-blur-{severity}": (1, 30) for severity in range(1, 6)}  # the six of before again, too
    assert sizes(run) == blurred | {"ood-inverted": (1, 10), "ood-uniform-noise": (1, 10)}
    stamps = {path: path.stat().st_mtime_ns for path in (run.folder / "predictions").glob("*.npz")}
    made(tmp_path)  # the row asks for less: what is there stays
    assert {path: path.stat().st_mtime_ns for path in (run.folder / "predictions").glob("*.npz")} == stamps
    capsys.readouterr()
    write_images(tmp_path / "own", range(2))
    both = ["predict", str(run.folder), "--images", str(tmp_path / "own"), "--full"]
    assert "images: expected alone" in stopped(both, capsys)


def test_other_draws_are_drawn_again(tmp_path):
    run = made(tmp_path, "digits/cgp_direct")
    assert sizes(run)["corrupted-blur-1"] == (2, 6)
    made(tmp_path, "digits/cgp_direct", "evaluation.draws=3")
    assert sizes(run) == {"corrupted-blur-1": (3, 6), "ood-inverted": (3, 10)}
    assert len(load_predictions(run.prediction_file("test")).logits) == 3


def test_a_derived_row_follows(tmp_path):
    made(tmp_path)
    run = made(tmp_path, "digits/mc_dropout")
    more = ("data.ood=[inverted,uniform-noise]", "evaluation.draws=3")
    made(tmp_path, "digits/softmax", *more)
    made(tmp_path, "digits/mc_dropout", *more)
    assert sizes(run)["ood-uniform-noise"] == (3, 10)
    assert sizes(run)["ood-inverted"] == (3, 10)
    assert set(record(run)["sources"]) == set(sizes(run))


def test_predict_takes_a_derived_row_too(tmp_path, capsys):
    base = made(tmp_path)
    temperature, dropout = made(tmp_path, "digits/temperature"), made(tmp_path, "digits/mc_dropout")
    more = ["--ood", "[uniform-noise]", "--full"]
    main(["predict", str(dropout.folder), *more])  # it has the model of its base
    assert {"ood-uniform-noise", "corrupted-blur-5"} <= set(sizes(dropout)) - set(sizes(base))
    refused = stopped(["predict", str(temperature.folder), *more], capsys)
    first = f"python -m experiments predict {base.folder} --ood '[uniform-noise]' --full"
    assert first in " ".join(refused.split())
    main(["predict", str(base.folder), *more])
    main(["predict", str(temperature.folder), *more])
    assert sizes(temperature) == sizes(base)
    assert record(temperature)["sources"] == record(base)["sources"]


def test_a_derived_row_of_other_data_is_refused(tmp_path):
    made(tmp_path)
    with pytest.raises(ValueError, match=r"digits/mc_dropout: expected the data of .*limit_train 40 there, 50 here"):
        made(tmp_path, "digits/mc_dropout", "data.limit_train=50")
    made(tmp_path, "digits/temperature", "data.limit_ood=5")  # which inputs are predicted may differ


def test_what_a_start_was_reduced_to_is_said(tmp_path):
    made(tmp_path, "digits/kernel_asymmetric", "reduced=[half a start]")
    words = made(tmp_path, "digits/cgpt").deviations
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
    experiment = resolve(["cifar10/softmax"], values)
    run = perform(experiment, out=tmp_path / "runs", trainer=QUIET)
    assert record(run)["corruptions"] == "generated"
    generated = load_predictions(run.prediction_file("corrupted-fog-1")).logits
    dropout = perform(resolve(["cifar10/mc_dropout"], values), out=tmp_path / "runs", trainer=QUIET)
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
    main(["predict", str(run.folder)])  # the files have come: they are taken instead of ours
    assert record(run)["corruptions"] == "official"
    assert record(run)["sources"] == {"corrupted-fog-1": "CIFAR-10-C"}
    assert not np.allclose(load_predictions(run.prediction_file("corrupted-fog-1")).logits, generated)
    before = load_predictions(dropout.prediction_file("corrupted-fog-1")).logits
    main(["predict", str(dropout.folder)])
    assert record(dropout)["sources"] == {"corrupted-fog-1": "CIFAR-10-C"}
    assert not np.allclose(load_predictions(dropout.prediction_file("corrupted-fog-1")).logits, before)


def test_images_of_ones_own_do_not_take_the_place_of_a_set(tmp_path):
    run = made(tmp_path)
    before = (run.prediction_file("test")).read_bytes()
    write_images(tmp_path / "own" / "test", range(3))
    main(["predict", str(run.folder), "--images", str(tmp_path / "own" / "test")])
    assert (run.prediction_file("test")).read_bytes() == before
    assert sizes(run)["images-test"] == (1, 3)


def test_ensembles_and_temperatures_predict_images(tmp_path, capsys):
    write_images(tmp_path / "holiday", range(3))
    members = [made(tmp_path, "digits/softmax", f"seed={seed}") for seed in range(5)]
    main(["predict", str(members[0].folder), "--images", str(tmp_path / "holiday")])  # nothing that blocks the ensemble
    ensemble, scaled = made(tmp_path, "digits/ensemble_softmax"), made(tmp_path, "digits/temperature")
    assert "images-holiday" not in sizes(ensemble)
    for run in (ensemble, scaled):
        main(["predict", str(run.folder), "--images", str(tmp_path / "holiday")])
    first, joined, divided = (
        load_predictions(run.prediction_file("images-holiday")).logits for run in (members[0], ensemble, scaled)
    )
    assert joined.shape == (5, 3, 10)
    np.testing.assert_allclose(joined[:1], first, atol=1e-5)
    np.testing.assert_allclose(divided, first / record(scaled)["chosen"]["temperature"], atol=1e-5)
    dropout = made(tmp_path, "digits/mc_dropout")
    capsys.readouterr()
    said = stopped(["predict", str(dropout.folder), "--images", str(tmp_path / "holiday")], capsys)
    assert "got mc_dropout" in said
    assert str(members[0].folder) in said


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("predictions/test.npz", "report"),
        ("weights.safetensors", "predict"),
        ("run.json", "predict"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, capsys, name, command):
    run = made(tmp_path)
    path = run.folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    said = stopped([command, str(run.folder)], capsys)
    assert str(path) in said
    assert "damaged" in said


def test_a_missing_file_is_named(tmp_path, capsys):
    run = made(tmp_path)
    (run.prediction_file("test")).unlink()
    assert "test.npz is not there" in stopped(["report", str(run.folder)], capsys)


def test_a_sweep_of_another_configuration_is_refused_and_leaves_no_trace(tmp_path, capsys):
    run = made(tmp_path)
    before = {path.name for path in run.folder.iterdir()}
    options = ["--seeds", "0", "--out", str(tmp_path), "--trainer.accelerator", "cpu"]
    for more in ([], ["--print"]):
        said = stopped(["sweep", "digits/softmax", "--training.epochs=3", *options, *more], capsys)
        assert "holds a run of another configuration" in said
    assert {path.name for path in run.folder.iterdir()} == before
