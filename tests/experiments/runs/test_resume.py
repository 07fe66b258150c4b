"""A killed run continues and ends with the weights of an uninterrupted one."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from experiments.runs import Run
from experiments.runs.parsing import resolve
from experiments.runs.performing import perform
from experiments.runs.sweeping import Sweep
from experiments.training.fit import QUIET
from tests.experiments.runs import typed

VALUES = {
    "training.epochs": "8",
    "training.batch_size": "10",
    "data.limit_train": "300",
    "data.corruptions.kinds": "[]",
}
"""A run of some seconds: draws, dropout and an annealed α are all in it."""
FEW = {"data.limit_train": "60", "data.limit_validation": "20", "data.limit_test": "20", "data.ood": "[]"}
SMALL = VALUES | FEW | {"evaluation.draws": "2", "training.validation_draws": "2", "model.embed_dim": "16"}


def scores(run):
    """The history of a run without its seconds."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in run.record["history"]]


def check_same(*folders):
    run, other = (Run(folder / "digits" / "cgp_direct" / "seed-0") for folder in folders)
    weights, others = load_file(run.weights), load_file(other.weights)
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert (run.predictions("test").logits == other.predictions("test").logits).all()
    assert scores(run) == scores(other)
    assert len(scores(run)) == 8


def test_killed_in_a_sweep_of_two_it_ends_with_the_same_weights(tmp_path):
    experiment = resolve(["digits/cgp_direct"], [f"{name}={value}" for name, value in SMALL.items()])
    trainer = dataclasses.replace(QUIET, threads=1)
    perform(experiment, out=tmp_path / "whole", trainer=trainer)
    # As the workers of a sweep: a server that has imported everything forks the process.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.runs.performing"])
    options = {"out": tmp_path / "broken", "trainer": trainer}
    process = context.Process(target=perform, args=(experiment,), kwargs=options)
    process.start()
    typed.wait_for_epoch(tmp_path / "broken", process.is_alive)
    process.kill()
    process.join()
    run = Run(experiment.folder(tmp_path / "broken"))
    assert not run.weights.exists()  # killed within the training
    done = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    (history,) = (state["rows"] for name, state in done["callbacks"].items() if name.startswith("History"))
    wrong = resolve(["digits/softmax"], ["method.options.symmetric=false"])
    failed = Sweep(tmp_path / "broken", trainer, workers=2).perform([wrong, experiment])
    assert ["softmax does not take 'symmetric'" in words for words in failed.values()] == [True]
    # Seconds of an epoch are never the same twice: what was done before the kill was not done again.
    assert 1 <= len(history) < 8
    assert run.record["history"][: len(history)] == history
    check_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
@pytest.mark.parametrize("start", [[sys.executable], typed.TORCHRUN], ids=["one process", "two processes"])
def test_so_it_does_on_the_command_line(tmp_path, start):
    """With draws and dropout, which differ between the processes, all of which are killed at once."""
    arguments = [word for name, value in VALUES.items() for word in (f"--{name}", value)]
    arguments += [*typed.QUIET, "--trainer.threads", "1", *(typed.DDP if start == typed.TORCHRUN else [])]
    command = [*start, "-m", "experiments", "fit", "--config", "digits/cgp_direct", *arguments, "--out"]
    broken = tmp_path / "broken"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([*command, str(broken)], cwd=typed.ROOT, env=typed.ENVIRONMENT, **quiet)
    typed.wait_for_epoch(broken, lambda: process.poll() is None, after=0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(broken.rglob("weights.safetensors"))  # killed within the training
    for folder in (broken, tmp_path / "whole"):
        typed.completed([*command, str(folder)])
    check_same(tmp_path / "whole", broken)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1, 4, 9, 15])
def test_an_interrupted_sweep_ends_in_one_line_and_leaves_no_process(tmp_path, seconds):
    """As ctrl-C does, whatever is being imported, started or trained: every process gets the signal."""
    command = [sys.executable, "-m", "experiments", "sweep", "digits/softmax", "digits/sgpa", "--workers", "2"]
    written = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    process = subprocess.Popen([*command, "--out", str(tmp_path)], cwd=typed.ROOT, env=typed.ENVIRONMENT, **written)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=300)  # ends when the last process does that could write to it
    assert process.returncode in (130, -signal.SIGINT)  # which Python turns it into where it compiled a class
    assert output.splitlines()[-1:] == ["interrupted"]
    assert all(" runs, 2 at a time" in line for line in output.splitlines()[:-1])
