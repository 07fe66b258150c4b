"""The representation that the last layer of a network reads, and distances in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cgp.networks.model.inputs import call_model
from cgp.networks.model.structural_copy import structural_copy, with_own_buffers

__all__ = ["Features", "Mahalanobis", "call_with_features", "pooled_features", "standardised"]

Array = NDArray[Any]
Features = Callable[[nn.Module, Any], Tensor]
"""Computes the representation ``(N, d)`` of inputs."""


def pooled_features(model: nn.Module, inputs: Any) -> Tensor:
    """The representation ``(N, d)`` that the last layer of a network reads, averaged over tokens if any.

    The last layer is the linear one whose output the network returns, or else the last one that it calls.

    Args:
        model: the network. It is not changed.
        inputs: a tensor, a tuple of arguments or a dict of them.

    Returns:
        The representation.
    """
    copy = with_own_buffers(structural_copy(model))
    return call_with_features(copy, lambda: call_model(copy, inputs))[1]


def call_with_features(model: nn.Module, call: Callable[[], Any], given: Any = None) -> tuple[Any, Tensor]:
    """What a call of a model returns, and the representation ``(N, d)`` that its last layer read.

    Args:
        model: gets hooks for the time of the call.
        call: runs it.
        given: what the last layer reads if no layer of the model is called: of a model that is itself linear, and
            whose ``forward`` is called.

    Returns:
        Both.

    Raises:
        ValueError: if no linear layer was called.
    """
    calls: dict[int, tuple[Tensor, Any]] = {}  # the last of each width, in their order

    def keep(layer: nn.Linear, arguments: tuple[Any, ...], options: dict[str, Any], returned: Tensor) -> None:
        calls.pop(layer.out_features, None)
        calls[layer.out_features] = next(iter((*arguments, *options.values()))), weakref.ref(returned)

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    try:
        returned = call()
    finally:
        for hook in hooks:
            hook.remove()
    read = _read_by_last(calls, returned, given)
    return returned, read.flatten(1, -2).mean(1) if read.dim() > 2 else read


def _read_by_last(calls: Mapping[int, tuple[Tensor, Any]], returned: Any, given: Any) -> Tensor:
    """What the layer read whose output is among those that a model returned, or else the last layer."""
    leaves = tree_leaves([returned, getattr(returned, "logits", None)])
    outputs = {id(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
    reads = [read for read, output in calls.values() if id(output()) in outputs]
    reads = reads or [read for read, _ in calls.values()] or ([] if given is None else [given])
    if not reads:
        raise ValueError(
            "model: expected a linear layer that reads the representation, got none (pass features=..., a function of "
            "the model and its inputs)"
        )
    return reads[-1]


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


def standardised(known: Array) -> Callable[[Array], Array]:
    """A map to standard deviations above the mean over known inputs."""
    mean, deviation = known.mean(), max(float(known.std()), 1e-12)
    return lambda scores: (scores - mean) / deviation
