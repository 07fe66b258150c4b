"""Kernels and an independent oracle for the tests of the kernels."""

import numpy as np
import pytest
import torch

from cgp.kernels import CorrelatedKernel
from tests.cgp.helpers import moved


@pytest.fixture
def kernel():
    """Three processes, two input and three canonical dimensions, random maps and scales, float64."""
    return random_kernel()


def random_kernel(num_processes=3, input_dim=2, seed=0, **options):
    torch.manual_seed(seed)
    return moved(CorrelatedKernel("rbf", num_processes, input_dim, **({"canonical_dim": 3} | options)).double(), 0.5)


def dense_oracle(kernel, first, x1, second, x2):
    """sigma_p sigma_r exp(-|xW_p' + b_p - x'W_r' - b_r|^2 / 2), entry by entry in numpy."""

    def mapped(p, x):
        affine = kernel.input_maps[p]
        return x.detach().numpy() @ affine.weight.detach().numpy().T + affine.bias.detach().numpy()

    difference = mapped(first, x1)[:, None] - mapped(second, x2)[None]
    scales = kernel.scales.detach().numpy()
    return scales[first] * scales[second] * np.exp(-0.5 * np.square(difference).sum(-1))
