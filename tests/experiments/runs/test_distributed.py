"""Training on two processes equals training on one with the joined batch."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.experiments.runs.typed import DDP, QUIET, TORCHRUN, completed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory, stand_ins):
    """What one process and two processes made."""
    worker = str(Path(__file__).with_name("ddp_worker.py"))
    single, double = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    completed([sys.executable, worker, str(single), *stand_ins])
    completed([*TORCHRUN, worker, str(double), *stand_ins])
    return [torch.load(path, weights_only=False) for path in (single / "0.pt", double / "0.pt", double / "1.pt")]


def test_gradients_are_those_of_the_joined_batch(results):
    alone, first, second = (result["gradient"] for result in results)
    assert set(alone) <= set(first)
    assert any("in_proj" in name for name in alone)
    for name, gradient in alone.items():
        torch.testing.assert_close(first[name], gradient, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=0)


def test_weights_stay_in_step_and_pooled_scores_are_those_of_one_process(results):
    alone, first, second = (result["weights"] for result in results)
    for name in alone:
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=0)
        # Adam divides by the size of a gradient: rounding grows where that is tiny.
        torch.testing.assert_close(first[name], alone[name], rtol=1e-2, atol=5e-4)
    alone, first, second = (result["scores"] for result in results)
    assert first == second
    for expected, row in zip(alone, first, strict=True):
        assert row == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("start", [TORCHRUN, [sys.executable]], ids=["torchrun", "trainer"])
def test_the_command_line_writes_one_run(tmp_path, start):
    row = ["-m", "experiments", "fit", "--config", "digits/kernel_asymmetric", "--smoke", "--out", str(tmp_path)]
    completed([*start, *row, *QUIET, *DDP])
    folder = tmp_path / "digits" / "kernel_asymmetric" / "seed-0"
    assert json.loads((folder / "run.json").read_text())["epochs"] == 2
    with np.load(folder / "predictions" / "test.npz") as saved:
        assert saved["logits"].shape == (1, 8, 10)
    assert len(list(folder.rglob("weights.safetensors"))) == 1
