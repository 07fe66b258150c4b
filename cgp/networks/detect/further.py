"""Scores that are asked for by name: the size of a gradient, and what kernel components leave of a representation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from cgp.networks.predict.method import Training

from .scores import Array, InputScore, Seen, numbers

__all__ = ["GradNorm", "KernelPCA"]


class GradNorm(InputScore):
    r"""Minus the 1-norm of the gradient of :math:`\operatorname{KL}(u\,\|\,p)` by the last layer's weights.

    With the representation z, probabilities p and uniform u the gradient is :math:`(p - u)z^\top`, of the norm

    .. math:: \|p - u\|_1\,\|z\|_1

    Note:
        Huang, Geng & Li, On the Importance of Gradients for Detecting Distributional Shifts in the Wild (NeurIPS 2021).
    """

    name = words = "GradNorm"

    def of(self, seen: Seen) -> Array:
        """Of the logits and the representation."""
        p = numbers(seen.logits.double().softmax(-1))
        size: Array = abs(p - 1.0 / p.shape[1]).sum(1) * abs(seen.features).sum(1)
        return -size


_POINTS = 1000  # training inputs at most, at even distances
_KEPT = 0.99  # share of the variance that the components explain


@dataclass
class KernelPCA(InputScore):
    r"""Reconstruction error of kernel principal components of the directions of the representation.

    With the squared exponential :math:`\kappa` of :math:`z/\|z\|`, centred over n training inputs, whose mean square
    distance is its squared lengthscale, and the components :math:`u_j` that explain 99 % of the variance,

    .. math:: \tilde\kappa(z, z) - \sum_j \big(u_j^\top\tilde\kappa(Z, z)\big)^2 / \lambda_j

    Args:
        points: directions Z, ``(n, d)``; None until :meth:`fit`.
        maps: :math:`u_j\lambda_j^{-1/2}`, ``(n, q)``.
        precision: of the kernel, :math:`1/\ell^2`.

    Note:
        Fang, Tao, Lv, He, Huang & Yang, Kernel PCA for Out-of-Distribution Detection (NeurIPS 2024), whose features
        are random ones of this kernel.
    """

    points: Array | None = None
    maps: Array | None = None
    precision: float = 1.0

    name, needs_train, words = "kernel PCA", True, "the error of kernel PCA"

    def fit(self, training: Training) -> Self:
        """The components of the training data."""
        return self.of_features(training.features.numpy())

    @classmethod
    def of_features(cls, features: Array) -> Self:
        """The components of features ``(N, d)``."""
        chosen = np.unique(np.linspace(0, len(features) - 1, min(len(features), _POINTS)).astype(int))
        points = _directions(features[chosen])
        squares = cdist(points, points, "sqeuclidean")
        precision = 1.0 / max(float(squares.mean()), 1e-12)
        K = np.exp(-0.5 * precision * squares)
        values, vectors = np.linalg.eigh(K - K.mean(0) - K.mean(1)[:, None] + K.mean())
        values, vectors = values[::-1].clip(min=0.0), vectors[:, ::-1]
        count = int(np.searchsorted(values.cumsum(), _KEPT * values.sum())) + 1
        kept = values[:count] > 1e-10 * max(values[0], 1e-300)
        return cls(points, vectors[:, :count][:, kept] / np.sqrt(values[:count][kept]), precision)

    def errors(self, features: Array) -> Array:
        """Squared errors ``(N,)`` of features ``(N, d)``."""
        if self.points is None or self.maps is None:
            raise ValueError("kernel PCA: expected fit(training) before it is used, got none")
        k, means = self._gram(_directions(features)), self._means
        own = 1.0 - 2.0 * k.mean(1) + means.mean()
        explained = np.square((k - k.mean(1)[:, None] - means + means.mean()) @ self.maps).sum(1)
        error: Array = (own - explained).clip(min=0.0)
        return error

    @cached_property
    def _means(self) -> Array:
        assert self.points is not None
        means: Array = self._gram(self.points).mean(0)
        return means

    def _gram(self, directions: Array) -> Array:
        K: Array = np.exp(-0.5 * self.precision * cdist(directions, self.points, "sqeuclidean"))
        return K

    def of(self, seen: Seen) -> Array:
        """Of the representation."""
        return self.errors(seen.features)


def _directions(features: Array) -> Array:
    return features / np.linalg.norm(features, axis=1, keepdims=True).clip(min=1e-12)
