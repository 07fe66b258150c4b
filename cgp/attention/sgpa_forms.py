"""The two forms of sparse Gaussian process attention: whose keys carry the covariance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from linear_operator import LinearOperator
from torch import Tensor, nn

from cgp.functional import sparse_gp, sparse_gp_standard
from cgp.functional.column_gaussians import ColumnGaussian, ColumnMarginals
from cgp.functional.covariances import Canonical
from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.padding import mask_tokens
from cgp.functional.products import product
from cgp.functional.sparse_correlated import features
from cgp.functional.sparse_gp import GlobalKeys
from cgp.functional.sparse_gp_standard import StandardTerms
from cgp.variational import InducingVariables, positive_triangle
from cgp.variational.column_normal import column_covariance

from .base import Tokens, full_precision

__all__ = ["AMORTISATIONS", "DecoupledForm", "DecoupledTerms", "HeadKernel", "StandardForm"]

AMORTISATIONS = ("sites", "triangular")
_TRIANGLE_RANK = 4
_SMALL = 256  # tokens up to which the whole covariance is formed


class HeadKernel(nn.Module):
    r"""A canonical covariance with a learned variance a head, :math:`a_h^2\kappa(z, z')`.

    Args:
        canonical: the canonical covariance.
        num_heads: h.
        initial_outputscale: :math:`a^2` to start from.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if the outputscale is not positive.
    """

    def __init__(
        self,
        canonical: Canonical,
        num_heads: int,
        *,
        initial_outputscale: float,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not initial_outputscale > 0:
            raise ValueError(f"initial_outputscale: expected a positive number, got {initial_outputscale!r}")
        self.canonical = canonical
        start = torch.full((num_heads,), float(initial_outputscale), device=device, dtype=dtype)
        self.log_outputscale = nn.Parameter(start.log())

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariance of two sets of points.

        Args:
            x1: ``(*batch, h, N, s)``.
            x2: ``(*batch, h, M, s)``; None stands for ``x1``.

        Returns:
            ``(*batch, h, N, M)``.
        """
        return self.log_outputscale.exp()[:, None, None] * self.canonical.gram(x1, x2)

    def attend(self, x1: Tensor, x2: Tensor | None, values: Tensor) -> Tensor:
        """Kernel attention; the variance multiplies what comes out, which is smaller than the Gram matrix.

        Args:
            x1: ``(*batch, h, N, s)``.
            x2: ``(*batch, h, M, s)``; None stands for ``x1``.
            values: ``(*batch, h, M, c)``.

        Returns:
            ``(*batch, h, N, c)``.
        """
        if x2 is None and x1.shape[-2] <= _SMALL:  # one set of points: half the products backwards
            attended = product(self.canonical.gram(x1), values)
        else:
            attended = self.canonical.attend(x1, x1 if x2 is None else x2, values)
        return self.log_outputscale.exp()[:, None, None] * attended

    def features(self, points: Tensor, whitening: Tensor, x: Tensor) -> Tensor:
        """Whitened features of points, ``whitening @ gram(points, x)``.

        Args:
            points: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.
            x: ``(*batch, h, N, s)``.

        Returns:
            ``(*batch, h, m, N)``.
        """
        return features(self.canonical, points, self.log_outputscale.exp()[:, None, None] * whitening, x)

    def diagonal(self, x: Tensor) -> Tensor:
        """Prior variance of each point.

        Args:
            x: ``(*batch, h, N, s)``.

        Returns:
            ``(*batch, h, N)``.
        """
        return self.log_outputscale.exp()[:, None] * self.canonical.diagonal(x)


class DecoupledTerms(NamedTuple):
    """What posterior and divergence share.

    Attributes:
        mean: ``(*batch, h, Nq, s)``.
        features_q: ``(*batch, h, m, Nq)``.
        gathered: :math:`T_kV`, ``(*batch, h, m, s)``.
        values: V with padded tokens zero, ``(*batch, h, Nk, s)``.
        attended: :math:`K_{kk}V`, ``(*batch, h, Nk, s)``; None where the divergence is not asked for (in eval).
    """

    mean: Tensor
    features_q: Tensor
    gathered: Tensor
    values: Tensor
    attended: Tensor | None

    @property
    def divergence(self) -> Tensor:
        """The sequence's own part, ``(*batch, h)``."""
        assert self.attended is not None
        return sparse_gp.attended_divergence(self.values, self.attended, self.gathered)


class DecoupledForm(nn.Module):
    """Global keys carry the covariance, the sequence's keys the mean: O(n² s + n m (m s)) a head.

    Args:
        num_inducing: m.
        num_heads: h.
        head_dim: s.
        initial_scale: standard deviation of the whitened variables to start from.
        **factory: device and dtype of the parameters.
    """

    def __init__(
        self, num_inducing: int, num_heads: int, head_dim: int, *, initial_scale: float, **factory: Any
    ) -> None:
        super().__init__()
        batch = torch.Size([num_heads, head_dim])
        self.variables = InducingVariables(num_inducing, batch, initial_scale=initial_scale, **factory)

    def mean(self, tokens: Tokens, kernel: HeadKernel, keys: GlobalKeys | None) -> Tensor:
        """Posterior mean alone.

        Args:
            tokens: the projected tokens.
            kernel: the kernel.
            keys: the global keys; not None.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        return self.terms(tokens, kernel, keys).mean

    def terms(self, tokens: Tokens, kernel: HeadKernel, keys: GlobalKeys | None) -> DecoupledTerms:
        """Mean, features and the sequence's divergence.

        Args:
            tokens: the projected tokens.
            kernel: the kernel.
            keys: the global keys; not None.

        Returns:
            What posterior and divergence share.
        """
        is_self = tokens.q is tokens.k
        values = mask_tokens(tokens.v, tokens.key_padding)
        features_q, features_k = self._features(tokens, kernel, keys)
        gathered = product(features_k, values)
        attended = kernel.attend(tokens.q, None if is_self else tokens.k, values)
        global_mean = self.variables.variational_mean.to(values.dtype).mT
        mean = attended + features_q.mT @ (global_mean - gathered)
        of_keys = None
        if self.training:  # the divergence needs it
            of_keys = attended if is_self else kernel.attend(tokens.k, None, values)
        return DecoupledTerms(mask_tokens(mean, tokens.query_padding), features_q, gathered, values, of_keys)

    def marginals(self, terms: DecoupledTerms, tokens: Tokens, kernel: HeadKernel) -> ColumnMarginals:
        """Mean and a variance a token and column.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The marginals.
        """
        prior, root = kernel.diagonal(tokens.q), self._root(tokens)
        return sparse_gp.decoupled_marginals(terms.mean, terms.features_q, root, prior, tokens.query_padding)

    def joint(self, terms: DecoupledTerms, tokens: Tokens, kernel: HeadKernel) -> ColumnGaussian:
        """Posterior with a covariance over the queries a column.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The posterior.
        """
        K_qq, root = kernel.gram(tokens.q), self._root(tokens)
        return sparse_gp.decoupled_joint(terms.mean, terms.features_q, root, K_qq, tokens.query_padding)

    def later(self, terms: DecoupledTerms, tokens: Tokens, kernel: HeadKernel) -> Callable[[], LinearOperator]:
        """What builds the covariance of :meth:`joint` with the weights as they are now: an n × n Cholesky a head.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            A function of nothing, of the covariance ``(*batch, h, s, Nq, Nq)``.
        """
        prior = partial(_scaled_gram, kernel.canonical, tokens.q, kernel.log_outputscale.exp()[:, None, None])
        return partial(_decoupled_covariance, terms, self._root(tokens), prior, tokens.query_padding)

    def _features(self, tokens: Tokens, kernel: HeadKernel, keys: GlobalKeys | None) -> tuple[Tensor, Tensor]:
        assert keys is not None
        features_q = kernel.features(keys.points, keys.whitening, tokens.q)
        if tokens.q is tokens.k:
            return features_q, features_q
        return features_q, kernel.features(keys.points, keys.whitening, tokens.k)

    def _root(self, tokens: Tokens) -> Tensor:
        return self.variables.root.to(tokens.q.dtype)


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

    def mean(self, tokens: Tokens, kernel: HeadKernel, keys: None = None) -> Tensor:
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

    def terms(self, tokens: Tokens, kernel: HeadKernel, keys: None = None) -> StandardTerms:
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

    def marginals(self, terms: StandardTerms, tokens: Tokens, kernel: HeadKernel) -> MarginalGaussian:
        """Mean and a variance a token.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The marginals.
        """
        return sparse_gp_standard.standard_marginals(terms, kernel.diagonal(tokens.q))

    def joint(self, terms: StandardTerms, tokens: Tokens, kernel: HeadKernel) -> DenseGaussian:
        """Posterior with its covariance over the queries.

        Args:
            terms: what :meth:`terms` gives.
            tokens: the projected tokens.
            kernel: the kernel.

        Returns:
            The posterior.
        """
        return sparse_gp_standard.standard_joint(terms, kernel.gram(tokens.q))


def _self_gram(tokens: Tokens, kernel: HeadKernel) -> Tensor:
    """K_qk; of one set of tokens with an exact diagonal."""
    return kernel.gram(tokens.q) if tokens.q is tokens.k else kernel.gram(tokens.q, tokens.k)


def _scaled_gram(kernel: Canonical, x: Tensor, outputscale: Tensor) -> Tensor:
    return outputscale * kernel.gram(x)


def _decoupled_covariance(
    terms: DecoupledTerms, root: Tensor, prior: Callable[[], Tensor], padding: Tensor | None
) -> LinearOperator:
    with full_precision(root.device):
        return column_covariance(sparse_gp.decoupled_joint(terms.mean, terms.features_q, root, prior(), padding))
