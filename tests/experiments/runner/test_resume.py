"""Killed by the system, a run goes on and ends with the weights of an uninterrupted one."""

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
from experiments.prediction import load_predictions

ROOT = Path(cli.__file__).parents[1]
RUN = Path("digits") / "cgp_direct" / "seed-0"

pytestmark = pytest.mark.slow


def command(out):
    """A run of some seconds: draws, dropout and an annealed α are all in it."""
    values = ["--training.epochs", "8", "--data.limit_train", "300", "--training.batch_size", "10"]
    quiet = ["--trainer.accelerator", "cpu", "--trainer.progress", "false", "--trainer.threads", "1"]
    return [
        *(sys.executable, "-m", "experiments", "fit", "--config", "digits/cgp_direct", "--out", str(out)),
        *("--data.corruptions.kinds", "[]"),
        *values,
        *quiet,
    ]


def test_killed_it_goes_on_and_ends_with_the_same_weights(tmp_path):
    subprocess.run(command(tmp_path / "whole"), cwd=ROOT, check=True, capture_output=True)
    broken = tmp_path / "broken"
    process = subprocess.Popen(command(broken), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = broken / RUN / "checkpoints" / "last.ckpt"
    while not last.exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (broken / RUN / "run.json").exists()  # killed within the training
    subprocess.run(command(broken), cwd=ROOT, check=True, capture_output=True)
    one, other = (load_file(tmp_path / name / RUN / "weights.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[key], other[key]) for key in one)
    one, other = (load_predictions(tmp_path / name / RUN / "predictions" / "test.npz") for name in ("whole", "broken"))
    assert (one.logits == other.logits).all()
