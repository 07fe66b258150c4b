r"""Kernel-eigen pair sparse variational Gaussian process: inducing features from a kernel singular value decomposition.

Chen, Tao, Tonin & Suykens, Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes (2024). The
attention matrix :math:`\varphi_q\varphi_k^\top` is asymmetric; its left and right singular vectors, scaled by the
singular values, are learned as projections of the feature maps,

.. math:: E = \varphi_q(X)\,W_{e|X} \to H_e\Lambda, \qquad R = \varphi_k(X)\,W_{r|X} \to H_r\Lambda, \qquad
    W_{\cdot|X} = f(X)^\top W_\cdot

and are the features of two sparse Gaussian processes that share the inducing variables :math:`u \sim N(0, \Lambda^2)`:

.. math:: F^e = E\Lambda^{-1}u, \qquad F^r = R\Lambda^{-1}u

No n × n matrix is formed: O(n r (s + r)). In units of the singular values, :math:`u = \Lambda\tilde u`, the features
are E and R, the prior is :math:`N(0, I)`, and Λ appears only in the loss of the decomposition.

Shapes: features ``phi_q`` ``(*batch, Nq, s)`` and ``phi_k`` ``(*batch, Nk, s)``, zero at padded tokens; f(X), the
``landmark_tokens`` ``(*batch, p, s)``; weights ``weight_e`` ``(*batch, p, r)`` and ``weight_r`` ``(*batch, p, r)``;
primal weights ``primal_e`` ``(*batch, s, r)`` and ``primal_r`` ``(*batch, s, r)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .column_gaussians import ColumnGaussian
from .gaussians import Gaussian
from .linalg import cholesky, may_own_backward
from .padding import mask_tokens

__all__ = [
    "BRANCHES",
    "MappedGaussian",
    "Projections",
    "ksvd_loss",
    "landmarks",
    "merge_branches",
    "primal_weights",
    "projections",
    "residual_variances",
    "unit_rows",
]

BRANCHES = ("both", "e", "r")


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


def unit_rows(x: Tensor) -> Tensor:
    r"""Features of the cosine kernel, :math:`\varphi(x) = x/\|x\|`, zero for x = 0.

    Args:
        x: tokens, ``(*batch, n, s)``.

    Returns:
        ``(*batch, n, s)``.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return _UnitRows.apply(x)[0] if may_own_backward() else nn.functional.normalize(x, dim=-1)


class _UnitRows(torch.autograd.Function):
    """Contiguous features, as products need them, of which alone the backward pass is made."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_(min=1e-12)
        unit = torch.div(x, norm, out=x.new_empty(x.shape))
        ctx.save_for_backward(unit, norm)
        ctx.set_materialize_grads(False)
        return unit, norm

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Tensor | None:
        unit, norm = ctx.saved_tensors
        of_unit, of_norm = gradients
        along = None if of_norm is None else of_norm * unit
        if of_unit is None:
            return along
        of_x = torch.addcmul(of_unit, unit, (of_unit * unit).sum(-1, keepdim=True), value=-1.0) / norm
        return of_x if along is None else of_x + along


def landmarks(tokens: Tensor, count: int, padding: Tensor | None = None) -> Tensor:
    """Tokens at even distances among the real (not padded) tokens, including the first and the last.

    Args:
        tokens: ``(*batch, n, d)``.
        count: how many.
        padding: ``(*batch, n)``, or None.

    Returns:
        ``(*batch, count, d)``; with fewer real tokens than ``count`` some are repeated, without any all are zero.
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


def primal_weights(landmark_tokens: Tensor, weight_e: Tensor, weight_r: Tensor) -> tuple[Tensor, Tensor]:
    r"""Maps from features to projections, :math:`W_{e|X} = f(X)^\top W_e` and :math:`W_{r|X} = f(X)^\top W_r`.

    Returns:
        Each ``(*batch, s, r)``.
    """
    both = landmark_tokens.mT @ torch.cat([weight_e, weight_r], -1)
    of_e, of_r = both.split([weight_e.shape[-1], weight_r.shape[-1]], -1)
    return of_e, of_r


def projections(phi_q: Tensor, phi_k: Tensor, primal_e: Tensor, primal_r: Tensor) -> Projections:
    r"""Projections of queries and keys, :math:`E = \varphi_qW_{e|X}`, :math:`R = \varphi_kW_{r|X}`.

    Returns:
        The projections and the trace that couples them.
    """
    return Projections(phi_q @ primal_e, phi_k @ primal_r, (primal_e * primal_r).sum((-2, -1)))


def merge_branches(e: Tensor, r: Tensor, branches: str = "both", merge_map: Tensor | None = None) -> Tensor:
    r"""Merge both branches: :math:`E + R`, or :math:`W_m[E; R]` along the tokens, or only one of them.

    The branches share the inducing variables, so merging the features merges the processes.

    Args:
        e: ``(*batch, Nq, r)``.
        r: ``(*batch, Nk, r)``; to be merged, as many tokens.
        branches: one of :data:`BRANCHES`.
        merge_map: :math:`W_m`, ``(Nq, 2Nq)``; None is the sum.

    Returns:
        ``(*batch, Nq, r)``, or ``(*batch, Nk, r)`` of "r" alone.
    """
    if branches == "e":
        return e
    if branches == "r":
        return r
    return e + r if merge_map is None else merge_map @ torch.cat([e, r], dim=-2)


def residual_variances(phi_q: Tensor, phi_k: Tensor, projected: Projections) -> tuple[Tensor, Tensor]:
    r"""Variance of each token that the projections do not explain, in both branches.

    .. math:: \operatorname{diag}(\varphi_q\varphi_k^\top\varphi_k\varphi_q^\top - EE^\top), \qquad
        \operatorname{diag}(\varphi_k\varphi_q^\top\varphi_q\varphi_k^\top - RR^\top)

    Non-negative at the singular value decomposition; before that is learned they may be negative and are clamped.

    Returns:
        ``(*batch, Nq, 1)`` and ``(*batch, Nk, 1)``, O(n s²).
    """
    second_q, second_k = phi_q.mT @ phi_q, phi_k.mT @ phi_k  # (*batch, s, s)
    of_e = ((phi_q @ second_k) * phi_q).sum(-1, keepdim=True) - projected.e.square().sum(-1, keepdim=True)
    of_r = ((phi_k @ second_q) * phi_k).sum(-1, keepdim=True) - projected.r.square().sum(-1, keepdim=True)
    return of_e.clamp(min=0.0), of_r.clamp(min=0.0)


def ksvd_loss(projected: Projections, singular_values: Tensor) -> Tensor:
    r"""KSVD loss of each sequence, zero at the singular value decomposition, KEP-SVGP (11).

    .. math:: \Big(\tfrac12\sum_i\|e_i\Lambda^{-1/2}\|^2 + \tfrac12\sum_i\|r_i\Lambda^{-1/2}\|^2
        - \operatorname{tr}W_{e|X}^\top W_{r|X}\Big)^2

    Args:
        projected: the projections.
        singular_values: the diagonal of Λ, ``(*batch, r)``.

    Returns:
        ``(*batch,)``.
    """
    variance = (projected.e.square().sum(-2) + projected.r.square().sum(-2)) / singular_values
    return (0.5 * variance.sum(-1) - projected.trace).square()


@dataclass(eq=False)
class MappedGaussian(Gaussian):
    r"""Independent outputs, mapped linearly to the columns of a head, :math:`F = [f_1, \dots, f_J]W`.

    The columns are correlated through W; :meth:`joint` is the distribution over tokens of each column separately.

    Attributes:
        features: A, ``(*batch, n, r)``, zero at padded tokens.
        location: means of u, ``(*batch, J, r)``.
        roots: Cholesky factors of the covariances of u, ``(*batch, J, r, r)``.
        head_map: W, ``(*batch, J, s)``.
        loss: computes the loss term of training; None if there is none.

    Example:
        >>> one = torch.ones(1, 1)
        >>> MappedGaussian(torch.ones(3, 1), 2.0 * one, 0.0 * one[None], one).rsample()[0]
        tensor([2.])
    """

    features: Tensor
    location: Tensor
    roots: Tensor
    head_map: Tensor
    loss: Callable[[], Tensor] | None = None

    @property
    def outputs(self) -> ColumnGaussian:
        """The J outputs before the map."""
        return ColumnGaussian(self.features @ self.location.mT, self.features, self.roots)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """``(*batch, n, s)``."""
        return self.features @ (self.location.mT @ self.head_map)

    @property
    def column_variances(self) -> Tensor:
        """Variance of each token and column, ``(*batch, n, s)``."""
        return self.outputs.column_variances @ self.head_map.square()

    @property
    def variance(self) -> Tensor:
        """Variance of each token, averaged over its columns, ``(*batch, n)``."""
        return self.column_variances.mean(-1)

    def joint(self) -> ColumnGaussian:
        r"""Distribution of each column over the tokens, of covariance :math:`A\big(\sum_j W_{jc}^2S_j\big)A^\top`."""
        weights, covariances = self.head_map.square(), (self.roots @ self.roots.mT).flatten(-2)  # (*batch, J, r²)
        mixed = (weights.mT @ covariances).unflatten(-1, self.roots.shape[-2:])
        roots = cholesky(mixed, name="covariance of u under the head's map", jitter=0.0)
        return ColumnGaussian(self.mean, self.features, roots)

    def rsample(
        self,
        sampling: str = "marginal",
        sample_shape: torch.Size = torch.Size(),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draws of the outputs, mapped, ``(*sample_shape, *batch, n, s)``."""
        if sampling == "mean":
            return self.mean.expand(*sample_shape, *self.mean.shape)
        if sampling == "joint":  # map u, which is smaller than the outputs
            u = self.location.mT + self.outputs.coefficients(sample_shape, generator)
            return self.features @ (u @ self.head_map)
        return self.outputs.rsample(sampling, sample_shape, generator) @ self.head_map
