r"""Whitened features of several sets of tokens in inducing inputs that the whole batch shares, all at once.

.. math:: A = W\,\exp(-\tfrac12\|x_m - z\|^2), \qquad z = cx + d

The sequences of the batch lie side by side in one product a head, and so do queries, keys and latent inputs. Kept for
the backward pass are points, tokens and covariances.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .differentiation import open_backward
from .squared_exponential import covariance_of_centred, gram

__all__ = ["shared_features"]


def shared_features(
    points: Tensor, whitening: Tensor, *tokens: Tensor, scale: Tensor | None = None, shift: Tensor | None = None
) -> tuple[Tensor, ...]:
    r"""Features of each set of tokens, :math:`WK_{mz}`, :math:`z = cx + d_p`.

    Args:
        points: inducing inputs, ``(h, m, s)``.
        whitening: W, ``(h, m, m)``.
        *tokens: x of each set, ``(*batch, h, N, s)``.
        scale: c, ``(h, 1, 1)``; None is one.
        shift: :math:`d_p`, ``(p, h, 1, s)``; None is zero.

    Returns:
        For each, ``(*batch, h, m, N)``, its transpose contiguous.

    Example:
        >>> shared_features(torch.zeros(2, 1, 3), torch.ones(2, 1, 1), torch.zeros(5, 2, 4, 3))[0].shape
        torch.Size([5, 2, 1, 4])
    """
    if len({x.shape for x in tokens}) > 1:  # each on its own
        shifts = [None] * len(tokens) if shift is None else shift.split(1)
        pairs = zip(tokens, shifts, strict=True)
        return tuple(shared_features(points, whitening, x, scale=scale, shift=d)[0] for x, d in pairs)
    if not torch.is_grad_enabled():
        rows, _ = _features(points, whitening, scale, shift, tokens)
    else:
        rows = _SharedFeatures.apply(points, whitening, scale, shift, *tokens)
    return tuple(own.mT for own in rows)


def _room(like: Tensor, sets: int) -> Tensor:
    """For sets of tokens by head, ``(p, h, *batch, N, s)``."""
    *batch, heads, count, width = like.shape
    return like.new_empty(sets, heads, *batch, count, width)


def _relative(tokens: tuple[Tensor, ...], centre: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """AttentionInputs as points of the kernel relative to the centre of each head, ``(p, h, batch N, s)``."""
    room = _room(tokens[0], len(tokens))
    between = (1,) * (room.dim() - 4)
    for i, x in enumerate(tokens):
        away = centre if shift is None else centre - shift[i]
        away = away.view(away.shape[0], *between, 1, away.shape[-1])
        if scale is None:
            torch.sub(x.movedim(-3, 0), away, out=room[i])
        else:
            torch.addcmul(away.neg(), x.movedim(-3, 0), scale.view(-1, *between, 1, 1), out=room[i])
    return room.flatten(2, -2)


def _features(
    points: Tensor, whitening: Tensor, scale: Tensor | None, shift: Tensor | None, tokens: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Features as rows, ``(*batch, h, N, m)`` for each set, and covariances ``(p, h, batch N, m)``."""
    centre, sets = points.mean(-2, keepdim=True), len(tokens)
    rows = _relative(tokens, centre, scale, shift)
    covariance = covariance_of_centred(rows, (points - centre).expand(sets, *points.shape))
    apart = torch.matmul(covariance, whitening.mT).unflatten(2, (*tokens[0].shape[:-3], tokens[0].shape[-2]))
    return tuple(own.movedim(0, -3).contiguous() for own in apart), covariance


class _SharedFeatures(torch.autograd.Function):
    """Features as rows, ``(*batch, h, N, m)`` for each set."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        points, whitening, scale, shift, *tokens = arguments
        features, covariance = _features(points, whitening, scale, shift, tuple(tokens))
        ctx.save_for_backward(*arguments, covariance)
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        points, whitening, scale, shift, *tokens, covariance = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: every step in the open
            arguments = (points, whitening, scale, shift, *tokens)
            return open_backward(_plain(*arguments), arguments, gradients, ctx.needs_input_grad)
        room = _room(gradients[0], len(gradients))
        for gradient, own in zip(gradients, room, strict=True):
            own.copy_(gradient.movedim(-3, 0))
        of_features = room.flatten(2, -2)  # (p, h, batch N, m)
        of_whitening = (of_features.mT @ covariance).sum(0) if ctx.needs_input_grad[1] else None
        weights = torch.matmul(of_features, whitening).mul_(covariance)
        centre = points.mean(-2, keepdim=True)
        rows, b = _relative(tuple(tokens), centre, scale, shift), points - centre
        of_points = (weights.mT @ rows).sum(0).sub_(weights.sum((0, 2))[..., None] * b)
        of_rows = rows.mul_(weights.sum(-1, keepdim=True).neg_()).add_(weights @ b)
        of_shift = of_rows.sum(-2, keepdim=True) if ctx.needs_input_grad[3] else None
        apart = of_rows.unflatten(2, (*tokens[0].shape[:-3], tokens[0].shape[-2])).movedim(1, -3)
        of_scale = None
        if scale is not None:
            if ctx.needs_input_grad[2]:
                products = sum((own * x).sum((-2, -1), keepdim=True) for own, x in zip(apart, tokens, strict=True))
                of_scale = products.sum_to_size(scale.shape)
            apart.mul_(scale)
        return of_points, of_whitening, of_scale, of_shift, *apart


def _plain(
    points: Tensor, whitening: Tensor, scale: Tensor | None, shift: Tensor | None, *tokens: Tensor
) -> list[Tensor]:
    """Features as rows, every step in the open."""
    moved = list(tokens) if scale is None else [scale * x for x in tokens]
    moved = moved if shift is None else [x + own for x, own in zip(moved, shift, strict=True)]
    return [gram(x, points) @ whitening.mT for x in moved]
