"""Smooth and rough processes."""

import numpy as np
import pytest
import torch

from cgp.regression import CorrelatedGPRegressor, SmoothAndRough
from cgp.regression.covariances.rows import dense_covariance
from cgp.regression.observations import Observations


def observations(steps: float = 0.25, count: int = 24) -> Observations:
    generator = np.random.default_rng(0)
    trend = generator.normal(size=(count, 1)).cumsum(axis=0)
    return Observations(steps * np.arange(count)[:, None], trend * [1.0, -2.0] + generator.normal(size=(count, 2)))


def test_rough_processes_have_a_kernel_and_loadings_of_their_own():
    covariance = SmoothAndRough().covariance(observations(), "matern32")
    smooth, rough = covariance.kernels
    with torch.no_grad():
        for component in (smooth, rough):
            component.loadings.partials.copy_(torch.tensor([0.7]))
        rough.loadings.log_scales.copy_(torch.tensor([-1.0, 0.4]))
    times, outputs = torch.tensor([0.0, 0.1, 0.4, 1.5, 0.3]).double(), torch.tensor([0, 1, 0, 1, 1])
    rows = torch.stack([times, outputs.double()], dim=-1)
    apart = (times[:, None] - times).abs()
    near, far = apart / 0.125, np.sqrt(3.0) * apart
    parts = {smooth: (1.0 + far) * torch.exp(-far), rough: torch.exp(-near)}  # half a step of .25
    expected = torch.zeros_like(apart)
    for component, correlation in parts.items():
        loadings = component.loadings()[outputs]
        expected += loadings @ loadings.mT * correlation
    torch.testing.assert_close(dense_covariance(covariance, rows), expected)


def test_rough_processes_start_as_a_twentieth_of_the_variance():
    smooth, rough = SmoothAndRough().covariance(observations(), "matern32").kernels
    scales = [component.loadings().square().sum(-1) for component in (smooth, rough)]
    torch.testing.assert_close(scales[1] / scales[0], torch.full((2,), 0.05).double())


def test_rough_processes_are_of_one_input():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="X: expected one column, got 2, for structure='rough'"):
        CorrelatedGPRegressor(structure="rough").fit(X, X)
