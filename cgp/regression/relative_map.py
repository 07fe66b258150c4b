"""The diagonal map of a later process: the first one's lengthscales, each times a ratio."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor, nn

from cgp.kernels import AffineMap

__all__ = ["RelativeMap"]

_LOG_RATIO_WIDTH = 0.5


class RelativeMap(Module):
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

    def __init__(self, reference: AffineMap, *, bias: bool = True) -> None:
        super().__init__()
        if reference.kind != "diagonal":
            raise ValueError(f"reference: expected a diagonal map, got one of kind {reference.kind!r}")
        self.kind = "diagonal"
        # Not a submodule: its parameters belong to the first process.
        self._reference = (reference,)
        self._batch_shape = torch.Size()
        size = reference.out_features
        loc, width, one = (torch.tensor(value, dtype=torch.float64) for value in (0.0, _LOG_RATIO_WIDTH, 1.0))
        self.register_parameter("raw_ratio", nn.Parameter(torch.zeros(size)))
        self.register_constraint("raw_ratio", Positive(transform=torch.exp, inv_transform=torch.log))
        self.register_prior("ratio_prior", LogNormalPrior(loc, width), "ratio")
        self.register_parameter("bias", nn.Parameter(torch.zeros(size)) if bias else None)
        if bias:
            self.register_prior("bias_prior", NormalPrior(loc, one), "bias")

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the parameters: empty, or the number of samples that were loaded."""
        return self._batch_shape

    @property
    def ratio(self) -> Tensor:
        """r, ``(*batch, d)``."""
        return self.raw_ratio_constraint.transform(self.raw_ratio)

    @ratio.setter
    def ratio(self, value: Tensor) -> None:
        value = torch.as_tensor(value).to(self.raw_ratio)
        self.initialize(raw_ratio=self.raw_ratio_constraint.inverse_transform(value))

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

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: Any, prefix: str) -> None:
        """Take in samples of the parameters; see :meth:`gpytorch.Module.pyro_load_from_samples`.

        Args:
            samples_dict: samples by name of prior.
            memo: priors already seen.
            prefix: name of this module.
        """
        self._batch_shape = next(iter(samples_dict.values())).shape[:1] + self._batch_shape
        super().local_load_samples(samples_dict, memo, prefix)
