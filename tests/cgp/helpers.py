"""Helpers of several tests."""

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy
import torch
from torch.utils._python_dispatch import TorchDispatchMode


@torch.no_grad()
def moved(module: Any, by: float = 0.3) -> Any:
    """The module, every parameter that is trained moved from where it starts, so that nothing agrees by chance."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.add_(by * torch.randn_like(parameter))
    return module


def moments_of_draws(draw: Callable[[int], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of draws that are affine in normals: their values at no normals, and their outer effects.

    ``draw`` takes a count and returns draws ``(count, t)``. It is given normals of which one is 1 in each draw, none in
    the last.
    """
    randn, probe, sizes = torch.randn, 97, []

    def recorded(*shape, **options):
        normals = randn(*shape, **options)
        sizes.append(normals.numel() // probe)
        return normals

    with patch("torch.randn", recorded):
        draw(probe)
    count, places = sum(sizes) + 1, iter(torch.arange(sum(sizes)).split(sizes))

    def units(*shape, **options):
        normals = randn(*shape, **options)
        (axis,) = (i for i, size in enumerate(normals.shape) if size == count)
        moved = normals.movedim(axis, -1)
        moved.copy_(torch.eye(count)[next(places)].reshape(moved.shape))
        return normals

    with patch("torch.randn", units):
        *draws, mean = draw(count)
    effects = torch.stack(draws) - mean
    return mean, effects.mT @ effects


class Sizes(TorchDispatchMode):
    """Records the shape of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, torch.Tensor):
                self.shapes.add(tuple(x.shape))
        return result

    def largest(self) -> int:
        """Number of elements of the largest one."""
        return max(math.prod(shape) for shape in self.shapes)


def by_formula(formula: str, **known: Any) -> np.ndarray:
    """The score that a formula of a report computes from what is given, with the names of NumPy and SciPy."""
    scope = vars(np) | vars(np.linalg) | vars(scipy.special) | vars(scipy.spatial.distance) | known
    exec(formula, scope)
    return scope["score"]


def is_whole(figure: Any) -> bool:
    """Whether all that is drawn of a figure lies within it, as ``savefig`` cuts it."""
    figure.canvas.draw()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return bool(drawn.x0 >= 0.0 and drawn.y0 >= 0.0 and drawn.x1 <= width and drawn.y1 <= height)
