"""Killed by the system, a run goes on and ends with the weights of an uninterrupted one."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from experiments import cli
from experiments.runs import Run
from experiments.runs.fitting import perform
from experiments.runs.parsing import resolve
from experiments.runs.prediction import load_predictions
from experiments.runs.sweeping import Sweep
from experiments.training.fit import QUIET

ROOT = Path(cli.__file__).parents[1]
RUN = Path("digits") / "cgp_direct" / "seed-0"
VALUES = {
    "training.epochs": "8",
    "training.batch_size": "10",
    "data.limit_train": "300",
    "data.corruptions.kinds": "[]",
}
"""A run of some seconds: draws, dropout and an annealed α are all in it."""
FEW = {"data.limit_train": "60", "data.limit_validation": "20", "data.limit_test": "20", "data.ood": "[]"}
SMALL = VALUES | FEW | {"evaluation.draws": "2", "training.validation_draws": "2", "model.embed_dim": "16"}


def command(out, values):
    quiet = ["--trainer.accelerator", "cpu", "--trainer.progress", "false", "--trainer.threads", "1"]
    asked = [word for name, value in values.items() for word in (f"--{name}", value)]
    return [
        *(sys.executable, "-m", "experiments", "fit", "--config", "digits/cgp_direct", "--out", str(out)),
        *asked,
        *quiet,
    ]


def kill(process, running, out, *, after=0.0):
    """Kill a process some seconds after the first epoch of its run."""
    while not (out / RUN / "checkpoints" / "last.ckpt").exists():
        assert running()
        time.sleep(0.01)
    time.sleep(after)
    os.kill(process.pid, signal.SIGKILL)
    assert not (out / RUN / "weights.safetensors").exists()  # killed within the training


def check_same(out, other):
    one, two = (load_file(folder / RUN / "weights.safetensors") for folder in (out, other))
    assert all(torch.equal(one[key], two[key]) for key in one)
    one, two = (load_predictions(folder / RUN / "predictions" / "test.npz") for folder in (out, other))
    assert (one.logits == two.logits).all()


def test_killed_it_goes_on_in_a_sweep_of_two_workers_and_ends_with_the_same_weights(tmp_path):
    experiment = resolve(["digits/cgp_direct"], [f"{name}={value}" for name, value in SMALL.items()])
    trainer = dataclasses.replace(QUIET, threads=1)
    perform(experiment, out=tmp_path / "whole", trainer=trainer)
    # As the workers of a sweep: a server that has imported everything forks the process.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.runs.fitting"])
    options = {"out": tmp_path / "broken", "trainer": trainer}
    process = context.Process(target=perform, args=(experiment,), kwargs=options)
    process.start()
    kill(process, process.is_alive, tmp_path / "broken")
    process.join()
    done = torch.load(tmp_path / "broken" / RUN / "checkpoints" / "last.ckpt", weights_only=True)
    (history,) = (state["rows"] for name, state in done["callbacks"].items() if name.startswith("History"))
    wrong = resolve(["digits/softmax"], ["method.options.symmetric=false"])
    failed = Sweep(tmp_path / "broken", trainer, workers=2).perform([wrong, experiment])
    assert ["softmax does not take 'symmetric'" in words for words in failed.values()] == [True]
    # Seconds of an epoch are never the same twice: what was done before the kill was not done again.
    assert 1 <= len(history) < 8
    assert Run(tmp_path / "broken" / RUN).record["history"][: len(history)] == history
    check_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
def test_so_it_does_on_the_command_line(tmp_path):
    for name in ("whole", "broken"):
        if name == "broken":
            process = subprocess.Popen(command(tmp_path / name, VALUES), cwd=ROOT, stdout=subprocess.DEVNULL)
            kill(process, lambda process=process: process.poll() is None, tmp_path / name, after=0.3)
            process.wait()
        subprocess.run(command(tmp_path / name, VALUES), cwd=ROOT, check=True, capture_output=True)
    check_same(tmp_path / "whole", tmp_path / "broken")
