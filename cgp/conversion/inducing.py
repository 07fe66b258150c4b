"""Inducing inputs chosen from data: those that explain the most of what is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from cgp.attention import AttentionInputs, SparseCGPAttention
from cgp.attention.inputs import full_precision
from cgp.functional.kernels import Canonical, canonical
from cgp.model.blocks import attention_blocks
from cgp.model.inputs import call_model, model_device, to_device
from cgp.model.twin import twin

from .heads import ConvertedHeads, HostAttention, query_padding

__all__ = ["choose_inducing", "initialize_inducing", "most_informative"]

_MAX_CANDIDATES = 1024  # a head; the choice costs their number times m squared


@torch.no_grad()
def choose_inducing(model: nn.Module, heads: list[ConvertedHeads], num_inducing: int, inputs: Any) -> None:
    """Give converted heads inducing inputs, chosen among the queries and keys of a batch.

    Args:
        model: which holds the heads; they are changed, nothing else is.
        heads: of its converted layers.
        num_inducing: m per head.
        inputs: what the model takes.

    Raises:
        ValueError: if a layer does not attend in a call of the model.
    """
    seen = _seen(model, heads, inputs)
    for own in heads:
        if own not in seen:
            raise ValueError(f"inputs: expected a batch for which {own.path} attends, got one for which it does not")
        attended: HostAttention = seen[own]
        with full_precision(attended.q.device):
            q, k = own.points(attended)
            visible = own.visible(attended)
            real = torch.cat([_real(q, query_padding(attended, visible)), _real(k, visible.hidden)])
            real = real if own.num_heads > 1 else real.flatten(0, 1)[:, None]
            chosen = most_informative(_some(real), num_inducing, canonical("rbf"))
            lengthscale = own.log_lengthscale.exp()[:, None, None].to(chosen.dtype)
            own.inducing = nn.Parameter((chosen * lengthscale).to(own.log_lengthscale.dtype))


def _seen(model: nn.Module, blocks: Iterable[nn.Module], inputs: Any) -> dict[nn.Module, Any]:
    """What blocks of a model attend with in one call; a twin of the model is run."""
    copy = twin(model)
    names = {module: name for name, module in model.named_modules()}
    seen: dict[nn.Module, Any] = {}
    for module in copy.modules():
        module.training = False  # stochastic blocks give their mean then
    for block in blocks:
        own: Any = copy.get_submodule(names[block])
        vars(own)["attend"] = _Watch(block, own.attend, seen)
    call_model(copy, to_device(inputs, model_device(model)))
    return seen


class _Watch:
    """Stands for a block's ``attend`` and keeps what came in."""

    def __init__(self, block: nn.Module, attend: Any, seen: dict[nn.Module, Any]) -> None:
        self.block, self.attend, self.seen = block, attend, seen

    def __call__(self, inputs: Any) -> Tensor:
        self.seen[self.block] = inputs
        return self.attend(inputs)


@torch.no_grad()
def initialize_inducing(model: nn.Module, inputs: Any) -> nn.Module:
    r"""Choose the learned inducing inputs of sparse CGP layers among the queries and keys of a batch.

    One after another, each the point with the largest variance given those before (a pivoted Cholesky factorisation of
    the canonical covariance), so that the trace of what the inducing inputs leave unexplained falls greedily.

    Args:
        model: with :class:`~cgp.SparseCGPAttention` layers; others are left alone.
        inputs: what the model takes: a tensor, a tuple of arguments or a dict of them.

    Returns:
        The same model.

    Note:
        Burt, Rasmussen & van der Wilk, Convergence of Sparse Variational Inference in Gaussian Processes Regression
        (JMLR 2020), section 4.1.

    Example:
        >>> block = SparseCGPAttention(8, 2, num_inducing=3, mean="softmax").eval()
        >>> _ = initialize_inducing(block, torch.randn(4, 5, 8))
        >>> block.inducing_points.shape
        torch.Size([2, 3, 4])
    """
    blocks = [block for block in attention_blocks(model) if isinstance(block, SparseCGPAttention)]
    for block, tokens in _seen(model, blocks, inputs).items():
        _choose(cast(SparseCGPAttention, block), tokens)
        block.train(block.training)  # drops factors frozen with the old points
    return model


def _choose(block: SparseCGPAttention, tokens: AttentionInputs) -> None:
    with full_precision(tokens.q.device):
        candidates = _candidates(block, tokens)
        chosen = most_informative(candidates, block.num_inducing, block.canonical)
        if block.softmax is not None:
            chosen = chosen * block.softmax.log_lengthscale.exp()[:, None, None]
        block.inducing_points.copy_(chosen)


def _candidates(block: SparseCGPAttention, tokens: AttentionInputs) -> Tensor:
    """Real queries and keys of every sequence, ``(h, N, s)``, in the coordinates of the inducing inputs."""
    if block.softmax is not None:
        q, k = block.softmax.points(tokens)
        pairs = [(q, tokens.query_padding), (k, tokens.key_padding)]
    else:
        latent = [] if tokens.o is None else [(tokens.o, tokens.key_padding)]
        pairs = [(tokens.q, tokens.query_padding), (tokens.k, tokens.key_padding), *latent]
    real = torch.cat([_real(z, padding) for z, padding in pairs])  # (N, h, s)
    return _some(real)


def _some(points: Tensor) -> Tensor:
    """(N, h, s) → at most so many of them by chance, (h, N, s)."""
    order = torch.randperm(len(points), device=points.device)[:_MAX_CANDIDATES]
    return points[order].transpose(0, 1)


def _real(z: Tensor, padding: Tensor | None) -> Tensor:
    """(*batch, h, n, s) → the real tokens of every sequence, (N, h, s)."""
    z = z.transpose(-2, -3)  # (*batch, n, h, s)
    if padding is None:
        return z.flatten(0, -3)
    return z[~padding[..., 0, :].expand(z.shape[:-2])]


def most_informative(candidates: Tensor, count: int, canonical: Canonical) -> Tensor:
    """Points chosen greedily by their variance given those chosen before.

    Args:
        candidates: ``(h, N, s)``.
        count: m; where it exceeds N or nothing is left to explain, points are chosen again, slightly moved.
        canonical: the covariance.

    Returns:
        ``(h, m, s)``.

    Example:
        >>> from cgp.functional.kernels import canonical
        >>> most_informative(torch.tensor([[[0.0], [0.1], [9.0]]]), 2, canonical("rbf")).flatten()
        tensor([0., 9.])
    """
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
        exhausted = explained < 2e-3
        chosen.append(torch.where(exhausted[:, None, None], point + 0.1 * torch.randn_like(point), point))
    return torch.cat(chosen, -2)
