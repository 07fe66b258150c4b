"""The decoupled form of sparse Gaussian process attention: global keys carry the covariance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from linear_operator import LinearOperator
from torch import Tensor, nn

from cgp.functional import sparse_gp
from cgp.functional.column_gaussians import ColumnGaussian, ColumnMarginals
from cgp.functional.covariances import Canonical
from cgp.functional.padding import mask_tokens
from cgp.functional.products import product
from cgp.functional.sparse_gp import GlobalKeys
from cgp.variational import InducingVariables
from cgp.variational.column_normal import column_covariance

from .head_kernel import HeadKernel
from .inputs import AttentionInputs, full_precision

__all__ = ["DecoupledForm", "DecoupledTerms"]


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

    def mean(self, tokens: AttentionInputs, kernel: HeadKernel, keys: GlobalKeys | None) -> Tensor:
        """Posterior mean alone.

        Args:
            tokens: the projected tokens.
            kernel: the kernel.
            keys: the global keys; not None.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        return self.terms(tokens, kernel, keys).mean

    def terms(self, tokens: AttentionInputs, kernel: HeadKernel, keys: GlobalKeys | None) -> DecoupledTerms:
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

    def marginals(self, terms: DecoupledTerms, tokens: AttentionInputs, kernel: HeadKernel) -> ColumnMarginals:
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

    def joint(self, terms: DecoupledTerms, tokens: AttentionInputs, kernel: HeadKernel) -> ColumnGaussian:
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

    def later(self, terms: DecoupledTerms, tokens: AttentionInputs, kernel: HeadKernel) -> Callable[[], LinearOperator]:
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

    def _features(self, tokens: AttentionInputs, kernel: HeadKernel, keys: GlobalKeys | None) -> tuple[Tensor, Tensor]:
        assert keys is not None
        features_q = kernel.features(keys.points, keys.whitening, tokens.q)
        if tokens.q is tokens.k:
            return features_q, features_q
        return features_q, kernel.features(keys.points, keys.whitening, tokens.k)

    def _root(self, tokens: AttentionInputs) -> Tensor:
        return self.variables.root.to(tokens.q.dtype)


def _scaled_gram(kernel: Canonical, x: Tensor, outputscale: Tensor) -> Tensor:
    return outputscale * kernel.gram(x)


def _decoupled_covariance(
    terms: DecoupledTerms, root: Tensor, prior: Callable[[], Tensor], padding: Tensor | None
) -> LinearOperator:
    with full_precision(root.device):
        return column_covariance(sparse_gp.decoupled_joint(terms.mean, terms.features_q, root, prior(), padding))
