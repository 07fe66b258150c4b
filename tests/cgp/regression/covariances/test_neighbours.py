"""What neighbours say of the noise, against pairs that are looked up one by one."""

import numpy as np
import pytest
import torch

from cgp.regression.covariances import neighbours


@pytest.mark.parametrize(("compared", "among"), [(2048, 8192), (7, 11)])
def test_neighbours_are_the_nearest_other_observations(monkeypatch, compared, among):
    monkeypatch.setattr(neighbours, "_NOISY", compared)
    monkeypatch.setattr(neighbours, "_AMONG", among)
    x, y = torch.rand(20, 2, dtype=torch.float64), torch.randn(20, dtype=torch.float64)

    def places(most):
        return np.linspace(0, 19, min(most, 20)).round().astype(int)

    halves = []
    for i in places(compared):
        nearest = min((j for j in places(among) if j != i), key=lambda j: float((x[i] - x[j]).norm()))
        halves.append(0.5 * float(y[i] - y[nearest]) ** 2)
    bound = np.mean(halves) + 2.0 * np.std(halves, ddof=1) / len(halves) ** 0.5
    assert float(neighbours.neighbour_noise(x, y)) == pytest.approx(bound)
