r"""Kernel-eigen pair sparse variational Gaussian process: inducing features from a kernel singular value decomposition.

Chen, Tao, Tonin & Suykens, Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes (2024). The
attention matrix :math:`\varphi_q\varphi_k^\top` is asymmetric; its left and right singular vectors, scaled by the
singular values, are learned as projections of the feature maps,

.. math:: E = \varphi_q(X)\,W_{e|X} \to H_e\Lambda, \qquad R = \varphi_k(X)\,W_{r|X} \to H_r\Lambda, \qquad
    W_{\cdot|X} = f(X)^\top W_\cdot

and are the features of two sparse Gaussian processes that share the inducing variables :math:`u \sim N(0, \Lambda^2)`:

.. math:: F^e = E\Lambda^{-1}u, \qquad F^r = R\Lambda^{-1}u

Nothing n × n is formed: O(n r (s + r)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .padding import mask_tokens

__all__ = [
    "BRANCHES",
    "FEATURE_MAPS",
    "KSVD_LOSSES",
    "Projections",
    "cosine",
    "elu",
    "identity",
    "ksvd_loss",
    "landmarks",
    "merge_branches",
    "primal_weights",
    "projections",
    "published_ksvd_loss",
    "residual_variances",
]

BRANCHES = ("both", "e", "r")
KSVD_LOSSES = ("exact", "published")


class Projections(NamedTuple):
    r"""The two projections of the kernel singular value decomposition.

    Attributes:
        e: :math:`\varphi_q W_{e|X}`, ``(*batch, Nq, r)``, zero at padded tokens.
        r: :math:`\varphi_k W_{r|X}`, ``(*batch, Nk, r)``, zero at padded tokens.
        trace: :math:`\operatorname{tr}W_{e|X}^\top W_{r|X}`, ``(*batch,)``.
    """

    e: Tensor
    r: Tensor
    trace: Tensor


def cosine(x: Tensor) -> Tensor:
    r"""Feature map of the cosine kernel, :math:`x/\|x\|`.

    Args:
        x: ``(*batch, n, s)``.

    Returns:
        ``(*batch, n, s)``; a token of length zero stays zero.

    Example:
        >>> cosine(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    return torch.nn.functional.normalize(x, dim=-1)


def elu(x: Tensor) -> Tensor:
    r"""Positive feature map of linear attention, :math:`\operatorname{elu}(x) + 1`.

    Args:
        x: ``(*batch, n, s)``.

    Returns:
        ``(*batch, n, s)``, positive.

    Example:
        >>> elu(torch.tensor([[0.0, 2.0]]))
        tensor([[1., 3.]])
    """
    return torch.nn.functional.elu(x) + 1.0


def identity(x: Tensor) -> Tensor:
    r"""Feature map of the scaled dot product, :math:`x\,s^{-1/4}`.

    Args:
        x: ``(*batch, n, s)``.

    Returns:
        ``(*batch, n, s)``.

    Example:
        >>> identity(torch.ones(1, 16))[0, 0]
        tensor(0.5000)
    """
    return x * x.shape[-1] ** -0.25


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {"cosine": cosine, "elu": elu, "identity": identity}


def landmarks(tokens: Tensor, count: int, padding: Tensor | None = None) -> Tensor:
    """AttentionInputs at even distances along the real ones, the first and the last among them.

    Args:
        tokens: ``(*batch, n, d)``.
        count: p, at least 1; where there are fewer tokens some are taken more than once.
        padding: ``(*batch, n)`` or None.

    Returns:
        ``(*batch, p, d)``; zero where no token is real.

    Example:
        >>> landmarks(torch.arange(5.0)[:, None], 3, torch.tensor([True, False, False, True, False]))[:, 0]
        tensor([1., 2., 4.])
    """
    steps, last = torch.arange(count, device=tokens.device), max(count - 1, 1)
    if padding is None:
        index = (2 * steps * (tokens.shape[-2] - 1) + last) // (2 * last)
        return tokens.index_select(-2, index)
    real = (~padding).cumsum(-1)
    ranks = (2 * steps * (real[..., -1:] - 1).clamp(min=0) + last) // (2 * last)
    index = torch.searchsorted(real, ranks + 1).clamp(max=tokens.shape[-2] - 1)
    batch = tokens.shape[:-2]
    index = index.expand(*batch, count)[..., None].expand(*batch, count, tokens.shape[-1])
    return mask_tokens(tokens, padding).gather(-2, index)


def projections(
    phi_q: Tensor,
    phi_k: Tensor,
    landmark_tokens: Tensor,
    weight_e: Tensor,
    weight_r: Tensor,
    *,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> Projections:
    r"""Projections of queries and keys, :math:`E = \varphi_q f(X)^\top W_e`, :math:`R = \varphi_k f(X)^\top W_r`.

    Args:
        phi_q: features of the queries, ``(*batch, Nq, s)``.
        phi_k: features of the keys, ``(*batch, Nk, s)``.
        landmark_tokens: f(X), ``(*batch, p, s)``.
        weight_e: ``(*batch, p, r)``.
        weight_r: ``(*batch, p, r)``.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        The projections and the trace that couples them.

    Example:
        >>> one = torch.ones(1, 1)
        >>> projections(2 * one, 3 * one, one, one, one)
        Projections(e=tensor([[2.]]), r=tensor([[3.]]), trace=tensor(1.))
    """
    primal_e, primal_r = primal_weights(landmark_tokens, weight_e, weight_r)
    e = mask_tokens(phi_q, query_padding) @ primal_e
    r = mask_tokens(phi_k, key_padding) @ primal_r
    return Projections(e, r, (primal_e * primal_r).sum((-2, -1)))


def primal_weights(landmark_tokens: Tensor, weight_e: Tensor, weight_r: Tensor) -> tuple[Tensor, Tensor]:
    r"""What turns feature maps into projections, :math:`W_{e|X} = f(X)^\top W_e` and :math:`W_{r|X} = f(X)^\top W_r`.

    Args:
        landmark_tokens: f(X), ``(*batch, p, s)``.
        weight_e: ``(*batch, p, r)``.
        weight_r: ``(*batch, p, r)``.

    Returns:
        Each ``(*batch, s, r)``.

    Example:
        >>> one = torch.ones(1, 1)
        >>> primal_weights(2 * one, one, 3 * one)
        (tensor([[2.]]), tensor([[6.]]))
    """
    both = landmark_tokens.mT @ torch.cat([weight_e, weight_r], -1)
    of_e, of_r = both.split([weight_e.shape[-1], weight_r.shape[-1]], -1)
    return of_e, of_r


def merge_branches(e: Tensor, r: Tensor, branches: str = "both", merge_map: Tensor | None = None) -> Tensor:
    r"""Both branches in one: :math:`E + R`, or :math:`W_m[E; R]` along the tokens, or one of them alone.

    The branches share the inducing variables, so merging the features merges the processes.

    Args:
        e: ``(*batch, n, r)``.
        r: ``(*batch, n, r)``.
        branches: "both", "e" or "r".
        merge_map: :math:`W_m`, ``(n, 2n)``, for the concatenation; None adds.

    Returns:
        ``(*batch, n, r)``.

    Example:
        >>> merge_branches(torch.ones(2, 1), torch.ones(2, 1), merge_map=torch.ones(2, 4))
        tensor([[4.],
                [4.]])
    """
    if branches == "e":
        return e
    if branches == "r":
        return r
    return e + r if merge_map is None else merge_map @ torch.cat([e, r], dim=-2)


def residual_variances(phi_q: Tensor, phi_k: Tensor, projected: Projections) -> tuple[Tensor, Tensor]:
    r"""What the projections leave unexplained of each token, in both branches.

    .. math:: \operatorname{diag}(\varphi_q\varphi_k^\top\varphi_k\varphi_q^\top - EE^\top), \qquad
        \operatorname{diag}(\varphi_k\varphi_q^\top\varphi_q\varphi_k^\top - RR^\top)

    Not negative at the singular value decomposition; before it is learned they may be, and are cut at zero.

    Args:
        phi_q: features of the queries, zero at padded tokens, ``(*batch, Nq, s)``.
        phi_k: features of the keys, zero at padded tokens, ``(*batch, Nk, s)``.
        projected: the projections.

    Returns:
        ``(*batch, Nq)`` and ``(*batch, Nk)``, O(n s²).
    """
    second_q, second_k = phi_q.mT @ phi_q, phi_k.mT @ phi_k  # (*batch, s, s)
    of_e = ((phi_q @ second_k) * phi_q).sum(-1) - projected.e.square().sum(-1)
    of_r = ((phi_k @ second_q) * phi_k).sum(-1) - projected.r.square().sum(-1)
    return of_e.clamp(min=0.0), of_r.clamp(min=0.0)


def ksvd_loss(projected: Projections, singular_values: Tensor) -> Tensor:
    r"""KSVD loss of each sequence, zero at the singular value decomposition.

    .. math:: \Big(\tfrac12\sum_i\|e_i\Lambda^{-1/2}\|^2 + \tfrac12\sum_i\|r_i\Lambda^{-1/2}\|^2
        - \operatorname{tr}W_{e|X}^\top W_{r|X}\Big)^2

    Args:
        projected: the projections.
        singular_values: the diagonal of Λ, positive, ``(*batch, r)``.

    Returns:
        ``(*batch,)``.

    Note:
        KEP-SVGP (11).

    Example:
        >>> one = torch.ones(1, 1)
        >>> ksvd_loss(Projections(2 * one, 2 * one, torch.tensor(2.0)), torch.tensor([2.0]))
        tensor(0.)
    """
    variance = (projected.e.square().sum(-2) + projected.r.square().sum(-2)) / singular_values
    return (0.5 * variance.sum(-1) - projected.trace).square()


def published_ksvd_loss(
    projected: Projections, singular_values: Tensor, weight_e: Tensor, weight_r: Tensor, num_tokens: Tensor
) -> Tensor:
    r"""KSVD loss as the authors' code has it: averages in place of sums, one square of the whole.

    .. math:: \Big(\tfrac12\,\overline{\|e_i\Lambda^{-1/2}\|^2} + \tfrac12\,\overline{\|r_i\Lambda^{-1/2}\|^2}
        - \overline{\operatorname{tr}W_e^\top W_r}\Big)^2

    with the averages over tokens, heads and sequences, the last over heads. It is not zero at the decomposition.

    Args:
        projected: the projections, ``(*batch, h, n, r)``.
        singular_values: the diagonal of Λ, ``(h, r)``.
        weight_e: ``(h, p, r)``.
        weight_r: ``(h, p, r)``.
        num_tokens: number of real tokens, ``()`` or broadcastable to ``(*batch, h)``.

    Returns:
        ``()``.
    """
    variance = (projected.e.square().sum(-2) + projected.r.square().sum(-2)) / singular_values
    per_token = 0.5 * variance.sum(-1) / num_tokens.clamp(min=1.0)
    return (per_token.mean() - (weight_e * weight_r).sum((-2, -1)).mean()).square()
