"""The size of the gradient that would make a classifier's answer uniform."""

from __future__ import annotations

from .scores import Array, InputScore, Seen, numbers

__all__ = ["GradNorm"]


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
