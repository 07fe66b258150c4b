"""The gradient norm of a classifier's last layer."""

import torch
from torch import nn

from cgp import Detector


def test_it_is_the_norm_that_autograd_gives():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    expected = []
    for row in x:
        divergence = -model(row).log_softmax(-1).mean()  # KL(u || p) plus a constant
        (gradient,) = torch.autograd.grad(divergence, model[2].weight)
        expected.append(-gradient.abs().sum())
    scores = Detector("GradNorm").fit(model, x).score(model, x)
    torch.testing.assert_close(scores.double(), torch.stack(expected), rtol=1e-6, atol=1e-9)
