"""Scales with a given sign: processes that fall where another rises."""

from __future__ import annotations

import math

import torch
from gpytorch.constraints import Interval
from torch import Tensor

__all__ = ["SignedPositive"]


class SignedPositive(Interval):
    r"""A constraint to :math:`s\,e^{\rho}` with a fixed sign s for each entry.

    Signs are no parameters: the joint sign of all scales cannot be told from data, and an optimiser cannot pass
    through zero, where the processes fall apart.

    Args:
        signs: +1 or -1 for each process, ``(P,)``.

    Raises:
        ValueError: if there is anything but +1 and -1.

    Example:
        >>> SignedPositive(torch.tensor([1.0, -1.0])).transform(torch.zeros(2))
        tensor([ 1., -1.])
    """

    def __init__(self, signs: Tensor) -> None:
        signs = torch.as_tensor(signs)
        if not (signs.abs() == 1).all():
            raise ValueError(f"signs: expected +1 and -1 only, got {signs.tolist()}")
        super().__init__(-math.inf, math.inf, transform=None)
        self.register_buffer("signs", signs.to(torch.get_default_dtype()))

    @property
    def enforced(self) -> bool:
        """Whether values are transformed: always."""
        return True

    def transform(self, tensor: Tensor) -> Tensor:
        """From the unconstrained to the signed scale.

        Args:
            tensor: ``(*batch, P)``.

        Returns:
            ``(*batch, P)``.
        """
        return self.signs.to(tensor) * tensor.exp()

    def inverse_transform(self, transformed_tensor: Tensor) -> Tensor:
        """From a scale, whose sign is ignored, to the unconstrained one.

        Args:
            transformed_tensor: ``(*batch, P)``, not zero.

        Returns:
            ``(*batch, P)``.
        """
        return transformed_tensor.abs().log()
