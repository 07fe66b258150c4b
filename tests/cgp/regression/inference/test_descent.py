"""Adam's steps beside those of torch's class, and what a fit imports."""

import subprocess
import sys

import torch

from cgp.regression.inference.descent import Descent

FIT = """
import sys
import numpy as np
from cgp.regression import CorrelatedGPRegressor, Windows
t = np.linspace(0.0, 6.0, 40)
CorrelatedGPRegressor(structure="multiscale", inference=Windows(num_steps=2)).fit(t[:, None], np.sin(t))
print("torch._dynamo" in sys.modules)
"""


def test_steps_are_those_of_torch():
    start = [torch.randn(3, 2, dtype=torch.float64), torch.randn(2), torch.zeros(1)]
    ours, theirs = ([each.clone().requires_grad_() for each in start] for _ in range(2))
    descent, optimizer = Descent(ours, 0.05, 40), torch.optim.Adam(theirs, lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    for _ in range(40):
        for parameters, stepper in ((ours, descent), (theirs, optimizer)):
            stepper.zero_grad()
            (parameters[0].square().sum() + (parameters[1] - 2.0).cosh().sum()).backward()  # none by the last
            stepper.step()
        schedule.step()
    for each, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-6 if each.dtype == torch.float32 else 1e-13, atol=0.0)
    assert (ours[0] - start[0]).abs().min() > 0.01


def test_a_fit_does_not_import_the_compiler():
    """That takes 1.7 CPU seconds and 180 MB."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
