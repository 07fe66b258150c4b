"""A run is tied to the data it was trained on, and to the row of its name."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

from experiments.cli import main
from experiments.configuration import DataConfig
from experiments.data import load
from experiments.runs import Run
from experiments.runs.rows import CONFIGS
from experiments.saved_predictions import load_predictions
from tests.experiments.runs.typed import QUIET, fit_folder, stopped, write_classes, write_images

pytestmark = pytest.mark.usefixtures("unreported")


def test_a_folder_of_images_may_move_but_not_become_another(trained, tmp_path, capsys):
    main(fit_folder(tmp_path / "runs", tmp_path / "images", "mc_dropout"))
    before = trained.config_file.read_text()
    write_classes(tmp_path / "others", 20)
    counts = "(16 train, 4 validation, 8 test)"
    for row in ("softmax", "mc_dropout"):
        message = stopped(fit_folder(tmp_path / "runs", tmp_path / "others", row), capsys)
        assert message.startswith(f"data: expected the examples of {trained.folder} {counts}, got others")
    assert trained.config_file.read_text() == before
    shutil.move(tmp_path / "images", tmp_path / "moved")
    main(fit_folder(tmp_path / "runs", tmp_path / "moved"))
    assert str(trained.config.data.folder) == str(tmp_path / "moved")
    trained.record_file.unlink()
    assert (trained.checkpoints / "last.ckpt").exists()  # nor does what was interrupted go on with others
    assert "expected the examples" in stopped(fit_folder(tmp_path / "runs", tmp_path / "others"), capsys)


def test_further_sets_are_predicted_of_the_same_data(trained, tmp_path, capsys):
    there = json.loads(trained._data.read_text())
    trained._data.unlink()  # as of a run before fingerprints
    main(["predict", str(trained.folder), "--ood", "[inverted]"])
    assert json.loads(trained._data.read_text()) == there
    shutil.rmtree(tmp_path / "images")
    write_classes(tmp_path / "images", 20)
    message = stopped(["predict", str(trained.folder), "--ood", "[uniform-noise]"], capsys)
    assert "expected the examples" in message
    assert not trained.prediction_file("ood-uniform-noise").exists()
    message = stopped(["predict", str(trained.folder), "--full"], capsys)
    assert "full: expected a run that predicts corrupted images" in message


def test_the_fingerprint_is_that_of_the_contents():
    splits, again, other = (load(DataConfig(limit_test=20, split_seed=seed), 0) for seed in (0, 0, 1))
    assert splits.fingerprint() == again.fingerprint() != other.fingerprint()
    prints = set()
    for value in (0, 1):
        tokens = {"tokens": torch.arange(4)[:, None] + value, "padding_mask": torch.zeros(4, 1, dtype=torch.bool)}
        part = type(splits.test)(tokens, torch.arange(4), torch.arange(4))
        prints.add(type(splits)(part, part, part, splits.description).fingerprint())
    assert len(prints) == 2


def test_what_a_run_needs_is_made_by_the_same_command(tmp_path, capsys):
    start = ["--smoke", "--out", str(tmp_path), *QUIET]
    main(["fit", "--config", "digits/kernel_asymmetric", "--seed", "0", "--reduced", "[half a start]", *start])
    main(["fit", "--config", "digits/scgpt", *start])
    words = Run(tmp_path / "digits" / "scgpt" / "seed-0").deviations
    assert "of what it starts from: half a start" in words
    assert len(set(words)) == len(words)
    write_classes(tmp_path / "images", 0)
    message = stopped(fit_folder(tmp_path, tmp_path / "images", "temperature"), capsys)
    assert "by the same command with --config .../softmax --name own/softmax --seed 0" in message


def test_images_of_another_folder_of_the_same_name_are_kept(trained, tmp_path, capsys):
    folder, other = tmp_path / "holiday", tmp_path / "elsewhere" / "holiday"
    write_images(folder, range(3))
    write_images(other, range(2))
    (folder / "a.png").mkdir()  # a folder, whatever it is called
    main(["predict", str(trained.folder), "--images", str(folder)])
    main(["predict", str(trained.folder), "--images", str(folder)])
    message = stopped(["predict", str(trained.folder), "--images", str(other)], capsys)
    assert f"images: expected a folder of another name than {folder}, got {other}" in message
    main(["predict", str(trained.folder), "--ood", "[inverted]"])
    assert len(load_predictions(trained.prediction_file("images-holiday")).ids) == 3
    shutil.move(folder, tmp_path / "summer")  # the name is free
    main(["predict", str(trained.folder), "--images", str(other)])
    assert len(load_predictions(trained.prediction_file("images-holiday")).ids) == 2


def test_a_temperature_without_an_optimum_is_reported(trained, tmp_path):
    path = trained.prediction_file("validation")
    result = load_predictions(path)
    for right, word in ((True, "right"), (False, "wrong")):
        logits = np.where((np.arange(2) == result.labels[:, None]) == right, 3.0, 0.0)[None].astype(np.float32)
        np.savez(path, logits=logits, ids=result.ids, labels=result.labels)
        main(fit_folder(tmp_path / "runs", tmp_path / "images", "temperature"))
        run = Run(tmp_path / "runs" / "own" / "temperature" / "seed-0")
        assert f"the temperature has no optimum: all 4 validation predictions are {word}" in run.deviations
        shutil.rmtree(run.folder)


def test_runs_of_ones_own_are_listed(trained, tmp_path, capsys):
    for rows in ([], ["--rows", "own"], ["--rows", "own/*"], ["--rows", "*/softmax"]):
        main(["list", *rows, "--runs", str(tmp_path / "runs")])
        listed = capsys.readouterr().out
        named, _, without = listed.partition("Rows without runs")
        assert "own/softmax" in named
        assert "digits" not in named
        assert re.search(r"^│ own/softmax +│ \[0\] +│", named, re.MULTILINE)
        assert bool(re.search(r"^ digits [^/]* softmax ", without, re.MULTILINE)) == (not rows or rows[1][0] == "*")
        assert listed.count("\n") < 60  # of some 300 rows
        blocks, _, changed = listed.partition("Methods, ")[2].partition("changed: ")
        said = re.findall(r"^ (\w+) .*Attention\(", blocks, re.MULTILINE) + re.findall(r"(\w+) \(", changed)
        every = {path.stem for path in (CONFIGS / "method").glob("*.yaml")}
        assert set(said) == ({"softmax"} if rows else every)
    assert "expected rows such as" in stopped(["list", "--rows", "nosuch", "--runs", str(tmp_path / "runs")], capsys)
