"""Attention by a pair of sparse Gaussian processes on the singular vectors of its own matrix."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor, nn

from cgp.functional import kernel_eigen
from cgp.functional.cholesky import cholesky
from cgp.functional.column_gaussians import ColumnGaussian, ColumnMarginals, MappedMarginals
from cgp.functional.kernel_eigen import BRANCHES
from cgp.functional.noise import standard_normal
from cgp.functional.padding import mask_tokens
from cgp.variational import EigenVariables, column_normal

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs, full_precision
from .ksvd import KSVD, Pair

__all__ = ["KEPSVGPAttention"]

MERGES = ("addition", "concatenation")


class KEPSVGPAttention(Pair, GaussianProcessAttention):
    r"""Attention as a kernel-eigen pair of sparse variational Gaussian processes (KEP-SVGP).

    With E and R the learned projections onto the left and right singular vectors of the attention matrix
    :math:`\varphi_q\varphi_k^\top`, and inducing variables u that both branches share,

    .. math:: F = A\Lambda^{-1}u\,W, \quad u_j \sim N(m_j, L_jL_j^\top), \quad u_j \sim N(0, \Lambda^2)
        \text{ a priori}, \qquad A = E + R \;\text{ or }\; W_m[E; R]

    Nothing n × n is formed, no matrix is inverted: O(n r (s + r)). The tokens' order enters through the tokens at even
    distances from which the projections are made.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        rank: r of the decomposition.
        num_outputs: columns of F before the map W to the head's width; None is r.
        num_landmarks: p, tokens at even distances in f(X); None is 2 r.
        feature_map: "cosine", "elu" or "identity".
        branches: "both", or "e" (queries) or "r" (keys) alone.
        merge: "addition", or "concatenation" along the tokens with a learned map, for sequences of one length.
        num_tokens: that length; needed for the concatenation.
        whiten: whether u is parametrised in units of Λ, which then enters the KSVD loss alone.
        residual: whether to add the variance that the projections do not explain (the paper drops it, so that its
            variance cannot grow away from the data).
        ksvd_loss: "mean", "exact", "published" or None, see :class:`~cgp.attention.ksvd.KSVD`.
        ksvd_weight: :math:`\eta`.
        ksvd_reaches: "tokens" (the paper's), or "projections", where the loss leaves the attention matrix alone.
        initial_scale: standard deviation of u to start from, in units of Λ.
        **options: ``bias``, ``device``, ``dtype``.

    Raises:
        ValueError: if a size is not positive, a string is not of its closed set, or the concatenation has no length.

    Note:
        Chen, Tao, Tonin & Suykens, Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes
        (2024), (16)-(21).

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
        num_outputs: int | None = None,
        num_landmarks: int | None = None,
        feature_map: str = "cosine",
        branches: str = "both",
        merge: str = "addition",
        num_tokens: int | None = None,
        whiten: bool = True,
        residual: bool = False,
        ksvd_loss: str | None = "mean",
        ksvd_weight: float = 1.0,
        ksvd_reaches: str = "tokens",
        initial_scale: float = 0.1,
        **options: Any,
    ) -> None:
        _check_merge(branches, merge, num_tokens)
        super().__init__(embed_dim, num_heads, processes=("query", "key"), **options)
        factory: dict[str, Any] = {"device": self.in_proj.weight.device, "dtype": self.in_proj.weight.dtype}
        self.branches, self.num_tokens, self.residual = branches, num_tokens, residual
        shape: dict[str, Any] = {"rank": rank, "num_landmarks": num_landmarks, "feature_map": feature_map}
        loss: dict[str, Any] = {"loss": ksvd_loss, "weight": ksvd_weight, "reaches": ksvd_reaches}
        self.ksvd = KSVD(num_heads, **shape, **loss, **factory)
        outputs = rank if num_outputs is None else num_outputs
        heads, start = torch.Size([num_heads]), {"whiten": whiten, "initial_scale": initial_scale}
        self.variational_strategy = EigenVariables(rank, outputs, heads, **start, **factory)  # type: ignore[arg-type]
        with torch.no_grad():  # start as primal attention: output j is the j-th projection
            self.variational_strategy.variables.variational_mean.add_(torch.eye(outputs, rank, **factory))
        self.head_map = nn.Parameter(torch.randn(num_heads, outputs, self.head_dim, **factory) * outputs**-0.5)
        concatenates = branches == "both" and merge == "concatenation"
        identity = torch.eye(num_tokens or 0, **factory)
        merge_map = nn.Parameter(torch.cat([identity, identity], -1)) if concatenates else None  # starts as the sum
        self.register_parameter("merge_map", merge_map)
        self.register_added_loss_term("ksvd")

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """The mean of the heads, or a draw of them; registers the KSVD loss in training.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``, with ``num_samples`` draws in front if that is set and the block draws.
        """
        with full_precision(tokens.q.device):
            registers = self.training and self.ksvd.loss_form is not None
            if not registers and self._is_linear:
                return self._mapped(tokens)
            if self.draws_from_gaussian and not registers:
                return self.gaussian(tokens).rsample("marginal", self.draw_shape)
            features, diagonal = self._features(tokens, registers=registers)
            shape = self.draw_shape
            if diagonal is None and self.sampling != "marginal":
                return features @ self._weights(features, shape)
            outputs = self._outputs(features, diagonal)
            return outputs.rsample(self.sampling, shape) @ self.head_map.to(outputs.mean.dtype)

    @property
    def draws_from_gaussian(self) -> bool:
        """Whether a draw is one of :meth:`gaussian`, which several draws can share; joint draws are cheaper apart."""
        return self.sampling == "marginal"

    def gaussian(self, tokens: AttentionInputs) -> MappedMarginals:
        """Marginals of the J independent outputs, and the map from them to the heads.

        Args:
            tokens: the projected tokens.

        Returns:
            What draws of single tokens come from.
        """
        outputs = self._outputs(*self._features(tokens))
        return MappedMarginals(ColumnMarginals(outputs.mean, outputs.variances), self.head_map.to(outputs.mean.dtype))

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean alone.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        features, _ = self._features(tokens)
        return features @ (self.variational_strategy.mean.to(features.dtype).mT @ self.head_map.to(features.dtype))

    def marginals(self, tokens: AttentionInputs) -> ColumnGaussian:  # type: ignore[override]
        """Posterior; its marginals cost no more than its covariance.

        Args:
            tokens: the projected tokens.

        Returns:
            As :meth:`joint`.
        """
        return self.joint(tokens)

    def joint(self, tokens: AttentionInputs) -> ColumnGaussian:  # type: ignore[override]
        r"""Posterior of each column of the heads, of rank r plus a diagonal.

        Column c is :math:`\sum_j W_{jc}f_j`, of covariance :math:`A\big(\sum_j W_{jc}^2S_j\big)A^\top`. The columns
        of a head depend on each other through W; this is the distribution of each alone.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)`` and the covariance of each column.
        """
        outputs = self._outputs(*self._features(tokens))
        weights = self.head_map.to(outputs.mean.dtype)  # (h, J, s)
        covariances = (outputs.roots @ outputs.roots.mT).flatten(-2)  # (h, J, r²)
        mixed = (weights.square().mT @ covariances).unflatten(-1, outputs.roots.shape[-2:])
        roots = cholesky(mixed, name="covariance of u under the head's map", jitter=0.0)
        diagonal = outputs.diagonal * weights.square().sum(-2, keepdim=True)
        return ColumnGaussian(outputs.mean @ weights, outputs.features, roots, diagonal)

    def posterior(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **masks: Any
    ) -> MultivariateNormal:
        """The predictive distribution of each head output, before the output projection.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            key: tokens, ``(*batch, Nk, d)``, or None.
            value: tokens, ``(*batch, Nk, d)``, or None.
            **masks: as for :meth:`forward`.

        Returns:
            Batch shape ``(*batch, h, s)``, event shape ``(Nq,)``; the channels of a head share u, so draws of several
            channels belong together only in :meth:`forward`.
        """
        tokens = self.project(query, key, value, **masks)
        with full_precision(tokens.q.device):
            return column_normal(self.joint(tokens))

    def attention_matrix(self, query: Tensor, **masks: Any) -> Tensor:
        r"""The attention matrix whose singular vectors are learned, :math:`\varphi_q\varphi_k^\top`.

        Args:
            query: tokens, ``(*batch, n, d)``.
            **masks: as for :meth:`forward`.

        Returns:
            ``(*batch, h, n, n)``, zero in the rows and columns of padded tokens.
        """
        tokens = self.project(query, **masks)
        with full_precision(tokens.q.device):
            phi_q, phi_k = self.ksvd.features(tokens)
            return phi_q @ phi_k.mT

    @property
    def _is_linear(self) -> bool:
        """Whether the heads are one linear map of the features of queries and keys, the same for all tokens."""
        return self.sampling != "marginal" and not self.residual and self.merge_map is None

    def _mapped(self, tokens: AttentionInputs) -> Tensor:
        """Mean or joint draw with all maps multiplied first: they are s × s, and the projections need not be formed."""
        self._check_lengths(tokens.q.shape[-2], tokens.k.shape[-2])
        shape = self.draw_shape
        phi_q, phi_k = self.ksvd.features(tokens)
        weights = self._weights(phi_q, shape)
        of_e, of_r = (primal @ weights for primal in self.ksvd.primal_weights(tokens))
        if self.branches != "both":
            return phi_q @ of_e if self.branches == "e" else phi_k @ of_r
        return phi_q @ of_e + phi_k @ of_r

    def _features(self, tokens: AttentionInputs, *, registers: bool = False) -> tuple[Tensor, Tensor | None]:
        """Features A ``(*batch, h, n, r)``, and the variance that they leave, ``(*batch, h, n, 1)``, or None."""
        self._check_lengths(tokens.q.shape[-2], tokens.k.shape[-2])
        phi_q, phi_k = self.ksvd.features(tokens)
        projected = self.ksvd.project(phi_q, phi_k, tokens)
        if registers:
            loss = self.ksvd.loss((phi_q, phi_k), projected, tokens, self.variational_strategy.singular_values)
            self._add_loss("ksvd", loss, "ksvd")
        merge_map = None if self.merge_map is None else self.merge_map.to(phi_q.dtype)
        features = kernel_eigen.merge_branches(projected.e, projected.r, self.branches, merge_map)
        features = mask_tokens(features, tokens.query_padding)
        if not self.residual:
            return features, None
        of_e, of_r = kernel_eigen.residual_variances(phi_q, phi_k, projected)
        squared = None if merge_map is None else merge_map.square()
        diagonal = kernel_eigen.merge_branches(of_e[..., None], of_r[..., None], self.branches, squared)
        return features, mask_tokens(diagonal, tokens.query_padding)

    def _outputs(self, features: Tensor, diagonal: Tensor | None) -> ColumnGaussian:
        """The J independent outputs before the head's map."""
        variables, dtype = self.variational_strategy, features.dtype
        mean, roots = variables.mean.to(dtype), variables.root.to(dtype)
        diagonal = torch.zeros_like(features[..., :1]) if diagonal is None else diagonal
        return ColumnGaussian(features @ mean.mT, features, roots, diagonal)

    def _weights(self, features: Tensor, shape: torch.Size) -> Tensor:
        """What turns features into heads, ``(*shape, *batch, h, r, s)``: the mean of u or a draw of it, mapped."""
        head_map, variables = self.head_map.to(features.dtype), self.variational_strategy
        u = variables.mean.to(features.dtype)  # (h, J, r)
        if self.sampling == "joint":
            batch = (*shape, *features.shape[:-3])
            epsilon = standard_normal(u.new_empty(()).expand(*u.shape, math.prod(batch)))
            deviations = variables.root.to(u.dtype) @ epsilon  # one product a head and output for the whole batch
            u = u + deviations.movedim(-1, 0).reshape(*batch, *u.shape)
        return u.mT @ head_map

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
    if merge == "concatenation" and (num_tokens is None or num_tokens < 1):
        raise ValueError(f"num_tokens: expected the length of the sequences for the concatenation, got {num_tokens!r}")
