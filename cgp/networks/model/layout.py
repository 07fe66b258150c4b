"""The tokens of a vision model that are patches, and their places in the image."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor, nn

__all__ = ["TokenLayout", "token_layout"]

_PREFIX = ("class_token", "cls_token", "register_tokens", "reg_token", "dist_token", "distillation_token")


class TokenLayout(NamedTuple):
    """The tokens of an image.

    Attributes:
        prefix: number of class and register tokens, which come first.
        grid: rows and columns of the patches, or None if the model takes several sizes.
    """

    prefix: int
    grid: tuple[int, int] | None

    def patches(self, values: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """Values ``(..., n)`` of tokens as ``(..., rows, columns)`` of patches; by default on the model's grid."""
        count = values.shape[-1] - self.prefix
        side = math.isqrt(max(count, 0))
        fits = [g for g in (grid, self.grid, (side, side)) if g is not None]
        rows, columns = fits[0] if grid is not None else next((g for g in fits if g[0] * g[1] == count), fits[0])
        if count < 1 or rows * columns != count:
            raise ValueError(
                f"grid: expected {count} patches ({values.shape[-1]} tokens, {self.prefix} of them before the "
                f"patches), got {rows} × {columns}"
            )
        return values[..., self.prefix :].unflatten(-1, (rows, columns))


def token_layout(model: nn.Module) -> TokenLayout:
    """The layout of a vision model: patches, row by row, after the class and register tokens among its parameters."""
    prefix = getattr(model, "num_prefix_tokens", None)
    if not isinstance(prefix, int):
        prefix = sum(
            parameter.shape[-2]
            for name, parameter in model.named_parameters()
            if name.rpartition(".")[-1] in _PREFIX and parameter.dim() >= 2
        )
    return TokenLayout(prefix, _grid(model))


def _grid(model: Any) -> tuple[int, int] | None:
    given = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if given is not None:
        return int(given[0]), int(given[1])
    owner = model if hasattr(model, "image_size") else getattr(model, "config", None)
    image, patch = (_pair(getattr(owner, name, None)) for name in ("image_size", "patch_size"))
    if image is None or patch is None:
        return None
    return image[0] // patch[0], image[1] // patch[1]


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    return (int(size[0]), int(size[1])) if isinstance(size, tuple | list) and len(size) == 2 else None
