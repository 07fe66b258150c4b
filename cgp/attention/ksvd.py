"""The kernel singular value decomposition of a block: its projection weights and loss, and primal attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgp.functional import kep_svgp
from cgp.functional.kep_svgp import Projections
from cgp.functional.padding import count_tokens, mask_tokens
from cgp.variational.loss_terms import LossTerm

from .base import Attention
from .inputs import AttentionInputs, full_precision

__all__ = ["KSVD", "PairMixin", "PrimalAttention"]

_REACHES = ("tokens", "projections")


class KSVD(nn.Module):
    r"""Learned projections of queries and keys onto the singular vectors of :math:`\varphi_q\varphi_k^\top`.

    The feature maps are the cosine kernel's, :math:`\varphi(x) = x/\|x\|`.

    The arguments are those of :class:`~cgp.attention.kep_svgp.KEPSVGPAttention`; with weight 0 there is neither a loss
    nor a parameter for the singular values.
    """

    log_singular_values: nn.Parameter | None

    def __init__(self, num_heads: int, rank: int, num_landmarks: int | None, *, weight: float, reaches: str) -> None:
        super().__init__()
        num_landmarks = 2 * rank if num_landmarks is None else num_landmarks
        if rank < 1 or num_landmarks < 1:
            raise ValueError(f"rank, num_landmarks: expected at least 1, got {rank} and {num_landmarks}")
        if reaches not in _REACHES:
            raise ValueError(f"ksvd_reaches: expected one of {_REACHES}, got {reaches!r}")
        if not weight >= 0:
            raise ValueError(f"ksvd_weight: expected at least 0, got {weight!r}")
        self.rank, self.num_landmarks, self.weight, self.reaches = rank, num_landmarks, weight, reaches
        starts = (torch.stack([_orthogonal(num_landmarks, rank) for _ in range(num_heads)]) for _ in range(2))
        self.weight_e, self.weight_r = (nn.Parameter(start) for start in starts)
        values = nn.Parameter(torch.zeros(num_heads, rank)) if weight else None
        self.register_parameter("log_singular_values", values)

    def extra_repr(self) -> str:
        """The sizes and the weight."""
        return f"rank={self.rank}, num_landmarks={self.num_landmarks}, weight={self.weight:g}"

    def features(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        r"""Features of queries and keys, :math:`\varphi_q` and :math:`\varphi_k`, zero at padded tokens."""
        phi_q, phi_k = kep_svgp.unit_rows(tokens.q), kep_svgp.unit_rows(tokens.k)
        return mask_tokens(phi_q, tokens.query_padding), mask_tokens(phi_k, tokens.key_padding)

    def project(self, phi_q: Tensor, phi_k: Tensor, tokens: AttentionInputs) -> Projections:
        """Both projections; ``tokens.v`` holds the input tokens themselves."""
        chosen = kep_svgp.landmarks(tokens.v, self.num_landmarks, tokens.key_padding)
        weights = (weight.to(chosen.dtype) for weight in (self.weight_e, self.weight_r))
        return kep_svgp.projections(phi_q, phi_k, *kep_svgp.primal_weights(chosen, *weights))

    def loss(self, features: tuple[Tensor, Tensor], projected: Projections, tokens: AttentionInputs) -> Tensor:
        """The weighted loss, averaged over the batch and summed over heads."""
        # Divided by the squared number of real tokens, so that the weight means the same for every sequence length.
        if self.reaches == "projections":
            phi_q, phi_k = features
            projected = self.project(phi_q.detach(), phi_k.detach(), tokens._replace(v=tokens.v.detach()))
        count = count_tokens(tokens.k[..., 0], tokens.key_padding).clamp(min=1.0)
        assert self.log_singular_values is not None
        loss = kep_svgp.ksvd_loss(projected, self.log_singular_values.exp().to(projected.e.dtype))
        return self.weight * (loss / count.square()).sum(-1).mean()


class PairMixin:
    """For blocks without values: the input tokens, split into heads, replace the values."""

    def _project_heads(self, query: Tensor, memory: Tensor, value: Tensor | None, is_self: bool) -> dict[str, Tensor]:
        heads = super()._project_heads(query, memory, value, is_self)  # type: ignore[misc]
        return {**heads, "value": self._split(memory if value is None else value)}  # type: ignore[attr-defined]


def _orthogonal(rows: int, columns: int) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns))


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
