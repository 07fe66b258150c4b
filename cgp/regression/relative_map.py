"""The diagonal map of a later process: the first one's lengthscales, each times a ratio."""

from __future__ import annotations

import torch
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor, nn

from cgp.kernels import AffineMap

from .positive import PositiveModule, positive_property

__all__ = ["RelativeMap"]

_LOG_RATIO_WIDTH = 0.5


class RelativeMap(PositiveModule):
    r"""Maps inputs by the scales of another diagonal map, each times a ratio.

    .. math:: x \mapsto x \odot w_0 \odot r + b

    The ratio r has a log-normal prior about 1 with log-sd 1/2: processes that share a canonical process are expected
    to vary about as fast, and a process with few observations takes its lengthscales from the first.

    Args:
        reference: the first process's map, whose parameters stay its own.
        bias: whether there is a b, with a standard normal prior.

    Raises:
        ValueError: if the reference is not diagonal.

    Example:
        >>> RelativeMap(AffineMap(2, kind="diagonal"), bias=False)(torch.ones(1, 2))
        tensor([[0.7071, 0.7071]], grad_fn=<...>)
    """

    ratio = positive_property("ratio", "r, ``(*batch, d)``.")

    def __init__(self, reference: AffineMap, *, bias: bool = True) -> None:
        super().__init__()
        if reference.kind != "diagonal":
            raise ValueError(f"reference: expected a diagonal map, got one of kind {reference.kind!r}")
        self.kind = "diagonal"
        # Not a submodule: its parameters belong to the first process.
        self._reference = (reference,)
        size = reference.out_features
        loc, width, one = (torch.tensor(value, dtype=torch.float64) for value in (0.0, _LOG_RATIO_WIDTH, 1.0))
        self.register_positive("ratio", size)
        self.register_prior("ratio_prior", LogNormalPrior(loc, width), "ratio")
        self.register_parameter("bias", nn.Parameter(torch.zeros(size)) if bias else None)
        if bias:
            self.register_prior("bias_prior", NormalPrior(loc, one), "bias")

    @property
    def weight(self) -> Tensor:
        """W, ``(*batch, d, d)``."""
        return torch.diag_embed(self._reference[0].scales * self.ratio)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs into the canonical space.

        Args:
            x: ``(*batch, n, d)``.

        Returns:
            ``(*batch, n, d)``.
        """
        z = x * (self._reference[0].scales * self.ratio).unsqueeze(-2)
        return z if self.bias is None else z + self.bias.unsqueeze(-2)
