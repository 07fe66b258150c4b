"""Attention by a pair of sparse Gaussian processes on the singular vectors of the attention matrix."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cgp.functional import kep_svgp
from cgp.functional.kep_svgp import BRANCHES, MappedGaussian
from cgp.functional.padding import mask_tokens
from cgp.variational import InducingVariables

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs, full_precision
from .ksvd import KSVD, PairMixin

__all__ = ["KEPSVGPAttention"]

MERGES = ("addition", "concatenation")
_INITIAL_SCALE = 0.1  # of u, in units of the singular values


class KEPSVGPAttention(PairMixin, GaussianProcessAttention):
    r"""Attention as a kernel-eigen pair of sparse variational Gaussian processes (KEP-SVGP).

    E and R are the learned projections onto the left and right singular vectors of the attention matrix
    :math:`\varphi_q\varphi_k^\top`; both branches share the inducing variables u, in units of the singular values:

    .. math:: F = A\,u\,W, \quad u_j \sim N(m_j, L_jL_j^\top), \quad u_j \sim N(0, I)
        \text{ a priori}, \qquad A = E + R \;\text{ or }\; W_m[E; R]

    W mixes the r processes, so the channels of a head depend on each other, and each has its own variance:
    ``posterior`` is the distribution of each channel by itself, draws have the dependence, too.

    No n × n matrix is formed and none is inverted: O(n r (s + r)). The projections are made of tokens at even
    distances (landmarks), so the output depends on the order of the tokens.

    Training starts with a loss of hundreds, of which the NLL is about one and the rest the KSVD term:
    :func:`~cgp.functional.kep_svgp.ksvd_loss`, zero where the projections are singular vectors, summed over heads and
    divided by the squared number of tokens. It falls in the first steps; ``Objective.parts`` has it apart.

    Args:
        rank: rank r of the decomposition.
        num_landmarks: p, number of landmarks in f(X); None is 2 r.
        branches: "both", or only "e" (queries) or "r" (keys).
        merge: "addition", or "concatenation" along the tokens with a learned map, for sequences of one length.
        num_tokens: length of the sequences, for "concatenation" only.
        ksvd_weight: :math:`\eta`, weight of the KSVD loss; 0 disables it.
        ksvd_reaches: what the KSVD loss trains, "tokens" (everything below, as in the paper) or "projections" (only
            the projection weights, not the attention matrix).

    Raises:
        ValueError: if a size is not positive, a string is not one of the listed values, or the concatenation has no
            length.
        TypeError: if a merge is given for one branch, or a length for the addition.

    Note:
        Chen, Tao, Tonin & Suykens, Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes
        (ICML 2024), (16)-(21), https://arxiv.org/abs/2402.01476.

    Example:
        >>> block = KEPSVGPAttention(8, 2, rank=3).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        rank: int = 10,
        num_landmarks: int | None = None,
        branches: str = "both",
        merge: str = "addition",
        num_tokens: int | None = None,
        ksvd_weight: float = 1.0,
        ksvd_reaches: str = "tokens",
        dropout: float = 0.0,
    ) -> None:
        _check_merge(branches, merge, num_tokens)
        super().__init__(embed_dim, num_heads, processes=("query", "key"), dropout=dropout)
        self.branches, self.num_tokens = branches, num_tokens
        self.ksvd = KSVD(num_heads, rank, num_landmarks, weight=ksvd_weight, reaches=ksvd_reaches)
        batch = torch.Size([num_heads, rank])
        self.variational_strategy = InducingVariables(rank, batch, initial_scale=_INITIAL_SCALE)
        with torch.no_grad():  # start as primal attention: output j is the j-th projection
            self.variational_strategy.variational_mean.add_(torch.eye(rank))
        self.head_map = nn.Parameter(torch.randn(num_heads, rank, self.head_dim) * rank**-0.5)
        identity = torch.eye(num_tokens or 0)
        start = nn.Parameter(torch.cat([identity, identity], -1)) if merge == "concatenation" else None  # the sum
        self.register_parameter("merge_map", start)
        self.register_added_loss_term("ksvd")

    def gaussian(self, tokens: AttentionInputs) -> MappedGaussian:
        """Posterior of the outputs, mapped to the heads."""
        self._check_lengths(tokens.q.shape[-2], tokens.k.shape[-2])
        phi = self.ksvd.features(tokens)
        projected = self.ksvd.project(*phi, tokens)
        merge_map = None if self.merge_map is None else self.merge_map.to(projected.e.dtype)
        features = kep_svgp.merge_branches(projected.e, projected.r, self.branches, merge_map)
        features = mask_tokens(features, tokens.query_padding)
        mean = self.variational_strategy.variational_mean.to(features.dtype)
        roots = self.variational_strategy.root.to(features.dtype)
        loss = partial(self.ksvd.loss, phi, projected, tokens)
        return MappedGaussian(features, mean, roots, self.head_map.to(features.dtype), loss)

    def attention_matrix(self, query: Tensor, **masks: Any) -> Tensor:
        r"""The attention matrix whose singular vectors are learned, :math:`\varphi_q\varphi_k^\top`.

        Args:
            query: tokens, ``(*batch, n, d)``.
            **masks: masks of :meth:`forward`.

        Returns:
            ``(*batch, h, n, n)``, zero in the rows and columns of padded tokens.
        """
        tokens = self.project(query, **masks)
        with full_precision(tokens.q.device):
            phi_q, phi_k = self.ksvd.features(tokens)
            return phi_q @ phi_k.mT

    def _wants_loss(self) -> bool:
        return self.training and self.ksvd.weight > 0

    def _add_losses(self, posterior: MappedGaussian, tokens: AttentionInputs) -> None:
        assert posterior.loss is not None
        self._add_loss("ksvd", posterior.loss(), "ksvd")

    def _check_lengths(self, num_queries: int, num_keys: int) -> None:
        if self.merge_map is not None and (num_queries, num_keys) != (self.num_tokens, self.num_tokens):
            raise ValueError(
                f"query: expected {self.num_tokens} tokens, the length the concatenation was built for, got "
                f"{num_queries} (merge='addition' takes any length)"
            )
        if self.branches != "e" and num_queries != num_keys:
            raise ValueError(
                f"query: expected as many tokens as key to merge both branches, {num_keys}, got {num_queries} "
                "(branches='e' takes any)"
            )


def _check_merge(branches: str, merge: str, num_tokens: int | None) -> None:
    if branches not in BRANCHES:
        raise ValueError(f"branches: expected one of {BRANCHES}, got {branches!r}")
    if merge not in MERGES:
        raise ValueError(f"merge: expected one of {MERGES}, got {merge!r}")
    if merge == "addition" and num_tokens is not None:
        raise TypeError("num_tokens: the addition takes sequences of any length")
    if merge == "concatenation" and branches != "both":
        raise TypeError(f"merge: with branches={branches!r} there is nothing to concatenate")
    if merge == "concatenation" and (num_tokens is None or num_tokens < 1):
        raise ValueError(f"num_tokens: expected the length of the sequences for the concatenation, got {num_tokens!r}")
