"""A bound on how much a linear layer can stretch its inputs."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parametrize

__all__ = ["SpectralBound", "bound_spectral_norm"]


class SpectralBound(nn.Module):
    r"""Shrinks a matrix whose largest singular value exceeds a bound; leaves others as they are.

    .. math:: W \mapsto W \min(1, c / \sigma_{\max}(W))

    with the singular value by power iteration, one step a pass in training mode.

    Args:
        weight: the matrix to start from.
        bound: c.

    Raises:
        ValueError: if the bound is not positive.

    Source:
        Liu et al. (2020), Simple and Principled Uncertainty Estimation, equation (10); Miyato et al. (2018),
        algorithm 1.

    Example:
        >>> SpectralBound(torch.eye(3), 0.5).eval()(torch.eye(3)).diagonal()
        tensor([0.5000, 0.5000, 0.5000])
    """

    left: Tensor
    right: Tensor

    def __init__(self, weight: Tensor, bound: float) -> None:
        super().__init__()
        if not bound > 0:
            raise ValueError(f"bound: expected above 0, got {bound}")
        self.bound = bound
        self.register_buffer("left", normalize(torch.randn(weight.shape[0]).to(weight), dim=0))
        self.register_buffer("right", normalize(torch.randn(weight.shape[1]).to(weight), dim=0))
        self._iterate(weight, 20)

    def forward(self, weight: Tensor) -> Tensor:
        """Apply the bound.

        Args:
            weight: `(out, in)`.

        Returns:
            `(out, in)`.
        """
        if self.training:
            self._iterate(weight, 1)
        # Copies: the next pass changes the buffers while this one may still wait for its gradient.
        largest = self.left.clone() @ weight @ self.right.clone()
        return weight * (self.bound / largest).clamp(max=1.0)

    @torch.no_grad()
    def _iterate(self, weight: Tensor, steps: int) -> None:
        for _ in range(steps):
            self.left.copy_(normalize(weight @ self.right, dim=0))
            self.right.copy_(normalize(weight.mT @ self.left, dim=0))


def bound_spectral_norm(layer: nn.Linear, bound: float) -> nn.Linear:
    """Bound the largest singular value of a layer's weights, in place.

    Args:
        layer: a linear layer.
        bound: of the singular values.

    Returns:
        The same layer.

    Example:
        >>> layer = bound_spectral_norm(nn.Linear(8, 8), 0.1)
        >>> bool(torch.linalg.matrix_norm(layer.eval().weight, 2) < 0.11)
        True
    """
    parametrize.register_parametrization(layer, "weight", SpectralBound(layer.weight, bound))
    return layer
