"""Standard SGPA: mean and covariance both depend on the keys of the sequence."""

from __future__ import annotations

from functools import partial

from torch import nn

from cgp.functional.sgpa import StandardPosterior

from .inputs import AttentionInputs
from .sgpa import SymmetricAttention

__all__ = ["StandardSGPAttention"]

_INITIAL_PRECISION = 0.3**-2


class StandardSGPAttention(SymmetricAttention):
    r"""Attention as a sparse variational Gaussian process on the keys of the sequence (standard SGPA), O(n³) per head.

    .. math:: K_{qk}V, \qquad K_{qq} + K_{qk}(K_{kk}^{-1}SK_{kk}^{-1} - K_{kk}^{-1})K_{kq}, \qquad
        S = (K_{kk}^{-1} + \Pi)^{-1}

    The precision :math:`\Pi` of each token is a function of its key, so S does not depend on the order of the tokens
    (the paper's triangular S does). The divergence is a loss term of kind "kl". The arguments are those of
    :class:`~cgp.attention.sgpa.SGPAttention`.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023).

    Example:
        >>> import torch
        >>> StandardSGPAttention(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    weighs_values = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: str = "rbf",
        initial_outputscale: float = 0.3,
        sequence_weight: float = 1e-3,
        dropout: float = 0.0,
    ) -> None:
        scales = {"initial_outputscale": initial_outputscale, "sequence_weight": sequence_weight}
        super().__init__(embed_dim, num_heads, kernel=kernel, dropout=dropout, **scales)
        start = self.log_outputscale.new_full((num_heads, 1), _INITIAL_PRECISION).expm1().log()  # inverse softplus
        self.precision_offset = nn.Parameter(start)
        self.precision_map = nn.Parameter(start.new_zeros(num_heads, self.head_dim, 1))

    def gaussian(self, tokens: AttentionInputs) -> StandardPosterior:
        """Posterior, lazily evaluated: the mean is kernel attention."""
        kernel, is_self = self.kernel, tokens.q is tokens.k
        K_qk = kernel.gram(tokens.q, None if is_self else tokens.k)
        offset, slope = (x.to(K_qk.dtype) for x in (self.precision_offset, self.precision_map))
        return StandardPosterior(
            K_qk,
            K_qk if is_self else kernel.gram(tokens.k),
            tokens.v,
            nn.functional.softplus((tokens.k @ slope)[..., 0] + offset),
            kernel.diagonal(tokens.q),
            partial(kernel.gram, tokens.q),
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
        )

    def _add_losses(self, posterior: StandardPosterior, tokens: AttentionInputs) -> None:
        self._add_divergence(posterior.divergence)
