"""Folders of runs: found, read, refused."""

import numpy as np
import pytest

from experiments.reports.papers.runs import find_runs, logits_shape, read_predictions
from tests.experiments.reports.papers.folders import random_logits, write_run


def test_runs_are_found_in_order_and_unfinished_ones_are_not(tmp_path):
    write_run(tmp_path, "cola", "sgpa", 10)
    write_run(tmp_path, "cola", "sgpa", 2, record={"seconds_per_epoch": 3.0}, config={"data": {"name": "cola"}})
    write_run(tmp_path, "cola", "cgpt", 0, complete=False)
    write_run(tmp_path, "cifar10", "softmax", 1)
    (tmp_path / "cola" / "sgpa" / "seed-last").mkdir()
    found = find_runs(tmp_path)
    assert [(run.data, run.method, run.seed) for run in found] == [
        ("cifar10", "softmax", 1),
        ("cola", "sgpa", 2),
        ("cola", "sgpa", 10),
    ]
    assert found[1].record == {"seconds_per_epoch": 3.0}
    assert found[1].config == {"data": {"name": "cola"}}


def test_input_sets_are_found_whatever_their_spelling(tmp_path):
    logits, labels = random_logits(samples=5)
    names = (
        "ood-TinyImageNet-Crop",
        "corrupted-Gaussian-Noise-3",
        "corrupted-jpeg-1",
        "corrupted-gaussian_noise-1",
    )
    write_run(tmp_path, "cifar10", "cgpt", sets=dict.fromkeys(names, (logits, labels)))
    (run,) = find_runs(tmp_path)
    assert run.file("ood-tiny_imagenet_crop").stem == names[0]
    assert run.file("test") is None
    assert {kind: list(files) for kind, files in run.corrupted().items()} == {
        "gaussian_noise": [1, 3],
        "jpeg_compression": [1],
    }


def test_files_are_joined_along_samples(tmp_path):
    parts = [random_logits(samples=n, num_samples=3, seed=n) for n in (4, 6)]
    folder = write_run(tmp_path, "cifar10", "cgpt", sets={"a": parts[0], "b": parts[1]})
    logits, labels = read_predictions([folder / "predictions" / "a.npz", folder / "predictions" / "b.npz"])
    np.testing.assert_array_equal(logits, np.concatenate([parts[0][0], parts[1][0]], axis=1))
    np.testing.assert_array_equal(labels, np.concatenate([parts[0][1], parts[1][1]]))
    assert logits_shape(folder / "predictions" / "a.npz") == (3, 4, 10)


def test_damaged_files_are_named(tmp_path):
    folder = write_run(tmp_path, "cifar10", "cgpt", sets={"test": random_logits(samples=50)}) / "predictions"
    path = folder / "test.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"test\.npz: expected arrays, got a damaged file"):
        read_predictions([path])
    with pytest.raises(ValueError, match=r"test\.npz: expected a file of logits"):
        logits_shape(path)
    np.savez(folder / "flat.npz", logits=np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"flat\.npz: expected logits \(draws, samples, classes\), got \(4, 2\)"):
        read_predictions([folder / "flat.npz"])
    np.savez(folder / "short.npz", logits=np.zeros((1, 4, 2)), labels=np.zeros(3))
    with pytest.raises(ValueError, match=r"short\.npz: expected 4 labels"):
        read_predictions([folder / "short.npz"])
    np.savez(folder / "one.npz", logits=np.zeros((1, 4, 2)))
    np.savez(folder / "two.npz", logits=np.zeros((2, 4, 2)))
    with pytest.raises(ValueError, match="as many draws and classes"):
        read_predictions([folder / "one.npz", folder / "two.npz"])


def test_unreadable_records_are_named(tmp_path):
    folder = write_run(tmp_path, "cifar10", "cgpt")
    (folder / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json: expected a readable record"):
        find_runs(tmp_path)
    (folder / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run\.json: expected a mapping, got list"):
        find_runs(tmp_path)
    with pytest.raises(ValueError, match="runs: expected a folder of runs"):
        find_runs(tmp_path / "nowhere")
