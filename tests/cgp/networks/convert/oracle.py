"""Mean and variance around a host's attention by dense algebra in float64, from the tensors of the plain host."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

AMPLITUDE, NOISE, LENGTHSCALE = 0.3, 0.05, 2.0
SCALES = {"amplitude": AMPLITUDE, "noise": NOISE, "lengthscale": LENGTHSCALE}


class Dense(NamedTuple):
    """Mean ``(B, h, Nq, s)`` and variance ``(B, h, Nq)`` of a call; which keys each query sees, ``(B, h, Nq, Nk)``."""

    mean: Tensor
    variance: Tensor
    seen: Tensor


def fused_calls(monkeypatch: pytest.MonkeyPatch, most: float = float("inf")) -> list[Dense]:
    """The calls of ``scaled_dot_product_attention`` from now on, whoever makes them; of so many queries at most."""
    calls: list[Dense] = []
    attend = nn.functional.scaled_dot_product_attention

    def watch(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if (count := query.shape[:-1].numel()) * key.shape[-2] > most:
            raise LookupError(f"{count} queries")
        calls.append(dense(query, key, value, attn_mask, is_causal, scale))
        return attend(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", watch)
    return calls


@torch.no_grad()
def dense(q: Tensor, k: Tensor, v: Tensor, mask: Any, is_causal: bool, scale: float | None) -> Dense:
    """The posterior of a call, one query after another."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    bias = torch.zeros(q.shape[-2], k.shape[-2]).double()
    if mask is not None:
        bias = torch.zeros(mask.shape).double().masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask
        bias = bias.double().masked_fill(bias < -1e30, -torch.inf)
    if is_causal:
        bias = bias.masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), -torch.inf)
    seen = (bias > -torch.inf).expand(*q.shape[:-1], k.shape[-2])
    weights = (scale * q @ k.mT + bias).masked_fill(~seen.any(-1, keepdim=True), 0.0).softmax(-1)
    quarter = q.shape[-1] ** 0.25
    points_q, points_k = q * scale * quarter / LENGTHSCALE, k / quarter / LENGTHSCALE
    variance = torch.ones(q.shape[:-1]).double()
    for index in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:-1])).tolist():
        keys = points_k[(*index[:-1], seen[tuple(index)])]
        cross = torch.exp(-0.5 * (points_q[tuple(index)] - keys).square().sum(-1))
        gram = torch.exp(-0.5 * (keys[:, None] - keys).square().sum(-1)) + NOISE * torch.eye(len(keys)).double()
        if len(keys):
            variance[tuple(index)] -= cross @ torch.cholesky_solve(cross[:, None], torch.linalg.cholesky(gram))[:, 0]
    return Dense(weights @ v, AMPLITUDE**2 * variance, seen)
