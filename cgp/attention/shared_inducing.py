"""Global inducing points that travel through the layers of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .sgpa import SGPAttention

__all__ = ["SharedInducingPoints"]


class SharedInducingPoints(nn.Module):
    r"""A model whose layers share one learned set of inducing points, as in SGPA.

    The points :math:`Z^0` are in the input space of the first layer and pass through the layers as tokens do; an
    attention returns its posterior mean at the points:

    .. math:: Z^l = f_l(Z^{l-1}), \qquad \beta_l = Z^{l-1}W_k

    So the global keys of every layer depend only on weights. They are computed once per forward pass, without a batch
    dimension and without dropout.

    Args:
        model: any module; this module has the same arguments and the same result.
        layers: layers of the model in the order in which tokens pass through them; each maps ``(n, d)`` to ``(n, d)``
            and may contain an :class:`~cgp.attention.sgpa.SGPAttention` with ``inducing="travel"``.

    Raises:
        ValueError: if no layer takes travelling points, or the layers expect different numbers of them.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023), section 3.3.

    Example:
        >>> layers = nn.Sequential(*(SGPAttention(8, 2, num_inducing=4, inducing="travel") for _ in range(2)))
        >>> model = SharedInducingPoints(layers, layers)
        >>> model(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(self, model: nn.Module, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.model = model
        self._path = tuple(layers)  # a tuple, not a ModuleList: the layers are registered in the model already
        blocks = self._blocks()
        if not blocks:
            raise ValueError("layers: expected an SGPAttention with inducing='travel' among them, got none")
        sizes = {(block.num_inducing, block.embed_dim) for block in blocks}
        if len(sizes) > 1:
            raise ValueError(f"layers: expected blocks of one num_inducing and embed_dim, got {sorted(sizes)}")
        self.inducing_points = nn.Parameter(torch.randn(*sizes.pop()).to(blocks[0].in_proj.weight))

    def forward(self, *args: Any, **options: Any) -> Any:
        """Pass the points through the layers, then run the model; arguments and result are the model's."""
        blocks = self._blocks()
        if all(block.frozen_factor("points") is not None for block in blocks):
            return self.model(*args, **options)
        with self._travelling(blocks):
            return self.model(*args, **options)

    def freeze(self) -> None:
        """Pass the points through the layers once; blocks keep the factors until ``train()``, new weights or a move.

        Raises:
            RuntimeError: if a block is in training mode.
        """
        blocks = self._blocks()
        with torch.no_grad(), self._travelling(blocks):
            for block in blocks:
                block.freeze()

    @contextmanager
    def _travelling(self, blocks: list[SGPAttention]) -> Iterator[None]:
        """Context in which every block holds the global keys of its layer."""
        try:
            points = self.inducing_points
            dropouts = [
                m for layer in self._path for m in layer.modules() if isinstance(m, nn.modules.dropout._DropoutNd)
            ]
            with _set(blocks, "_carries_points", True), _set(dropouts, "training", False):
                for layer in self._path:
                    points = layer(points)
            yield
        finally:
            for block in blocks:
                block._travelled = None

    def _blocks(self) -> list[SGPAttention]:
        modules = (module for layer in self._path for module in layer.modules())
        return [m for m in modules if isinstance(m, SGPAttention) and m.inducing == "travel"]


@contextmanager
def _set(modules: Iterable[nn.Module], name: str, value: bool) -> Iterator[None]:
    """Context in which a boolean attribute of modules has the value."""
    changed = [module for module in modules if getattr(module, name) != value]
    for module in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in changed:
            setattr(module, name, not value)
