"""Distance of a representation to the nearest class of the training data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

__all__ = ["Mahalanobis"]

Array = NDArray[Any]


class Mahalanobis:
    r"""Distance to the nearest class mean, :math:`\min_c (z - \mu_c)^\top\Sigma^{-1}(z - \mu_c)`.

    The covariance is that of all classes around their means, shrunk as Ledoit and Wolf do.

    Args:
        means: of the classes, ``(C, d)``; None until :meth:`fit`.
        factor: Cholesky factor of the covariance, ``(d, d)``.

    Note:
        Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks
        (NeurIPS 2018), equation (2).

    Example:
        >>> known = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
        >>> distance = Mahalanobis().fit(known, np.array([0, 0, 1, 1]))
        >>> near, far = distance.score(np.array([[0.0, 0.5], [4.0, 0.5]]))
        >>> bool(near < far)
        True
    """

    def __init__(self, means: Array | None = None, factor: Array | None = None) -> None:
        self.means, self.factor = means, factor

    def fit(self, features: Array, labels: Array) -> Self:
        """Take means and covariance of the training data's features ``(N, d)`` by their labels ``(N,)``."""
        from sklearn.covariance import LedoitWolf

        classes, index = np.unique(labels, return_inverse=True)
        self.means = np.stack([features[index == c].mean(0) for c in range(len(classes))])
        covariance = LedoitWolf(assume_centered=True).fit(features - self.means[index]).covariance_
        self.factor = np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) * np.eye(len(covariance)))
        return self

    def score(self, features: Array) -> Array:
        """The distance of each input, ``(N,)``.

        Args:
            features: ``(N, d)``.

        Returns:
            Squared distances in units of the classes' spread.

        Raises:
            ValueError: before :meth:`fit`.
        """
        if self.means is None or self.factor is None:
            raise ValueError("Mahalanobis: expected fit(features, labels) before score, got none")
        white, means = (solve_triangular(self.factor, z.T, lower=True).T for z in (features, self.means))
        squares = np.square(white).sum(1)[:, None] - 2 * white @ means.T + np.square(means).sum(1)
        return squares.min(1)
