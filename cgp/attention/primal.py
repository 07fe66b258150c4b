"""Primal attention: the kernel singular value decomposition of attention without a Gaussian process."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgp.variational.loss_terms import LossTerm

from .base import Attention
from .inputs import AttentionInputs, full_precision
from .ksvd import KSVD, PairMixin

__all__ = ["PrimalAttention"]


class PrimalAttention(PairMixin, Attention):
    r"""Attention by learned singular vectors of the attention matrix, the deterministic baseline of KEP-SVGP.

    .. math:: [E \;|\; R]\,W, \qquad E = \varphi_q(X)f(X)^\top W_e, \quad R = \varphi_k(X)f(X)^\top W_r

    where f(X) are tokens at even distances. The KSVD loss makes E and R the scaled singular vectors of
    :math:`\varphi_q\varphi_k^\top`. The output depends on the order of the tokens through f(X). The arguments are those
    of :class:`~cgp.attention.kep_svgp.KEPSVGPAttention`.

    Note:
        Chen et al., Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal Representation (2023).

    Example:
        >>> PrimalAttention(8, 2, rank=3)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        rank: int = 10,
        num_landmarks: int | None = None,
        ksvd_weight: float = 1.0,
        ksvd_reaches: str = "tokens",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, processes=("query", "key"), dropout=dropout)
        self.ksvd = KSVD(num_heads, rank, num_landmarks, weight=ksvd_weight, reaches=ksvd_reaches)
        self.head_map = nn.Parameter(torch.randn(num_heads, 2 * rank, self.head_dim) * (2 * rank) ** -0.5)
        self.register_added_loss_term("ksvd")

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs ``(*batch, h, Nq, s)``; registers the KSVD loss in training."""
        if tokens.q.shape[-2] != tokens.k.shape[-2]:
            raise ValueError(
                f"query: expected as many tokens as key to put both branches side by side, {tokens.k.shape[-2]}, "
                f"got {tokens.q.shape[-2]}"
            )
        with full_precision(tokens.q.device):
            features = self.ksvd.features(tokens)
            projected = self.ksvd.project(*features, tokens)
            if self.training and self.ksvd.weight:
                self.update_added_loss_term("ksvd", LossTerm(self.ksvd.loss(features, projected, tokens), "ksvd"))
            both = torch.cat([projected.e, projected.r], dim=-1)
            return both @ self.head_map.to(both.dtype)
