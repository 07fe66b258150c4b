"""Small heterotopic problems, and dense float64 oracles in numpy."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from cgp.regression.base import ProcessRegression


def rows(n: int = 12, processes: int = 3, dim: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs with the process in the last column, every process seen, and targets."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    numbers = torch.arange(n, dtype=torch.float64)[:, None] % processes
    targets = torch.randn(n, generator=generator, dtype=torch.float64)
    return torch.cat([inputs, numbers], dim=-1), targets


def shuffled(model: ProcessRegression, seed: int = 1) -> ProcessRegression:
    """The model with parameters away from their start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.eval()


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * cdist(a, b, "sqeuclidean"))


def canonical_points(model: ProcessRegression, x: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Canonical inputs and scales of rows in every component, written out row by row."""
    found = []
    for component in model.sum_kernel.kernels:
        kernel = component.correlated
        inputs, scales = [], []
        for row in x:
            p = int(row[-1])
            one = kernel.input_maps[p]
            bias = getattr(one.linear, "bias", None)
            z = row[:-1] @ one.weight.detach().T + (0.0 if bias is None else bias.detach())
            inputs.append(np.concatenate([z.numpy(), one.embedding.detach().numpy()]))
            scales.append(float(kernel.scales[p].detach()))
        found.append((np.array(inputs), np.array(scales)))
    return found


def dense_prior(model: ProcessRegression, x1: Tensor, x2: Tensor) -> np.ndarray:
    left, right = canonical_points(model, x1), canonical_points(model, x2)
    return sum(s1[:, None] * rbf(z1, z2) * s2 for (z1, s1), (z2, s2) in zip(left, right, strict=True))


def noise_and_mean(model: ProcessRegression, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    numbers = x[:, -1].long().numpy()
    return model.likelihood.noise.detach().numpy()[numbers], model.mean_module.constants.detach().numpy()[numbers]


def nystrom(model: ProcessRegression, x1: Tensor, x2: Tensor) -> np.ndarray:
    """Q = K_1m K_mm^-1 K_m2, with the jitter that the package adds to K_mm."""
    total = np.zeros((len(x1), len(x2)))
    parts = zip(canonical_points(model, x1), canonical_points(model, x2), model.inducing_inputs(), strict=True)
    for (z1, s1), (z2, s2), inducing in parts:
        S = inducing.detach().numpy()
        K_mm = rbf(S, S) + 1e-8 * np.eye(len(S))
        total += (s1[:, None] * rbf(z1, S)) @ np.linalg.solve(K_mm, rbf(S, z2) * s2)
    return total
