"""Small heterotopic problems, models of them, and dense float64 oracles in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from cgp.regression import (
    CorrelatedGPRegression,
    SparseCorrelatedGPRegression,
    StochasticCorrelatedGPRegression,
    correlated_covariance,
)

KINDS = {
    "exact": CorrelatedGPRegression,
    "sparse": SparseCorrelatedGPRegression,
    "stochastic": StochasticCorrelatedGPRegression,
}
TWO_SHIFTED = {"num_components": 2, "structure": "shifted"}


def rows(n: int = 12, processes: int = 3, dim: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs with the process in the last column, every process seen, and targets."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    numbers = torch.arange(n, dtype=torch.float64)[:, None] % processes
    targets = torch.randn(n, generator=generator, dtype=torch.float64)
    return torch.cat([inputs, numbers], dim=-1), targets


def waves(n: int = 60) -> tuple[Tensor, Tensor]:
    """Two processes with noise of 0.1, the second minus half the first."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(n, 1, generator=generator, dtype=torch.float64) * 6 - 3
    number = torch.arange(n, dtype=torch.float64)[:, None] % 2
    f = (2 * inputs).sin() * torch.where(number == 0, 1.0, -0.5)
    y = (f + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64))[:, 0]
    return torch.cat([inputs, number], dim=-1), y


def model_of(kind: str, x: Tensor, y: Tensor, processes: int = 3, *, m: int = 6, **covariance: Any) -> Any:
    """A model with a covariance of these options, and m inducing inputs where there are any."""
    covar_module = correlated_covariance(processes, x.shape[-1] - 1, **covariance)
    inducing = {} if kind == "exact" else {"num_inducing": m}
    return KINDS[kind](x, y, processes, covar_module=covar_module, **inducing)


def shuffled(model: Any, seed: int = 1) -> Any:
    """The model with parameters away from their start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.eval()


def regression(kind: str = "exact", n: int = 15, **options: Any) -> Any:
    """A shuffled model of three processes."""
    return shuffled(model_of(kind, *rows(n), **options))


class Evidence(torch.nn.Module):
    """The evidence as a forward pass, so that its parameters can be substituted."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        return self.model.log_evidence()


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * cdist(a, b, "sqeuclidean"))


def loadings_of(component) -> np.ndarray:
    """The rows of sigma_p times the Cholesky factor of the correlation matrix, entry by entry."""
    size = component.num_processes
    learned = component.loadings.partials
    if component.loadings.shared:
        common = np.tanh(learned.detach().numpy())
        loadings = np.column_stack([common, np.diag(np.sqrt(1.0 - common**2))])
        return loadings * np.exp(component.loadings.log_scales.tolist())[:, None]
    partials = iter([0.0] * size**2 if learned is None else learned.tolist())
    loadings = np.zeros((size, size))
    for p in range(size):
        remaining = 1.0
        for r in range(p):
            loadings[p, r] = remaining * np.tanh(c := next(partials))
            remaining *= np.sqrt(1.0 - np.tanh(c) ** 2)
        loadings[p, p] = remaining
    return loadings * np.exp(component.loadings.log_scales.tolist())[:, None]


def canonical_points(model: CorrelatedGPRegression, x: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Canonical inputs and loadings of rows in every component, written out row by row."""
    points = []
    for component in model.covar_module.kernels:
        maps = {name: value.tolist() for name, value in component.input_maps.named_parameters()}
        loadings, inputs, weights = loadings_of(component), [], []
        for *row, number in x.tolist():
            p = int(number)
            z = np.array(row) * np.exp(maps["log_scales"])
            if p:
                nothing = {p - 1: 0.0}  # a structure without such parameters
                ratio, shift = (np.array(maps.get(name, nothing)[p - 1]) for name in ("log_ratios", "shifts"))
                z = z * np.exp(ratio) + shift
            inputs.append(z)
            weights.append(loadings[p])
        points.append((np.array(inputs), np.array(weights)))
    return points


def dense_prior(model: CorrelatedGPRegression, x1: Tensor, x2: Tensor) -> np.ndarray:
    left, right = canonical_points(model, x1), canonical_points(model, x2)
    return sum(rbf(z1, z2) * (a1 @ a2.T) for (z1, a1), (z2, a2) in zip(left, right, strict=True))


def noise_and_mean(model: CorrelatedGPRegression, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    numbers = x[:, -1].long().numpy()
    return model.likelihood.noise.detach().numpy()[numbers], model.mean_module.constants.detach().numpy()[numbers]


def nystrom(model: CorrelatedGPRegression, x1: Tensor, x2: Tensor) -> np.ndarray:
    """Q = K_1m K_mm^-1 K_m2, with the jitter that the package adds to K_mm."""
    total = np.zeros((len(x1), len(x2)))
    parts = zip(canonical_points(model, x1), canonical_points(model, x2), model.inducing_points(), strict=True)
    for (z1, a1), (z2, a2), inducing in parts:
        S, a = (value.detach().numpy() for value in inducing)
        K_mm = rbf(S, S) * (a @ a.T)
        K_mm += 1e-8 * K_mm.diagonal().mean() * np.eye(len(S))
        total += (rbf(z1, S) * (a1 @ a.T)) @ np.linalg.solve(K_mm, rbf(S, z2) * (a @ a2.T))
    return total
