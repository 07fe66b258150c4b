"""Inducing inputs chosen from data: greedily, by the largest remaining variance."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.inputs import full_precision
from cgp.functional.kernels import Canonical

from .inputs import call_model, check_finite_inputs, model_device, to_device
from .structural_copy import structural_copy, with_own_buffers

__all__ = ["initialize_inducing", "most_informative"]

_MAX_CANDIDATES = 1024  # per head; the cost is this number times m squared


@torch.no_grad()
def initialize_inducing(model: nn.Module, inputs: Any, only: Collection[nn.Module] | None = None) -> nn.Module:
    r"""Choose the inducing inputs of sparse CGP layers among the queries and keys of a batch.

    The points are chosen one after another, each with the largest variance given those before (a pivoted Cholesky
    factorisation of the canonical covariance), which greedily decreases the trace of the unexplained covariance.

    Args:
        model: a model with :class:`~cgp.SparseCGPAttention` blocks or layers converted by "sparse_cgp"; other layers
            are not changed.
        inputs: a batch of model inputs: a tensor, a tuple of arguments or a dict of them.
        only: the layers to initialise; None is all.

    Returns:
        The same model.

    Raises:
        ValueError: if such a layer is not reached in a call of the model, or inputs are not finite.

    Note:
        Burt, Rasmussen & van der Wilk, Convergence of Sparse Variational Inference in Gaussian Processes Regression
        (JMLR 2020), section 4.1.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> block = SparseCGPAttention(8, 2, num_inducing=3, mean="softmax").eval()
        >>> _ = initialize_inducing(block, torch.randn(4, 5, 8))
        >>> block.inducing_points.shape
        torch.Size([2, 3, 4])
    """
    check_finite_inputs(model, inputs)
    seen: dict[str, Any] = {}
    copy = with_own_buffers(structural_copy(model))
    for module in copy.modules():
        module.training = False  # so that stochastic blocks return their mean
    blocks: dict[str, Any] = {name: module for name, module in model.named_modules() if _is_sparse(module)}
    blocks = {name: block for name, block in blocks.items() if only is None or block in only}
    for name in blocks:
        block_copy: Any = copy.get_submodule(name)
        vars(block_copy)["attend"] = _Watch(name, block_copy.attend, seen)
    call_model(copy, to_device(inputs, model_device(model)))
    for name, block in blocks.items():
        if name not in seen:
            raise ValueError(f"inputs: expected a batch for which {name} attends, got one for which it does not")
        with full_precision(model_device(model)):
            real = torch.cat([_real(z, padding) for z, padding in block.candidates(seen[name])])  # (N, h, s)
            real = real if block.num_heads > 1 else real.flatten(0, 1)[:, None]
            block.place_inducing(most_informative(_some(real), block.num_inducing, block.canonical))
        block.train(block.training)  # drops factors frozen with the old points
    return model


def _is_sparse(module: nn.Module) -> bool:
    return hasattr(module, "place_inducing") and bool(getattr(module, "num_inducing", None))


class _Watch:
    """Replaces a block's ``attend`` and records its inputs."""

    def __init__(self, name: str, attend: Any, seen: dict[str, Any]) -> None:
        self.name, self.attend, self.seen = name, attend, seen

    def __call__(self, inputs: Any) -> Tensor:
        self.seen[self.name] = inputs
        return self.attend(inputs)


def _some(points: Tensor) -> Tensor:
    """(N, h, s) → a random subset of at most ``_MAX_CANDIDATES``, (h, N, s)."""
    order = torch.randperm(len(points), device=points.device)[:_MAX_CANDIDATES]
    return points[order].transpose(0, 1)


def _real(z: Tensor, padding: Tensor | None) -> Tensor:
    """(*batch, h, n, s) → the real tokens of every sequence, (N, h, s)."""
    z = z.transpose(-2, -3)  # (*batch, n, h, s)
    if padding is None:
        return z.flatten(0, -3)
    return z[~padding[..., 0, :].expand(z.shape[:-2])]


def most_informative(candidates: Tensor, count: int, canonical: Canonical) -> Tensor:
    """Choose points ``(h, m, s)`` of candidates ``(h, N, s)`` greedily, by their variance given those chosen before."""
    heads = torch.arange(candidates.shape[0], device=candidates.device)
    variance = canonical.diagonal(candidates)  # (h, N)
    rows: list[Tensor] = []
    chosen: list[Tensor] = []
    for _ in range(count):
        pivot = variance.argmax(-1)
        point = candidates[heads, pivot][:, None]  # (h, 1, s)
        explained = variance[heads, pivot].clamp(min=1e-6).sqrt()
        row = canonical.gram(point, candidates)[:, 0]
        for earlier in rows:
            row = row - earlier[heads, pivot][:, None] * earlier
        rows.append(row / explained[:, None])
        variance = (variance - rows[-1].square()).clamp(min=0.0)
        exhausted = explained < 2e-3  # then points are chosen again, with a small random shift
        chosen.append(torch.where(exhausted[:, None, None], point + 0.1 * torch.randn_like(point), point))
    return torch.cat(chosen, -2)
