r"""The loss terms of the published code of CGPT and SCGPT, with its sign, scale and reductions.

It is not the regulariser as printed, which `cgp.attention` has; the posteriors are those of `cgp.attention`. Both terms
are *added* to the cross-entropy, weighted by α, summed over layers. One thing differs from the code: queries, keys and
latent inputs share one set of inducing inputs, where the code gives the keys a set of their own.
"""

from typing import Any

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from cgp.attention import CGPAttention, SparseCGPAttention
from cgp.attention.inputs import AttentionInputs
from cgp.functional.padding import add_noise, mask_gram, mask_tokens

__all__ = ["AuthorsCGPAttention", "AuthorsSparseCGPAttention", "exact_penalty", "sparse_penalty"]

_JITTER = 1e-5
_TRIES = 6  # the authors multiply their jitter by ten without a limit


def exact_penalty(
    f: Tensor,  # shape: (B, h, n, s)
    K_z: Tensor,  # shape: (B, h, n, n)
    K_zo: Tensor,  # shape: (B, h, n, n)
    K_o: Tensor,  # shape: (B, h, n, n)
    z_o: Tensor,  # shape: (B, h, n, s)
    padding: Tensor | None = None,  # shape: (B, 1, n)
    *,
    jitter: float = _JITTER,
) -> Tensor:
    r"""The term of one process z (queries or keys) of the exact CGPT.

    .. math::
        \operatorname{mean}_{B} \sum_{h, s} \lVert L^{-1} (f - K_{zo} K_o^{-1} z_o) \rVert^2
        + 2\,\Big|\operatorname{mean}_{B, h} \sum_i \log L_{ii}\Big|, \qquad
        L = \operatorname{chol}(K_z - K_{zo} K_o^{-1} K_{oz})

    with a jitter on the diagonals of both matrices. The quadratic form has the sign of a negative log-density; the
    log-determinant enters by its absolute value, so that the term is smallest where the conditional covariance has
    determinant one. Entries of padded tokens are zero.
    """
    whitened = _solve(_factor(add_noise(K_o, jitter, padding)), torch.cat([K_zo.mT, z_o], -1))
    of_tokens, of_draw = whitened.split([K_zo.shape[-2], z_o.shape[-1]], -1)
    factor = _factor(add_noise(K_z - of_tokens.mT @ of_tokens, jitter, padding))
    residual = _solve(factor, f - of_tokens.mT @ of_draw)
    log_root = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # (B, h)
    return residual.square().sum((-3, -2, -1)).mean() + 2 * log_root.mean().abs()


def sparse_penalty(
    K_zm: Tensor,  # shape: (B, h, n, m)
    K_om: Tensor,  # shape: (B, h, n, m)
    K_o: Tensor,  # shape: (B, h, n, n)
    K_mm: Tensor,  # shape: (h, m, m)
    *,
    noise: float,
) -> Tensor:
    r"""The term of one process z (queries or keys) of SCGPT: a penalty on the size of the features, not a density.

    .. math::
        \operatorname{mean}_{B, h}\big[\sigma^{-4} \operatorname{tr}(X X^\top K_o)
        + \operatorname{tr}(K_{zm} G K_{mz})\big], \qquad X = K_{om} G K_{mz}, \quad G = (K_{mm} + \sigma^{-2} I)^{-1}

    with the variance σ² as `noise`. Entries of padded tokens are zero.
    """
    factor = _factor(K_mm + torch.eye(K_mm.shape[-1]).to(K_mm) / noise)
    of_tokens, of_latent = _solve(factor, K_zm.mT), _solve(factor, K_om.mT)  # X = of_latent' of_tokens
    squares = ((of_tokens @ of_tokens.mT) * (of_latent @ K_o @ of_latent.mT)).sum((-2, -1))
    return (squares / noise**2 + of_tokens.square().sum((-2, -1))).mean()


def _factor(matrix: Tensor) -> Tensor:
    return psd_safe_cholesky(matrix, max_tries=_TRIES)


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor, right, upper=False)


class AuthorsCGPAttention(CGPAttention):
    r"""Exact latent attention with the regulariser of the authors' code, the sum of both processes' terms.

    .. math:: f_q = \text{the mean output}, \qquad f_k = K_k V, \qquad z_o \sim p(z_o \mid z_k)
    """

    def __init__(self, embed_dim: int, num_heads: int, *, noise: float = 0.01) -> None:
        super().__init__(embed_dim, num_heads, mean="kernel", coupling="latent", noise=noise)
        self.log_amplitude = None

    def _wants_loss(self) -> bool:
        return self.training

    def _add_losses(self, posterior: Any, tokens: AttentionInputs) -> None:
        padding, gram = tokens.key_padding, self.canonical.gram
        q, k, o = tokens.q, tokens.k, tokens.o
        v = mask_tokens(tokens.v, padding)
        K_q, K_k, K_o, K_qo, K_ko = (
            mask_gram(gram(*pair), padding, padding) for pair in ((q,), (k,), (o,), (q, o), (k, o))
        )
        whitened = _solve(_factor(add_noise(K_k, self.noise, padding)), K_ko)
        spread = _factor(add_noise(K_o - whitened.mT @ whitened, _JITTER, padding))
        z_o = K_ko.mT @ v + mask_tokens(spread @ torch.randn_like(v), padding)
        mean = mask_tokens(posterior.mean, padding)
        value = exact_penalty(mean, K_q, K_qo, K_o, z_o, padding)
        value = value + exact_penalty(K_k @ v + _JITTER * v, K_k, K_ko, K_o, z_o, padding)
        self._add_loss("log_density", value, "log_density")


class AuthorsSparseCGPAttention(SparseCGPAttention):
    """Sparse latent attention, the subset-of-regressors form, with the regulariser of the authors' code."""

    def __init__(self, embed_dim: int, num_heads: int, *, num_inducing: int = 16, noise: float = 0.01) -> None:
        options: dict[str, Any] = {"mean": "kernel", "coupling": "latent", "approximation": "sor", "noise": noise}
        super().__init__(embed_dim, num_heads, num_inducing=num_inducing, **options)

    def _wants_loss(self) -> bool:
        return self.training

    def _add_losses(self, posterior: Any, tokens: AttentionInputs) -> None:
        padding, gram, points = tokens.key_padding, self.canonical.gram, self.inducing_points
        K_q, K_k, K_o = (mask_gram(gram(x, points), padding, None) for x in (tokens.q, tokens.k, tokens.o))
        rest = K_o, mask_gram(gram(tokens.o), padding, padding), gram(points)
        of_queries, of_keys = (sparse_penalty(K_zm, *rest, noise=self._noise) for K_zm in (K_q, K_k))
        self._add_loss("log_density", of_queries + of_keys, "log_density")
