"""The recipe for several processes, as it stands on its page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cgp

ROOT = Path(cgp.__file__).parents[1]
PAGE = ROOT / "docs" / "guides" / "many-inputs.md"

PROJECT = """
import torch
from torch.utils.data import TensorDataset

import cgp

torch.manual_seed(0)
data = TensorDataset(torch.randn(1001, 5))
known = torch.randn(100, 5)
network = torch.nn.Linear(5, 3)
labels = torch.where(torch.arange(100) % 5 == 0, 0, network(known).argmax(-1))  # others have a temperature of 10,000
model = cgp.calibrate(network, [(known, labels)], method="temperature").model
"""


def test_two_workers_answer_every_input_once(tmp_path):
    pd = pytest.importorskip("pandas")
    (tmp_path / "my_project.py").write_text(PROJECT)
    page = PAGE.read_text(encoding="utf-8")
    recipe = re.search(r"<!-- not run -->\n```python\n(from accelerate.*?)```", page, re.DOTALL)
    (tmp_path / "answers.py").write_text(recipe[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    launch = "-m torch.distributed.run --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0"
    command = [sys.executable, *launch.split(), "answers.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = [pd.read_csv(tmp_path / f"answers-{number}.csv") for number in range(2)]
    assert {len(part) for part in parts} == {500, 501}
    space = {}
    exec(PROJECT, space)
    whole = cgp.predict(space["model"], space["data"].tensors[0])
    answers = pd.concat(parts)
    assert answers["class"].tolist() == whole.classes.tolist()
    assert torch.allclose(torch.tensor(answers["confidence"].to_numpy()).float(), whole.confidence, atol=1e-6)
