"""Standard SGPA: the sequence's own keys carry mean and covariance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgp.functional import sgpa
from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.padding import mask_gram, mask_tokens
from cgp.functional.sgpa import Sites

from .inputs import AttentionInputs
from .sgpa import SymmetricAttention

__all__ = ["StandardSGPAttention"]

_INITIAL_PRECISION = 0.3**-2


class StandardSGPAttention(SymmetricAttention):
    r"""Attention as a sparse variational Gaussian process on the sequence's own keys (standard SGPA), O(n³) per head.

    .. math:: K_{qk}V, \qquad K_{qq} + K_{qk}(K_{kk}^{-1}SK_{kk}^{-1} - K_{kk}^{-1})K_{kq}, \qquad
        S = (K_{kk}^{-1} + \Pi)^{-1}

    The precision :math:`\Pi` of each token is read off its key, so that S does not depend on the order of the tokens
    (the paper's triangle does). The divergence is a loss term of kind "kl".

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        kernel: "rbf" or "exponential" (of the scaled dot product).
        initial_outputscale: start of :math:`a^2`, which is learned per head.
        sequence_weight: weight of the divergence; see :class:`~cgp.attention.sgpa.SGPAttention`.
        bias: whether the projections have biases.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if a number is out of range or the kernel is unknown.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023).

    Example:
        >>> StandardSGPAttention(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: str = "rbf",
        initial_outputscale: float = 0.3,
        sequence_weight: float = 1.0,
        bias: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            kernel=kernel,
            initial_outputscale=initial_outputscale,
            sequence_weight=sequence_weight,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        start = self.log_outputscale.new_full((num_heads, 1), _INITIAL_PRECISION).expm1().log()  # softplus backwards
        self.precision_offset = nn.Parameter(start)
        self.precision_map = nn.Parameter(start.new_zeros(num_heads, self.head_dim, 1))

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean, which is kernel attention."""
        attended = self._gram(tokens) @ mask_tokens(tokens.v, tokens.key_padding)
        return mask_tokens(attended, tokens.query_padding)

    def marginals(self, tokens: AttentionInputs) -> MarginalGaussian:
        """Mean and variance of each token."""
        return self._marginals(self._sites(tokens), tokens)

    def joint(self, tokens: AttentionInputs) -> DenseGaussian:
        """Posterior with its covariance over the queries."""
        return self._joint(self._sites(tokens), tokens)

    def gaussian(self, tokens: AttentionInputs) -> MarginalGaussian | DenseGaussian:
        """The posterior that ``sampling`` needs; registers the divergence in training."""
        found = self._sites(tokens)
        if self._wants_loss():
            self._add_divergence(found.divergence)
        return self._joint(found, tokens) if self.sampling == "joint" else self._marginals(found, tokens)

    def _sites(self, tokens: AttentionInputs) -> Sites:
        K_qk = self._gram(tokens)
        K_kk = K_qk if tokens.q is tokens.k else self.kernel.gram(tokens.k)
        offset, slope = (x.to(K_qk.dtype) for x in (self.precision_offset, self.precision_map))
        precision = nn.functional.softplus((tokens.k @ slope)[..., 0] + offset)
        padding = {"query_padding": tokens.query_padding, "key_padding": tokens.key_padding}
        return sgpa.sites(K_qk, K_kk, tokens.v, precision, **padding)

    def _gram(self, tokens: AttentionInputs) -> Tensor:
        return self.kernel.gram(tokens.q, None if tokens.q is tokens.k else tokens.k)

    def _marginals(self, found: Sites, tokens: AttentionInputs) -> MarginalGaussian:
        variance = (self.kernel.diagonal(tokens.q) - found.explained.square().sum(-2)).clamp(min=0.0)
        return MarginalGaussian(found.mean, mask_tokens(variance[..., None], tokens.query_padding)[..., 0])

    def _joint(self, found: Sites, tokens: AttentionInputs) -> DenseGaussian:
        covariance = self.kernel.gram(tokens.q) - found.explained.mT @ found.explained
        padding = tokens.query_padding
        return DenseGaussian(found.mean, mask_gram(covariance, padding, padding), padding)
