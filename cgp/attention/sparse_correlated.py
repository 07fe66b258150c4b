"""Attention by a sparse correlated Gaussian process."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.attention.formulas.causal import causal_product, sparse_prefix_posterior
from cgp.attention.formulas.softmax import ScaledGaussian
from cgp.functional.gaussians import Gaussian
from cgp.functional.linalg import whiten
from cgp.functional.padding import mask_gram, mask_tokens
from cgp.functional.sparse_correlated import APPROXIMATIONS, SparseCorrelatedPosterior, features
from cgp.functional.sparse_regression import Covariances, OneStepPosterior, covariances, sparse_regression

from .correlated import CorrelatedAttention, Scales
from .inputs import AttentionInputs
from .softmax import softmax_heads

__all__ = ["SparseCGPAttention"]


class SparseCGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of a correlated Gaussian process seen through m inducing inputs per head.

    With :math:`A_p = L^{-1}K_{mp}`, :math:`L = \operatorname{chol}(K_{mm})` and
    :math:`\Lambda_p = I + A_pA_p^\top/\sigma^2` the mean and the variance over :math:`\tau^2` are

    .. math:: \text{direct:}\quad \sigma^{-2}A_q^\top\Lambda_k^{-1}A_kV, \;\;
        \delta + A_q^\top \Lambda_k^{-1}A_q; \qquad
        \text{latent:}\quad \sigma^{-2}A_q^\top J\Lambda_k^{-1}A_kV, \;\; \delta + A_q^\top SA_q

    where :math:`J = I - \Lambda_o^{-1}`, :math:`S = \Lambda_o^{-1} + J(\Lambda_o^{-1} + \Lambda_k^{-1}J)` is the
    covariance of the whitened inducing variables after both hops, and :math:`\delta` the part of the prior variance
    that the inducing inputs do not explain, :math:`\operatorname{diag}(K_q - A_q^\top A_q)` ("dtc"), or
    :math:`\sigma^2` ("sor"). With ``mean="kernel"`` the direct mean is :math:`a^2A_q^\top(A_kV)`, and the variance has
    :math:`a^2` for :math:`\tau^2`, where :math:`a^2` is :math:`\tau^2` over the mean sum of a row of
    :math:`A_q^\top A_k`, if that is above one; the paper's latent form is the one above, and ``mean="kernel"`` has its
    fixed noise and unit variance.

    Cost: O(n m (m + s)), and no n × n matrix apart from softmax's if ``mean`` is "softmax". The other arguments are
    those of :class:`~cgp.attention.correlated.CorrelatedAttention`.

    Args:
        num_inducing: m, number of inducing inputs per head; the inputs are learned.
        approximation: "dtc" (the variance returns to the prior's far from the inducing inputs) or "sor" (as in the
            paper).

    Raises:
        ValueError: if a size is not positive, a string is not one of the listed values, or options exclude each other.

    Example:
        >>> block = SparseCGPAttention(8, 2, num_inducing=4).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_inducing: int = 16,
        approximation: str = "dtc",
        coupling: str = "direct",
        mean: str = "regression",
        kernel: str | Kernel = "rbf",
        noise: float = 0.01,
        objective: str | None = None,
        amplitude: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            coupling=coupling,
            mean=mean,
            kernel=kernel,
            noise=noise,
            objective=objective,
            amplitude=amplitude,
            dropout=dropout,
        )
        if num_inducing < 1:
            raise ValueError(f"num_inducing: expected at least 1, got {num_inducing}")
        if approximation not in APPROXIMATIONS:
            raise ValueError(f"approximation: expected one of {APPROXIMATIONS}, got {approximation!r}")
        if self.softmax is not None and approximation != "dtc":
            raise ValueError(f"approximation: mean='softmax' needs 'dtc', got {approximation!r}")
        self.num_inducing, self.approximation = num_inducing, approximation
        scale = self.head_dim**-0.5 if self.canonical.stationary else 1.0  # initial scale of the projected tokens
        scale = scale if self.softmax is None else self.head_dim**-0.25
        start = scale * torch.randn(num_heads, num_inducing, self.head_dim)
        self.inducing_points = nn.Parameter(start)

    def _has_amplitude(self, amplitude: float | None) -> bool:
        if self.coupling == "latent" and amplitude is not None:
            raise TypeError(f"amplitude: mean='kernel' with coupling='latent' has none, got {amplitude!r}")
        return super()._has_amplitude(amplitude) and self.coupling == "direct"

    @property
    def takes_key_noise(self) -> bool:
        """Whether each key may have a noise of its own: where it observes its value, without a regulariser."""
        return self.regresses and self.objective is None

    def mean_heads(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean."""
        if self.softmax is not None:
            return softmax_heads(tokens)
        if tokens.is_causal and not self.regresses:
            A_q, A_k = self._features(tokens.q, tokens.k)
            mean = causal_product(A_q, mask_gram(A_k, None, tokens.key_padding), tokens.v)
            scales = self._scales(tokens, lambda: self._total(tokens, A_q, A_k))
            return mask_tokens(scales.of_mean(mean), tokens.query_padding)
        return self.gaussian(tokens).mean

    def gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The posterior; under a causal mask only its marginals."""
        if self.softmax is not None:
            return self.softmax.around_heads(softmax_heads(tokens), tokens, self._inducing(tokens.q.dtype))
        known = self._covariances(tokens)
        if known is None:
            return self.lasting_gaussian(tokens)
        in_one_step = OneStepPosterior(lambda: self._moments(tokens, known), lambda: self._unit(tokens)[0])
        return ScaledGaussian(in_one_step, self._unit_amplitude(tokens.k.dtype))

    def lasting_gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The posterior by features that are computed at once."""
        if self.softmax is not None:
            return self.gaussian(tokens)
        unit, scales = self._unit(tokens)
        return scales.of(unit)

    def _covariances(self, tokens: AttentionInputs) -> Covariances | None:
        """What a regression in one step starts from, if this call is one."""
        form = (self.regresses, self.coupling, self.approximation, self.canonical.name, self.objective)
        if form != (True, "direct", "dtc", "rbf", None) or tokens.is_causal or tokens.key_noise is not None:
            return None
        return covariances(tokens.q, tokens.k, tokens.v, self._points(tokens.q.dtype))

    def _moments(self, tokens: AttentionInputs, known: Covariances) -> tuple[Tensor, Tensor]:
        dtype, frozen, noise = tokens.q.dtype, self._frozen.get("whitening"), self.noise
        assert isinstance(noise, Tensor)
        return sparse_regression(
            tokens.q,
            tokens.k,
            tokens.v,
            self._points(dtype),
            noise.to(dtype),
            known,
            whitening=None if frozen is None else frozen.to(dtype),
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
        )

    def _unit(self, tokens: AttentionInputs) -> tuple[Gaussian, Scales]:
        """The posterior of the unit process, and the scales of the block's."""
        sets = (tokens.q, tokens.k) if tokens.o is None else (tokens.q, tokens.k, tokens.o)
        A_q, A_k, *A_o = self._features(*sets)
        scales = self._scales(tokens, lambda: self._total(tokens, A_q, A_k))
        shared: dict[str, Any] = {
            "noise": self._noise_of_heads(tokens.k.dtype),
            "approximation": self.approximation,
            "observed": self.regresses,
        }
        data = A_q, A_k, scales.values, self.canonical.diagonal(tokens.q)
        if tokens.is_causal:
            return sparse_prefix_posterior(*data, padding=tokens.key_padding, **shared), scales
        unit = SparseCorrelatedPosterior(
            *data,
            features_o=A_o[0] if A_o else None,
            key_noise=tokens.key_noise,
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
            **shared,
        )
        return unit, scales

    def _total(self, tokens: AttentionInputs, A_q: Tensor, A_k: Tensor) -> Tensor:
        """Sum of the covariances of the keys' tokens, as queries and keys."""
        if tokens.own is not tokens.q:
            assert tokens.own is not None
            (A_q,) = self._features(tokens.own)
        A_q, A_k = (mask_gram(A, None, tokens.key_padding) for A in (A_q, A_k))
        if tokens.is_causal:
            return (A_q.cumsum(-1) * A_k.cumsum(-1)).sum(-2)
        return (A_q.sum(-1) * A_k.sum(-1)).sum(-1, keepdim=True)

    def candidates(self, tokens: AttentionInputs) -> list[tuple[Tensor, Tensor | None]]:
        """Tokens of each process, ``(*batch, h, n, s)``, as inputs of the kernel, and their padding masks."""
        if self.softmax is not None:
            q, k = self.softmax.points(tokens)
            return [(q, tokens.query_padding), (k, tokens.key_padding)]
        latent = [] if tokens.o is None else [(tokens.o, tokens.key_padding)]
        return [(tokens.q, tokens.query_padding), (tokens.k, tokens.key_padding), *latent]

    @torch.no_grad()
    def place_inducing(self, points: Tensor) -> None:
        """Set inducing inputs ``(h, m, s)``, in the coordinates of :meth:`candidates`."""
        self.inducing_points.copy_(points if self.softmax is None else self.softmax.stretched(points))

    def weight_factors(self) -> dict[str, Tensor]:
        """The inverse Cholesky factor of the inducing inputs' covariance, which depends only on weights."""
        return {"whitening": whiten(self.canonical.gram(self._points(self.inducing_points.dtype)))}

    def _points(self, dtype: torch.dtype) -> Tensor:
        """Inducing inputs in the space of the kernel, ``(h, m, s)``."""
        points = self.inducing_points.to(dtype)
        return points if self.softmax is None else self.softmax.shrunk(points)

    def _inducing(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Inducing inputs and the inverse Cholesky factor of their covariance."""
        points, frozen = self._points(dtype), self._frozen.get("whitening")
        return points, whiten(self.canonical.gram(points)) if frozen is None else frozen.to(dtype)

    def _features(self, *sets: Tensor) -> tuple[Tensor, ...]:
        """Whitened features of several sets of tokens."""
        points, whitening = self._inducing(sets[0].dtype)
        return features(self.canonical, points, whitening, *sets)
