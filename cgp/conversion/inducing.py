"""Inducing inputs chosen from data: those that explain the most of what is left."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn

from cgp.attention import AttentionInputs, SparseCGPAttention
from cgp.attention.inducing import LearnedInducing
from cgp.attention.inputs import full_precision
from cgp.functional.covariances import Canonical
from cgp.model.blocks import attention_blocks, sampling
from cgp.model.circumstances import eval_mode
from cgp.model.inputs import call_model, model_device, to_device
from cgp.model.replay import replaced

__all__ = ["initialize_inducing", "most_informative"]

_MAX_CANDIDATES = 1024  # a head; the choice costs their number times m squared


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
        >>> block.inducing.points.shape
        torch.Size([2, 3, 4])
    """
    blocks = [
        b for b in attention_blocks(model) if isinstance(b, SparseCGPAttention) and not b.inducing.depends_on_tokens
    ]
    seen: dict[SparseCGPAttention, AttentionInputs] = {}
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(replaced(block, "attend", _Watch(block, seen)))
        stack.enter_context(eval_mode(model))
        stack.enter_context(sampling(model, "mean"))
        call_model(model, to_device(inputs, model_device(model)))
    for block, tokens in seen.items():
        _choose(block, tokens)
        block.train(block.training)  # drops factors frozen with the old points
    return model


class _Watch:
    """Stands for a block's ``attend`` and keeps what came in."""

    def __init__(self, block: SparseCGPAttention, seen: dict[SparseCGPAttention, AttentionInputs]) -> None:
        self.block, self.seen, self.attend = block, seen, block.attend

    def __call__(self, tokens: AttentionInputs) -> Tensor:
        self.seen[self.block] = tokens
        return self.attend(tokens)


def _choose(block: SparseCGPAttention, tokens: AttentionInputs) -> None:
    assert isinstance(block.inducing, LearnedInducing)
    with full_precision(tokens.q.device):
        candidates = _candidates(block, tokens)
        chosen = most_informative(candidates, block.num_inducing, block.canonical)
        block.inducing.points.copy_(chosen if block.softmax is None else block.softmax.grown(chosen))
        if block.key_inducing is not None:
            others = cast(LearnedInducing, block.key_inducing).points
            others.copy_(most_informative(candidates, others.shape[-2], block.canonical))


def _candidates(block: SparseCGPAttention, tokens: AttentionInputs) -> Tensor:
    """Real queries and keys of every sequence, ``(h, N, s)``, in the coordinates of the inducing inputs."""
    if block.softmax is not None:
        points = block.softmax.points(tokens)
        pairs = [(points.q, tokens.query_padding), (points.k, tokens.key_padding)]
    else:
        latent = [] if tokens.o is None else [(tokens.o, tokens.key_padding)]
        pairs = [(tokens.q, tokens.query_padding), (tokens.k, tokens.key_padding), *latent]
    real = torch.cat([_real(z, padding) for z, padding in pairs])  # (N, h, s)
    order = torch.randperm(len(real), device=real.device)[:_MAX_CANDIDATES]
    return real[order].transpose(0, 1)


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
        >>> from cgp.functional.covariances import canonical
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
