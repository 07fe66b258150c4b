"""A run's folder: whose it is, and what is said of it."""

import dataclasses

import pytest

from experiments.runner import RunFolder, experiment_from


def complete(path, experiment):
    """A folder of a complete run whose data say one thing more."""
    folder = RunFolder(path)
    folder.claim(experiment)
    said = [*experiment.departures, *experiment.reduced, "100 of 1,077 train examples"]
    folder.complete({"label": experiment.method.label, "reduced": said, "seconds_per_epoch": 2.5})
    return folder


def test_a_departure_found_out_after_a_run_is_taken_over(tmp_path):
    experiment = experiment_from(["cola/softmax"])
    folder = complete(tmp_path, experiment)
    told = dataclasses.replace(experiment, departures=["found out later"], reduced=["8 epochs"])
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
    other = dataclasses.replace(experiment, departures=["other"], seed=1)
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
