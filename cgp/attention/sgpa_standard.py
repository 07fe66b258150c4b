"""The standard form of sparse Gaussian process attention: the sequence's keys carry mean and covariance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cgp.functional import sparse_gp_standard
from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.padding import mask_tokens
from cgp.functional.sparse_gp_standard import StandardTerms
from cgp.variational import positive_triangle

from .head_kernel import HeadKernel
from .inputs import AttentionInputs

__all__ = ["AMORTISATIONS", "StandardForm"]

AMORTISATIONS = ("sites", "triangular")
_TRIANGLE_RANK = 4


class StandardForm(nn.Module):
    r"""The sequence's keys carry mean and covariance, S amortised from the tokens: O(n³) a head.

    Args:
        num_heads: h.
        head_dim: s.
        amortisation: "sites", :math:`S = (K^{-1} + \Pi)^{-1}` with the precision of a token read off its key, or
            "triangular", :math:`S = LMM^\top L^\top` with M a triangle of rank 4 plus a diagonal, read off the keys.
        initial_scale: start of M's diagonal, and of :math:`\Pi^{-1/2}`.
        **factory: device and dtype of the parameters.

    Raises:
        ValueError: if the amortisation is unknown.
    """

    def __init__(
        self, num_heads: int, head_dim: int, *, amortisation: str, initial_scale: float, **factory: Any
    ) -> None:
        super().__init__()
        if amortisation not in AMORTISATIONS:
            raise ValueError(f"amortisation: expected one of {AMORTISATIONS}, got {amortisation!r}")
        self.amortisation = amortisation
        start = initial_scale if amortisation == "triangular" else initial_scale**-2
        self.diagonal_map = nn.Parameter(torch.zeros(num_heads, head_dim, 1, **factory))
        offset = torch.full((num_heads, 1), float(start), **factory).expm1().log()  # softplus backwards
        self.diagonal_offset = nn.Parameter(offset)
        if amortisation == "triangular":
            shape = (num_heads, head_dim, _TRIANGLE_RANK)
            self.row_map, self.column_map = (
                nn.Parameter(0.1 * torch.randn(shape, **factory) * head_dim**-0.5) for _ in range(2)
            )

    def mean(self, tokens: AttentionInputs, kernel: HeadKernel, keys: None = None) -> Tensor:
        """Kernel attention.

        Args:
            tokens: the projected tokens.
            kernel: the kernel.
            keys: None; this form has no global keys.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        values = mask_tokens(tokens.v, tokens.key_padding)
        return mask_tokens(_self_gram(tokens, kernel) @ values, tokens.query_padding)

    def terms(self, tokens: AttentionInputs, kernel: HeadKernel, keys: None = None) -> StandardTerms:
        """Factors and the sequence's divergence.

        Args:
            tokens: the projected tokens.
            kernel: the kernel.
            keys: None; this form has no global keys.

        Returns:
            What posterior and divergence share.
        """
        K_qk = _self_gram(tokens, kernel)
        K_kk = K_qk if tokens.q is tokens.k else kernel.gram(tokens.k)
        diagonal = (tokens.k @ self.diagonal_map.to(K_qk.dtype))[..., 0] + self.diagonal_offset.to(K_qk.dtype)
        padding = {"query_padding": tokens.query_padding, "key_padding": tokens.key_padding}
        if self.amortisation == "sites":
            return sparse_gp_standard.site_terms(K_qk, K_kk, tokens.v, nn.functional.softplus(diagonal), **padding)
        rows, columns = (tokens.k @ x.to(K_qk.dtype) for x in (self.row_map, self.column_map))
        triangle = positive_triangle((rows @ columns.mT).tril(-1) + torch.diag_embed(diagonal))
        return sparse_gp_standard.triangular_terms(K_qk, K_kk, tokens.v, triangle, **padding)

    def marginals(self, terms: StandardTerms, tokens: AttentionInputs, kernel: HeadKernel) -> MarginalGaussian:
        """Mean and a variance a token.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The marginals.
        """
        return sparse_gp_standard.standard_marginals(terms, kernel.diagonal(tokens.q))

    def joint(self, terms: StandardTerms, tokens: AttentionInputs, kernel: HeadKernel) -> DenseGaussian:
        """Posterior with its covariance over the queries.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The posterior.
        """
        return sparse_gp_standard.standard_joint(terms, kernel.gram(tokens.q))


def _self_gram(tokens: AttentionInputs, kernel: HeadKernel) -> Tensor:
    """K_qk; of one set of tokens with an exact diagonal."""
    return kernel.gram(tokens.q) if tokens.q is tokens.k else kernel.gram(tokens.q, tokens.k)
