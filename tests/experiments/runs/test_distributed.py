"""Two processes do what one does on the joined batch, and go on after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from experiments import cli

ROOT = Path(cli.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

pytestmark = pytest.mark.slow


def run(command):
    """Run a command in the root of the checkout."""
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process and two processes made."""
    worker = str(Path(__file__).with_name("ddp_worker.py"))
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    run([sys.executable, worker, str(one)])
    run([*TORCHRUN, worker, str(two)])
    load = lambda path: torch.load(path, weights_only=False)  # noqa: E731 - three times the same call
    return load(one / "0.pt"), load(two / "0.pt"), load(two / "1.pt")


def test_gradients_are_those_of_the_joined_batch(results):
    alone, first, second = (result["gradient"] for result in results)
    assert set(alone) <= set(first)
    assert any("in_proj" in name for name in alone)
    for name, gradient in alone.items():
        torch.testing.assert_close(first[name], gradient, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=0)


def test_weights_stay_in_step(results):
    alone, first, second = (result["weights"] for result in results)
    for name in alone:
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=0)
        # Adam divides by the size of a gradient: rounding grows where that is tiny.
        torch.testing.assert_close(first[name], alone[name], rtol=1e-2, atol=5e-4)


def test_pooled_scores_are_those_of_one_process(results):
    alone, first, second = (result["scores"] for result in results)
    assert first == second
    for expected, found in zip(alone, first, strict=True):
        assert found == pytest.approx(expected, abs=1e-3)


def fit_command(out, *more):
    """The command line on the embedded digits."""
    return ["-m", "experiments", "fit", "--config", "digits/kernel_asymmetric", "--smoke", "--out", str(out), *more]


@pytest.mark.parametrize("how", ["torchrun", "trainer"])
def test_the_command_line_writes_one_run(tmp_path, how):
    quiet = ["--trainer.accelerator", "cpu", "--trainer.progress", "false"]
    ddp = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    start = TORCHRUN if how == "torchrun" else [sys.executable]
    run([*start, *fit_command(tmp_path, *quiet, *ddp)])
    folder = tmp_path / "digits" / "kernel_asymmetric" / "seed-0"
    summary = json.loads((folder / "run.json").read_text())
    assert summary["epochs"] == 2
    with np.load(folder / "predictions" / "test.npz") as saved:
        assert saved["logits"].shape == (1, 8, 10)
    assert len(list(folder.rglob("weights.safetensors"))) == 1


def test_killed_together_they_go_on_and_end_with_the_same_weights(tmp_path):
    """With draws and dropout, which differ between the processes."""
    sizes = ["--training.epochs", "8", "--data.limit_train", "240", "--training.batch_size", "10"]
    few = ["--data.corruptions.kinds", "[]", "--data.ood", "[]", "--data.limit_test", "40"]
    quiet = ["--trainer.accelerator", "cpu", "--trainer.progress", "false", "--trainer.threads", "1"]
    ddp = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    row = ["-m", "experiments", "fit", "--config", "digits/cgp_direct"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [*TORCHRUN, *row, *sizes, *few, *quiet, *ddp, "--out"]
    run([*command, str(whole)])
    folder = Path("digits") / "cgp_direct" / "seed-0"
    started = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([*command, str(broken)], cwd=ROOT, env=ENVIRONMENT, **started)
    while not (broken / folder / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)  # torchrun and both of its workers at once
    process.wait()
    assert not (broken / folder / "run.json").exists()  # killed within the training
    run([*command, str(broken)])
    one, other = (load_file(out / folder / "weights.safetensors") for out in (whole, broken))
    assert all(torch.equal(one[name], other[name]) for name in one)
    histories = [json.loads((out / folder / "run.json").read_text())["history"] for out in (whole, broken)]
    scores = [[{k: v for k, v in row.items() if k != "seconds"} for row in history] for history in histories]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 8
