"""A run's folder: whose it is, and what is said of it."""

import dataclasses

import pytest
import yaml

from experiments.runs import RunFolder, experiment_from


def complete(path, experiment):
    """A folder of a complete run whose data say one thing more."""
    folder = RunFolder(path)
    folder.claim(experiment)
    said = [*experiment.deviations, *experiment.reduced, "100 of 1,077 train examples"]
    folder.complete({"label": experiment.method.label, "reduced": said, "seconds_per_epoch": 2.5})
    return folder


def test_a_deviation_found_out_after_a_run_is_taken_over(tmp_path):
    experiment = experiment_from(["cola/softmax"])
    folder = complete(tmp_path, experiment)
    told = dataclasses.replace(experiment, deviations=["found out later"], reduced=["8 epochs"])
    told = dataclasses.replace(told, method=dataclasses.replace(told.method, label="Soft"))
    RunFolder(tmp_path).claim(told)
    summary = folder.read_summary()
    assert summary["reduced"] == ["found out later", "8 epochs", "100 of 1,077 train examples"]
    assert (summary["label"], summary["seconds_per_epoch"]) == ("Soft", 2.5)
    assert folder.plain_config() == told.plain()
    folder.claim(told)
    assert folder.read_summary() == summary


def test_words_do_not_hide_another_configuration(tmp_path):
    experiment = experiment_from(["cola/softmax"])
    folder = complete(tmp_path, experiment)
    before = folder.config.read_text(), folder.summary.read_text()
    other = dataclasses.replace(experiment, deviations=["other"], seed=1)
    with pytest.raises(ValueError, match=r"another configuration \(seed: 0 there, 1 asked for\)"):
        folder.claim(other)
    assert (folder.config.read_text(), folder.summary.read_text()) == before


def test_data_may_have_moved(tmp_path):
    experiment = experiment_from(["cola/softmax"])
    folder = complete(tmp_path, experiment)
    folder.claim(
        dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, root=tmp_path / "elsewhere"))
    )
    with pytest.raises(ValueError, match=r"another configuration \(data.split: 'selected' there, 'pooled' asked for\)"):
        folder.claim(dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, split="pooled")))


def test_where_nothing_was_trained_any_configuration_may_come(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(experiment_from(["cola/softmax"]))
    other = experiment_from(["cola/softmax"], ["training.epochs=3"])
    folder.claim(other)
    assert folder.plain_config() == other.plain()
    folder.checkpoints.mkdir()
    with pytest.raises(ValueError, match="another configuration"):
        folder.claim(experiment_from(["cola/softmax"]))


def test_a_setting_that_came_later_had_its_default(tmp_path):
    experiment = experiment_from(["cifar10/sgpa"])
    folder = complete(tmp_path, experiment)
    older = folder.plain_config()
    for part, key in (("training", "share"), ("data", "corruptions"), ("method", "annealing")):
        del older[part][key]
    folder.config.write_text(yaml.safe_dump(older), encoding="utf-8")
    # `annealing` has a value in this row: without it, another run is there.
    with pytest.raises(ValueError, match=r"another configuration \(method.annealing: 0.0 there, 0.5 asked for\)"):
        folder.claim(experiment)
    older["method"]["annealing"] = 0.5
    folder.config.write_text(yaml.safe_dump(older), encoding="utf-8")
    folder.claim(experiment)


def test_a_share_of_the_epochs_is_trained():
    reduced = ["reduced/cifar10"]
    epochs = [experiment_from([f"cifar10/{row}", *reduced]).epochs for row in ("softmax", "kernel_start", "cgpt")]
    assert epochs == [12, 4, 8]
    with pytest.raises(ValueError, match=r"training.share: expected a share of the epochs in \(0, 1\], got 0"):
        dataclasses.replace(experiment_from(["cola/softmax"]).training, share=0)
