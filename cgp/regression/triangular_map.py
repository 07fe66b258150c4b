"""The free map of the first process, with the rotation of the canonical space taken out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .positive import PositiveModule, positive_property

__all__ = ["TriangularMap"]


class TriangularMap(PositiveModule):
    r"""Maps inputs by an upper trapezoidal matrix with a positive diagonal.

    .. math:: x \mapsto x W^\top, \qquad W_{ij} = 0 \text{ for } j < i, \quad W_{ii} > 0

    An isotropic canonical covariance sees no rotation of its space. Every free map is such a W times a rotation, so
    giving this form to one process and leaving the others free loses nothing, and the parameters become identifiable.

    Args:
        in_features: d, dimensions of the inputs.
        out_features: s, dimensions of the canonical space, at most d.

    Raises:
        ValueError: if not 1 <= s <= d.

    Source:
        The QR decomposition; Murphy (2022), Probabilistic Machine Learning, section 20.2.4, on rotations of latent
        spaces.

    Example:
        >>> TriangularMap(3, 2).weight
        tensor([[0.7071, 0.0000, 0.0000],
                [0.0000, 0.7071, 0.0000]], grad_fn=<...>)
    """

    diagonal = positive_property("diagonal", "The positive diagonal, ``(*batch, s)``.")

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        if not 1 <= out_features <= in_features:
            raise ValueError(f"out_features: expected 1 to {in_features}, got {out_features}")
        self.in_features, self.out_features = in_features, out_features
        above = torch.ones(out_features, in_features).triu(1).bool()
        self.register_buffer("above", above)
        self.register_positive("diagonal", out_features)
        self.diagonal = torch.as_tensor(out_features**-0.5)
        self.register_parameter("entries", nn.Parameter(torch.zeros(int(above.sum()))))

    @property
    def weight(self) -> Tensor:
        """W, ``(*batch, s, d)``."""
        size, width = self.out_features, self.in_features
        diagonal = nn.functional.pad(torch.diag_embed(self.diagonal), (0, width - size))
        zeros = diagonal.new_zeros((*self.entries.shape[:-1], size, width))
        above = self.above.expand(zeros.shape)
        return diagonal + zeros.masked_scatter(above, self.entries)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs into the canonical space.

        Args:
            x: ``(*batch, n, d)``.

        Returns:
            ``(*batch, n, s)``.
        """
        return x @ self.weight.mT
