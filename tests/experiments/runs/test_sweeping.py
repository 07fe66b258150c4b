"""Rows x seeds: dependencies, completed runs, output."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.configuration import TrainerConfig
from experiments.runs import Run, sweeping
from experiments.runs.parsing import resolve_rows
from experiments.runs.sweeping import Sweep, _Progress, commands
from experiments.training.fit import QUIET


def names(experiments):
    return [(experiment.name, experiment.seed) for experiment in experiments]


def test_rows_bring_those_that_they_need():
    result = names(resolve_rows(["cola/cgpt", "cola/temperature"], [0, 1], [], []))
    needed = ["kernel_asymmetric", "cgpt", "softmax", "temperature"]
    assert result == [(f"cola/{name}", seed) for seed in (0, 1) for name in needed]
    result = names(resolve_rows(["cola/ensemble_softmax"], [1], [], ["method.options.members=2"]))
    assert result == [("cola/softmax", 2), ("cola/softmax", 3), ("cola/ensemble_softmax", 1)]


def test_needed_rows_come_first_and_a_failure_leaves_the_others(tmp_path, capsys):
    values = ["training.epochs=1", "data.limit_train=16", "data.limit_test=8", "data.limit_validation=8", "data.ood=[]"]
    values.append("data.corruptions.kinds=[]")
    configs = resolve_rows(["digits/temperature_kernel_asymmetric"], [0], [], values)
    configs += resolve_rows(["digits/softmax"], [0], [], [*values, "method.options.symmetric=false"])
    failed = Sweep(tmp_path, TrainerConfig(accelerator="cpu")).perform(configs[::-1])
    (folder,) = failed
    assert folder.endswith("digits/softmax/seed-0")
    assert "softmax does not take 'symmetric'" in failed[folder]
    assert "Traceback" in (Path(folder) / "error.txt").read_text()
    for name in ("kernel_asymmetric", "temperature_kernel_asymmetric"):
        assert Run(tmp_path / "digits" / name / "seed-0").is_complete
    output = capsys.readouterr().out
    assert "of 3: digits/temperature_kernel_asymmetric seed 0 done" in output
    assert "digits/softmax seed 0 FAILED" in output
    assert re.search(
        r"digits/kernel_asymmetric seed 0 done \(validation accuracy \d+\.\d%, NLL \d\.\d{3}\), \d+ s", output
    )
    assert Sweep(tmp_path, QUIET).perform(configs[:2]) == {}
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("reduced", "words"), [([], ""), (["smoke test: a few steps"], "smoke run: ")])
def test_the_accuracy_of_a_smoke_run_is_said_to_be_one(reduced, words):
    record = {"best_epoch": 1, "history": [{"epoch": 1, "validation_accuracy": 0.0, "validation_nll": 2.4}]}
    run = SimpleNamespace(record=record, config=SimpleNamespace(reduced=reduced))
    assert sweeping._first_result(run) == f" ({words}validation accuracy 0.0%, NLL 2.400)"


def test_a_terminal_has_a_bar_with_the_time_that_is_left(monkeypatch, capsys):
    """Below the lines; in a file there are the lines only."""
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        with _Progress(2, is_shown=True) as progress:
            for name in ("first", "second"):
                progress.count(f"{name} done")
        out, err = capsys.readouterr()
        assert [line.rpartition(",")[0] for line in out.splitlines()] == ["1 of 2: first done", "2 of 2: second done"]
        assert ("2/2" in err) is is_terminal


@pytest.mark.parametrize(
    ("took", "left"),
    [
        (44.0, ["2 minutes remain", "4 minutes remain", "2 minutes remain"]),
        (80.4, ["4 minutes remain", "8 minutes remain", "4 minutes remain"]),
        (4.0, ["1 minute remains", "1 minute remains", "1 minute remains"]),
    ],
)
def test_runs_that_are_alike_say_what_remains(took, left, monkeypatch, capsys):
    clock = iter([0.0, *(number * took for number in range(1, 8))])
    monkeypatch.setattr(sweeping.time, "perf_counter", lambda: next(clock))
    progress = _Progress(7, is_shown=True, rounds=4)
    for number in range(1, 8):
        progress.count(f"run {number} done")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" s: about ")[2] for line in lines[:3]] == left
    assert lines[-1] == f"7 of 7: run 7 done, {7 * took:.0f} s"


def test_many_runs_that_are_alike_have_few_lines(capsys):
    progress = _Progress(7, is_shown=True, every=3)
    for number in range(1, 8):
        progress.count(f"run {number} done")
    assert [line.partition(" done")[0] for line in capsys.readouterr().out.splitlines()] == [
        "3 of 7: run 3",
        "6 of 7: run 6",
        "7 of 7: run 7",
    ]


def test_commands_leave_out_complete_runs(tmp_path):
    runs = resolve_rows(["cola/softmax", "cola/sgpa"], [0, 1], [], ["training.epochs=3"])
    done = Run(tmp_path / "cola" / "softmax" / "seed-1")
    done.claim(next(config for config in runs if (config.name, config.seed) == ("cola/softmax", 1)))
    done.complete({})
    lines = commands(runs, tmp_path, ["--training.epochs=3"])
    assert [line.split("--config ")[1] for line in lines] == [
        f"cola/{name} --training.epochs=3 --seed {seed} --out {tmp_path}"
        for seed, name in ((0, "softmax"), (0, "sgpa"), (1, "sgpa"))
    ]
