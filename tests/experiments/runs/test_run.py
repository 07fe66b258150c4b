"""The folder of a run: its identity and its description."""

import dataclasses
import mmap
import sys

import numpy as np
import pytest
import torch

from experiments.runs import Run, find_runs, performing
from experiments.runs.parsing import resolve
from experiments.runs.performing import forget_peak, peak_bytes
from experiments.training.fit import QUIET


def complete(path, config):
    """The folder of a complete run whose data say one thing more."""
    run = Run(path / config.name / f"seed-{config.seed}")
    run.claim(config)
    run.complete({"deviations": ["100 of 1,077 train examples"], "seconds_per_epoch": 2.5})
    return run


def test_runs_are_found_in_folders_of_any_depth(tmp_path):
    names = ("cola/sgpa", "cola/softmax")
    runs = [complete(tmp_path, resolve([name], [f"seed={seed}"])) for name in names for seed in (0, 1)]
    Run(tmp_path / "cola" / "cgpt" / "seed-0").claim(resolve(["cola/cgpt"]))  # begun
    each = [run.folder for run in reversed(runs)]
    for folders in ([tmp_path], [tmp_path / "cola"], each, [tmp_path, tmp_path / "cola"]):
        assert [run.folder for run in find_runs(folders)] == [run.folder for run in runs]
    with pytest.raises(ValueError, match="runs: expected a folder with complete runs, got .*cgpt"):
        find_runs([tmp_path, tmp_path / "cola" / "cgpt"])
    (tmp_path / "demo").mkdir()
    (tmp_path / "cola").rename(tmp_path / "demo" / "cola")
    with pytest.raises(ValueError, match="which holds some in .*demo"):
        find_runs([tmp_path])
    with pytest.raises(ValueError, match="is not there"):
        find_runs([tmp_path / "nowhere"])


def test_words_and_places_may_change_but_nothing_else(tmp_path):
    config = resolve(["cola/softmax"])
    run = complete(tmp_path, config)
    described = dataclasses.replace(config, deviations=["found out later"], reduced=["8 epochs"])
    run.claim(dataclasses.replace(described, method=dataclasses.replace(described.method, label="Soft")))
    assert run.deviations == ["found out later", "8 epochs", "100 of 1,077 train examples"]
    assert (run.label, run.record["seconds_per_epoch"]) == ("Soft", 2.5)
    moved = dataclasses.replace(config, data=dataclasses.replace(config.data, root=tmp_path / "elsewhere"))
    assert run.is_moved(moved)
    run.claim(moved)
    assert not run.is_moved(moved)
    before = run.config_file.read_text(), run.record_file.read_text()
    pooled = dataclasses.replace(config, data=dataclasses.replace(config.data, split="pooled"))
    for other, word in (
        (dataclasses.replace(config, deviations=["other"], seed=1), "seed: 0 there, 1 asked for"),
        (pooled, "data.split: 'selected' there, 'pooled' asked for"),
    ):
        with pytest.raises(ValueError, match=rf"another configuration \({word}\)"):
            run.claim(other)
    assert (run.config_file.read_text(), run.record_file.read_text()) == before


def test_where_nothing_was_trained_any_configuration_may_come(tmp_path):
    run = Run(tmp_path / "cola" / "softmax" / "seed-0")
    run.claim(resolve(["cola/softmax"]))
    other = resolve(["cola/kep_svgp_add"], ["training.epochs=3"])
    run.claim(other)
    assert run.config == other
    run.checkpoints.mkdir()
    with pytest.raises(ValueError, match="another configuration"):
        run.claim(resolve(["cola/softmax"]))


@pytest.mark.parametrize(
    "content",
    [
        *("", "- 1", "\x00", "seed: 0\nseed: 1\n", "data: {name: cola, name: imdb}", "model: [1"),
        *("method: {warm_up: 1.0}", "seed: much"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named_and_left_alone(tmp_path, content):
    config = resolve(["cola/softmax"])
    run = complete(tmp_path, config)
    run.config_file.write_text(content)
    for do in (lambda: run.config, lambda: run.check(config), lambda: run.claim(config)):
        with pytest.raises(ValueError, match="config.yaml") as raised:
            do()
        assert "\n" not in str(raised.value)
    assert run.config_file.read_text() == content


def test_a_run_of_another_version_is_refused(tmp_path):
    config = resolve(["cola/softmax"])
    run = complete(tmp_path, config)
    run.config_file.write_text(run.config_file.read_text().replace("deviations:", "departures:"))
    with pytest.raises(ValueError, match="expected the configuration of a run of this version.*choose another --out"):
        run.check(config)
    run.record_file.write_text('{"label": "Softmax", "reduced": []}')
    with pytest.raises(ValueError, match="expected what a run of this version writes"):
        _ = run.record


def test_one_process_at_a_time(tmp_path):
    run = Run(tmp_path / "cola" / "softmax" / "seed-0")
    with run.locked(wait=False), pytest.raises(ValueError, match="is being written by another process"):  # noqa: SIM117
        with run.locked(wait=False):
            pass


def test_names_are_such_that_tables_and_pages_can_hold_them():
    config = resolve(["cola/softmax"])
    for name in ("flowers", "a/b/c", "a/", "../b", "a/=1+0", "a/b|c", "a/<script>", "a/b\nc", "a/\u202eb", "a/.b"):
        with pytest.raises(ValueError, match="name: expected <data>/<method> of letters"):
            dataclasses.replace(config, name=name)


def test_a_share_of_the_epochs_is_trained():
    rows = ("softmax", "kernel_start", "cgpt")
    assert [resolve([f"cifar10/{row}", "reduced/cifar10"]).epochs for row in rows] == [12, 4, 8]
    with pytest.raises(ValueError, match=r"training.share: expected a share of the epochs in \(0, 1\], got 0"):
        dataclasses.replace(resolve(["cola/softmax"]).training, share=0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux forgets a process's peak")
def test_an_earlier_peak_is_forgotten():
    """Of a mapping, which a process gives back however much it has run."""
    cpu, size = torch.device("cpu"), 400 * 2**20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        np.frombuffer(held, dtype=np.uint8)[:: mmap.PAGESIZE] = 1
        high = peak_bytes(cpu)
    forget_peak(cpu)
    assert high - peak_bytes(cpu) > 300 * 2**20


@pytest.mark.parametrize(
    ("width", "asked", "expected"), [(48, None, [1]), (48, 2, [2]), (128, None, []), (128, 2, [2])]
)
def test_small_models_are_trained_on_one_thread(width, asked, expected, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    monkeypatch.setattr(performing, "train", lambda *_, **__: None)
    config = resolve(["digits/softmax"], [f"model.embed_dim={width}", "data.limit_train=20"])
    performing._train(config, tmp_path, Run(tmp_path), dataclasses.replace(QUIET, threads=asked))
    assert taken == expected
