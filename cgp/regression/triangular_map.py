"""The free map of the first process, with the rotation of the canonical space taken out."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from torch import Tensor, nn

__all__ = ["TriangularMap"]


class TriangularMap(Module):
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

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        if not 1 <= out_features <= in_features:
            raise ValueError(f"out_features: expected 1 to {in_features}, got {out_features}")
        self.in_features, self.out_features = in_features, out_features
        self._batch_shape = torch.Size()
        above = torch.ones(out_features, in_features).triu(1).bool()
        self.register_buffer("above", above)
        self.register_parameter("raw_diagonal", nn.Parameter(torch.zeros(out_features)))
        self.register_constraint("raw_diagonal", Positive(transform=torch.exp, inv_transform=torch.log))
        self.diagonal = torch.as_tensor(out_features**-0.5)
        self.register_parameter("entries", nn.Parameter(torch.zeros(int(above.sum()))))

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the parameters: empty, or the number of samples that were loaded."""
        return self._batch_shape

    @property
    def diagonal(self) -> Tensor:
        """The positive diagonal, ``(*batch, s)``."""
        return self.raw_diagonal_constraint.transform(self.raw_diagonal)

    @diagonal.setter
    def diagonal(self, value: Tensor) -> None:
        value = torch.as_tensor(value).to(self.raw_diagonal)
        self.initialize(raw_diagonal=self.raw_diagonal_constraint.inverse_transform(value))

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

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: Any, prefix: str) -> None:
        """Take in samples of the parameters; see :meth:`gpytorch.Module.pyro_load_from_samples`.

        Args:
            samples_dict: samples by name of prior.
            memo: priors already seen.
            prefix: name of this module.
        """
        self._batch_shape = next(iter(samples_dict.values())).shape[:1] + self._batch_shape
        super().local_load_samples(samples_dict, memo, prefix)
