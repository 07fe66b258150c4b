"""Affine input maps, which make several correlated processes of one canonical process."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from torch import Tensor, nn

__all__ = ["MAP_KINDS", "AffineMap"]

MAP_KINDS = ("free", "diagonal")


class AffineMap(Module):
    r"""Maps the inputs of one process into the space of the canonical process.

    .. math:: x \mapsto x W^\top + b

    ``"free"``: any W. ``"diagonal"``: W = diag(w), w > 0, one inverse lengthscale per dimension. W starts orthogonal
    (the identity if it is square) and scaled so that inputs of unit variance have a mean squared distance of 2
    for any sizes: the canonical covariance, which has no lengthscale, is then of order one. b starts at 0.

    Args:
        in_features: d, dimensions of the inputs.
        out_features: s, dimensions of the canonical space; None means d.
        kind: "free" or "diagonal" (needs s = d).
        bias: whether the map has a bias b.
        batch_shape: one map for each batch member.

    Raises:
        ValueError: if a size is not positive, ``kind`` is unknown, or the sizes do not suit it.

    Example:
        >>> AffineMap(3, 2)(torch.randn(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        kind: str = "free",
        bias: bool = True,
        batch_shape: torch.Size = torch.Size(),
    ) -> None:
        super().__init__()
        out_features = in_features if out_features is None else out_features
        _check_sizes(in_features, out_features, kind)
        self.in_features, self.out_features, self.kind = in_features, out_features, kind
        self._batch_shape = torch.Size(batch_shape)
        size = min(in_features, out_features) ** -0.5
        if kind == "free":
            self.register_parameter("raw_weight", nn.Parameter(size * self._initial_directions()))
        else:
            self.register_parameter("raw_scales", nn.Parameter(torch.zeros(*batch_shape, out_features)))
            self.register_constraint("raw_scales", Positive())
            self.scales = torch.as_tensor(size)
        self.register_parameter("bias", nn.Parameter(torch.zeros(*batch_shape, out_features)) if bias else None)

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the parameters."""
        return self._batch_shape

    @property
    def scales(self) -> Tensor:
        """w, the positive scale of each canonical dimension, ``(*batch, s)``; not for a free map."""
        return self.raw_scales_constraint.transform(self.raw_scales)

    @scales.setter
    def scales(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_scales)
        self.initialize(raw_scales=self.raw_scales_constraint.inverse_transform(value))

    @property
    def weight(self) -> Tensor:
        """W, ``(*batch, s, d)``. A free map's can be set."""
        return self.raw_weight if self.kind == "free" else torch.diag_embed(self.scales)

    @weight.setter
    def weight(self, value: Tensor) -> None:
        if self.kind != "free":
            raise ValueError(
                f"weight: can be set on a map of kind 'free' only, this one is {self.kind!r}; set its scales"
            )
        self.initialize(raw_weight=torch.as_tensor(value).to(self.raw_weight))

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs ``(*batch, n, d)`` into the canonical space, ``(*batch, n, s)``."""
        if x.shape[-1] != self.in_features:
            raise ValueError(
                f"x: expected {self.in_features} features in the last dimension, got shape {tuple(x.shape)}"
            )
        dtype = self.weight.dtype
        if self.kind == "free" and x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"x: expected {dtype}, as the weights of the kernel's map, got {x.dtype} (pass x.to({dtype}), or "
                f"convert the model by .to({x.dtype}))"
            )
        z = x * self.scales.unsqueeze(-2) if self.kind == "diagonal" else x @ self.weight.mT
        return z if self.bias is None else z + self.bias.unsqueeze(-2)

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: Any, prefix: str) -> None:
        """Take in samples of the parameters that have priors; see :meth:`gpytorch.Module.pyro_load_from_samples`."""
        if self._priors:
            self._batch_shape = next(iter(samples_dict.values())).shape[:1] + self._batch_shape
        super().local_load_samples(samples_dict, memo, prefix)

    def extra_repr(self) -> str:
        """Sizes and kind."""
        return f"{self.in_features} -> {self.out_features}, kind={self.kind!r}, bias={self.bias is not None}"

    def _initial_directions(self) -> Tensor:
        """Orthonormal rows or columns, ``(*batch, s, d)``: the identity where square."""
        if self.in_features == self.out_features:
            directions = torch.eye(self.in_features)
        else:
            directions = nn.init.orthogonal_(torch.empty(self.out_features, self.in_features))
        return directions.repeat(*self._batch_shape, 1, 1)


def _check_sizes(in_features: int, out_features: int, kind: str) -> None:
    if kind not in MAP_KINDS:
        raise ValueError(f"kind: expected one of {MAP_KINDS}, got {kind!r}")
    if min(in_features, out_features) < 1:
        raise ValueError(f"in_features, out_features: expected positive sizes, got {in_features}, {out_features}")
    if kind == "diagonal" and out_features != in_features:
        raise ValueError(f"out_features: a diagonal map keeps the {in_features} input dimensions, got {out_features}")
