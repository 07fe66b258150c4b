"""The kernel singular value decomposition of a block: projection weights and loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cgp.functional import kernel_eigen
from cgp.functional.kernel_eigen import FEATURE_MAPS, Projections
from cgp.functional.padding import count_tokens, mask_tokens

from .inputs import AttentionInputs

__all__ = ["KSVD", "Pair"]

_LOSSES = ("mean", "exact", "published")
_REACHES = ("tokens", "projections")


class KSVD(nn.Module):
    r"""Learned projections of queries and keys onto the singular vectors of :math:`\varphi_q\varphi_k^\top`.

    Args:
        num_heads: h.
        rank: r, at least 1.
        num_landmarks: p, tokens from which the projections are made; None is 2 r.
        feature_map: "cosine", "elu" or "identity".
        loss: "exact" (sums over tokens), "mean" (the same divided by the number of real tokens squared, so that its
            weight means the same at every length), "published" (averages before the square), or None for none.
        weight: :math:`\eta`, at least 0.
        reaches: where the loss's gradient ends: "tokens", everything that the attention matrix depends on, or
            "projections", so that the decomposition follows the attention matrix and not the matrix the decomposition.
        **factory: device and dtype of the parameters.

    Raises:
        ValueError: if a size is not positive, the weight is negative, or a string is not of its closed set.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        rank: int,
        num_landmarks: int | None,
        feature_map: str,
        loss: str | None,
        weight: float,
        reaches: str,
        **factory: Any,
    ) -> None:
        super().__init__()
        num_landmarks = 2 * rank if num_landmarks is None else num_landmarks
        if rank < 1 or num_landmarks < 1:
            raise ValueError(f"rank, num_landmarks: expected at least 1, got {rank} and {num_landmarks}")
        if feature_map not in FEATURE_MAPS:
            raise ValueError(f"feature_map: expected one of {sorted(FEATURE_MAPS)}, got {feature_map!r}")
        if loss is not None and loss not in _LOSSES:
            raise ValueError(f"ksvd_loss: expected None or one of {_LOSSES}, got {loss!r}")
        if reaches not in _REACHES:
            raise ValueError(f"ksvd_reaches: expected one of {_REACHES}, got {reaches!r}")
        if not weight >= 0:
            raise ValueError(f"ksvd_weight: expected at least 0, got {weight!r}")
        self.rank, self.num_landmarks, self.feature_map = rank, num_landmarks, feature_map
        self.loss_form, self.loss_weight, self.loss_reaches = loss, weight, reaches
        starts = (torch.stack([_orthogonal(num_landmarks, rank) for _ in range(num_heads)]) for _ in range(2))
        self.weight_e, self.weight_r = (nn.Parameter(start.to(**factory)) for start in starts)

    def features(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        r"""Features of queries and keys, zero at padded tokens.

        Args:
            tokens: the projected tokens.

        Returns:
            :math:`\varphi_q` ``(*batch, h, Nq, s)`` and :math:`\varphi_k` ``(*batch, h, Nk, s)``.
        """
        phi = FEATURE_MAPS[self.feature_map]
        return mask_tokens(phi(tokens.q), tokens.query_padding), mask_tokens(phi(tokens.k), tokens.key_padding)

    def project(self, phi_q: Tensor, phi_k: Tensor, tokens: AttentionInputs) -> Projections:
        """Both projections.

        Args:
            phi_q: ``(*batch, h, Nq, s)``.
            phi_k: ``(*batch, h, Nk, s)``.
            tokens: with the input tokens themselves in ``v``.

        Returns:
            The projections.
        """
        return kernel_eigen.projections(phi_q, phi_k, *self._landmarks_and_weights(tokens))

    def primal_weights(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        r"""What turns the features of queries and of keys into projections.

        Args:
            tokens: with the input tokens themselves in ``v``.

        Returns:
            :math:`W_{e|X}` and :math:`W_{r|X}`, each ``(*batch, h, s, r)``.
        """
        return kernel_eigen.primal_weights(*self._landmarks_and_weights(tokens))

    def _landmarks_and_weights(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
        chosen = kernel_eigen.landmarks(tokens.v, self.num_landmarks, tokens.key_padding)
        return chosen, self.weight_e.to(chosen.dtype), self.weight_r.to(chosen.dtype)

    def loss(
        self, features: tuple[Tensor, Tensor], projected: Projections, tokens: AttentionInputs, singular_values: Tensor
    ) -> Tensor:
        """The weighted loss, averaged over the batch and summed over heads ("published": averaged over both).

        Args:
            features: what :meth:`features` gives.
            projected: what :meth:`project` gives.
            tokens: the projected tokens, with the input tokens themselves in ``v``.
            singular_values: the diagonal of Λ, positive, ``(h, r)``.

        Returns:
            ``()``.
        """
        if self.loss_reaches == "projections":
            phi_q, phi_k = features
            projected = self.project(phi_q.detach(), phi_k.detach(), tokens._replace(v=tokens.v.detach()))
        count = count_tokens(tokens.k[..., 0], tokens.key_padding)
        values = singular_values.to(projected.e.dtype)
        if self.loss_form == "published":
            loss = kernel_eigen.published_ksvd_loss(projected, values, self.weight_e, self.weight_r, count)
            return self.loss_weight * loss
        loss = kernel_eigen.ksvd_loss(projected, values)
        if self.loss_form == "mean":
            loss = loss / count.clamp(min=1.0).square()
        return self.loss_weight * loss.sum(-1).mean()


class Pair:
    """What blocks without values share: the place of the values is taken by the input tokens, split into heads."""

    def _project_heads(self, query: Tensor, memory: Tensor, value: Tensor | None, is_self: bool) -> dict[str, Tensor]:
        heads = super()._project_heads(query, memory, value, is_self)  # type: ignore[misc]
        return {**heads, "value": self._split(memory if value is None else value)}  # type: ignore[attr-defined]


def _orthogonal(rows: int, columns: int) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns))
