"""Scores that tell inputs of another kind from those that a classifier knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor, nn

from cgp.model.inputs import call_model
from cgp.model.twin import twin

__all__ = ["Mahalanobis", "pooled_features"]

Array = NDArray[Any]


def pooled_features(model: nn.Module, inputs: Any) -> Tensor:
    """The representation ``(N, d)`` that the last linear layer of a classifier reads, averaged over tokens if any."""
    copy, seen = twin(model), []
    for module in copy.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    call_model(copy, inputs)
    if not seen:
        raise ValueError("model: expected a linear layer that reads the representation, got none (pass features=...)")
    last: Tensor = seen[-1]
    return last.flatten(1, -2).mean(1) if last.dim() > 2 else last


class Mahalanobis:
    r"""Distance to the nearest class mean, :math:`\min_c (z - \mu_c)^\top\Sigma^{-1}(z - \mu_c)`.

    The covariance is that of all classes around their means, shrunk as Ledoit and Wolf do.

    Args:
        features: of the training data, ``(N, d)``.
        labels: ``(N,)`` int.

    Note:
        Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks
        (NeurIPS 2018), equation (2).

    Example:
        >>> known = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
        >>> scores = Mahalanobis(known, np.array([0, 0, 1, 1]))(np.array([[0.0, 0.5], [4.0, 0.5]]))
        >>> bool(scores[0] < scores[1])
        True
    """

    def __init__(self, features: Array, labels: Array) -> None:
        from sklearn.covariance import LedoitWolf

        classes, index = np.unique(labels, return_inverse=True)
        self.means = np.stack([features[index == c].mean(0) for c in range(len(classes))])
        covariance = LedoitWolf(assume_centered=True).fit(features - self.means[index]).covariance_
        self.factor = np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) * np.eye(len(covariance)))

    def __call__(self, features: Array) -> Array:
        """The distance of each input, ``(N,)``."""
        white, means = (solve_triangular(self.factor, z.T, lower=True).T for z in (features, self.means))
        squares = np.square(white).sum(1)[:, None] - 2 * white @ means.T + np.square(means).sum(1)
        return squares.min(1)


def standardised(known: Array) -> Callable[[Array], Array]:
    """A map to standard deviations above the mean over known inputs."""
    mean, deviation = known.mean(), max(float(known.std()), 1e-12)
    return lambda scores: (scores - mean) / deviation
