"""Attention as the posterior of an exact correlated Gaussian process, and the base class of exact and sparse form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.attention.formulas.causal import prefix_posterior
from cgp.attention.formulas.softmax import ScaledGaussian
from cgp.functional.correlated import OBJECTIVES, ExactPosterior, ObservedKeys, latent_coupling
from cgp.functional.gaussians import Gaussian
from cgp.functional.padding import count_tokens, mask_tokens

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs
from .kernel import PriorAmplitude, kernel_heads, total_covariance
from .softmax import softmax_heads
from .softmax_posterior import SoftmaxPosterior, noise_of, raw_noise

__all__ = ["CGPAttention", "CorrelatedAttention", "Scales"]

COUPLINGS = ("direct", "latent")
MEANS = ("regression", "kernel", "softmax")


class CorrelatedAttention(PriorAmplitude, GaussianProcessAttention):
    r"""Base of exact and sparse correlated attention: coupling, mean, regulariser, scales.

    The covariance is :math:`a^2\,[K_q - C(K_k + \sigma^2I)^{-1}C^\top]`, with :math:`a^2 = \tau^2` unless the values
    are weights. The maps of queries, keys and latent inputs start equal.

    Args:
        coupling: "direct" (one hop) or "latent" (two hops over a latent process, as in the paper).
        mean: what the values are. "regression": observations at the keys, so that the mean is
            :math:`C(K_k + \sigma^2I)^{-1}V`. "kernel": weights, as in the paper; the mean is :math:`a^2CV`, and
            :math:`a^2` is :math:`\tau^2` over the mean sum of a row of C, if that is above one. "softmax": softmax
            attention exactly, with the covariance of :class:`~cgp.attention.softmax_posterior.SoftmaxPosterior` around
            it (direct coupling, squared exponential, no regulariser).
        kernel: name of the canonical covariance, or a kernel of GPyTorch over the s channels of a head.
        noise: observation variance :math:`\sigma^2` in units of :math:`\tau^2`, at least 1e-6: the initial value of a
            learned variance per head; fixed if ``mean`` is "kernel", or beside a regulariser, which rewards less noise.
        objective: regulariser, "marginal" or "joint", see
            :meth:`~cgp.functional.correlated.ExactPosterior.log_density`, or None. Under a causal mask there is no
            joint model of the rows, and no regulariser is added.
        amplitude: initial prior standard deviation :math:`\tau`, learned per head, fixed beside a regulariser; None is
            1, or 0.1 around softmax. With "kernel" and a regulariser the variance is one, as in the paper.

    Raises:
        TypeError: if an amplitude is given where there is none.
        ValueError: if a string is not one of the listed values, or options exclude each other.
    """

    raw_noise: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        coupling: str = "direct",
        mean: str = "regression",
        kernel: str | Kernel = "rbf",
        noise: float = 0.01,
        objective: str | None = None,
        amplitude: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        _check_options(coupling, mean, kernel, objective)
        processes = ("query", "key", "value") + (("latent",) if coupling == "latent" else ())
        super().__init__(embed_dim, num_heads, processes=processes, kernel=kernel, noise=noise, dropout=dropout)
        self.coupling, self.objective = coupling, objective
        self.regresses, self.queries_of_keys = mean == "regression", mean == "kernel"
        self.takes_causal = coupling == "direct"
        self.register_added_loss_term("log_density")
        self.softmax: SoftmaxPosterior | None = None
        self.register_parameter("log_amplitude", None)
        self.register_parameter("raw_noise", None)
        if mean == "softmax":
            self._reset_projections()
            amplitude = 0.1 if amplitude is None else amplitude
            self.softmax = SoftmaxPosterior(num_heads, self.head_dim, noise=noise, amplitude=amplitude)
            return
        self._start_equal()
        is_learned = objective is None
        if self.regresses or self._has_amplitude(amplitude):
            self._register_amplitude(1.0 if amplitude is None else amplitude, is_learned=is_learned)
        if self.regresses:
            self.raw_noise = nn.Parameter(raw_noise(self._noise, num_heads), requires_grad=is_learned)

    def _has_amplitude(self, amplitude: float | None) -> bool:
        """Whether values as weights are of a process with an amplitude, or of the paper's, whose variance is one."""
        if self.objective is not None and amplitude is not None:
            raise TypeError(f"amplitude: mean='kernel' with a regulariser has none, got {amplitude!r}")
        return self.objective is None

    @property
    def mean(self) -> str:
        """What the values are."""
        if self.softmax is not None:
            return "softmax"
        return "regression" if self.regresses else "kernel"

    @property
    def noise(self) -> Tensor | float:
        r"""Observation variance :math:`\sigma^2`: ``(h,)`` where it is learned, otherwise a number."""
        if self.softmax is not None:
            return self.softmax.noise
        return self._noise if self.raw_noise is None else noise_of(self.raw_noise)

    @property
    def takes_key_noise(self) -> bool:
        """Whether each key may have a noise of its own: not around softmax, nor with a regulariser."""
        return self.softmax is None and self.objective is None

    def _noise_of_heads(self, dtype: torch.dtype) -> Tensor | float:
        """The noise, broadcastable to ``(*batch, h, Nk)``."""
        noise = self.noise
        return noise[:, None].to(dtype) if isinstance(noise, Tensor) else noise

    def _scales(self, tokens: AttentionInputs, total: Callable[[], Tensor]) -> Scales:
        """The scales of a call, given what computes :func:`~cgp.attention.kernel.total_covariance`."""
        if self.log_amplitude is None:
            return Scales(tokens.v, None, None)
        amplitude = self._unit_amplitude(tokens.k.dtype) if self.regresses else self._amplitude(total(), tokens)
        if not self.regresses:
            return Scales(tokens.v, amplitude, amplitude.square())
        if self.objective is None:
            return Scales(tokens.v, amplitude, None)
        return Scales(tokens.v / amplitude[..., None], amplitude, amplitude)  # the density is that of the unit process

    def _add_losses(self, posterior: Any, tokens: AttentionInputs) -> None:
        """Negative log-density in nats per real token and column, summed over heads, averaged over the batch."""
        if tokens.is_causal:
            return
        unit: Any = posterior.bracket if isinstance(posterior, ScaledGaussian) else posterior
        density = unit.log_density(self.objective)
        real = count_tokens(tokens.q[..., 0], tokens.query_padding)
        density = density / (real.clamp(min=1.0) * self.head_dim)
        self._add_loss("log_density", -density.sum(-1).mean(), "log_density")


class Scales(NamedTuple):
    """Values of the unit process, its amplitude, and the factor of its mean; None stands for one."""

    values: Tensor
    amplitude: Tensor | None
    gain: Tensor | None

    def of(self, unit: Gaussian) -> Gaussian:
        """The posterior, given that of the unit process."""
        return unit if self.amplitude is None else ScaledGaussian(unit, self.amplitude, self.gain)

    def of_mean(self, mean: Tensor) -> Tensor:
        """The mean, given that of the unit process."""
        return mean if self.gain is None else mean * self.gain[..., None]


def _check_options(coupling: str, mean: str, kernel: str | Kernel, objective: str | None) -> None:
    if coupling not in COUPLINGS:
        raise ValueError(f"coupling: expected one of {COUPLINGS}, got {coupling!r}")
    if objective not in (None, *OBJECTIVES):
        raise ValueError(f"objective: expected one of {(None, *OBJECTIVES)}, got {objective!r}")
    if mean not in MEANS:
        raise ValueError(f"mean: expected one of {MEANS}, got {mean!r}")
    if mean == "softmax" and (coupling, objective, kernel) != ("direct", None, "rbf"):
        raise ValueError(
            f"mean: 'softmax' needs coupling='direct', objective=None and kernel='rbf', "
            f"got {coupling!r}, {objective!r} and {kernel!r}"
        )


class CGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of an exact correlated Gaussian process.

    Queries and keys are two mapped views of one canonical process, and the values are observations at the keys. The
    output has the mean and the covariance

    .. math:: C(K_k + \sigma^2I)^{-1}V, \qquad \tau^2\,[K_q - C(K_k + \sigma^2I)^{-1}C^\top], \qquad
        C = K_{qk} \;\text{(direct)}\quad\text{or}\quad K_{qo}(K_o + \sigma^2I)^{-1}K_{ok} \;\text{(latent)}

    With ``mean="kernel"`` the values are weights, as in the paper: the mean is :math:`a^2CV`, and the covariance has
    :math:`a^2` for :math:`\tau^2`: :math:`\tau^2` over the mean sum of a row of C, if that is above one. Cost: one
    Cholesky factorisation of an n × n matrix (direct) or two (latent), and another for the regulariser. The arguments
    are those of :class:`CorrelatedAttention`.

    Without a regulariser each key may have a noise of its own, :math:`\operatorname{diag}(\sigma_1^2, \dots)`
    (``key_noise``; weights do not depend on it, the covariance does), and :meth:`encode` factorises contexts once for
    all targets.

    Note:
        Bui, Tran Huu, Dinh, Nguyen & Hoang, Revisiting Kernel Attention with Correlated Gaussian Process Representation
        (UAI 2025), https://arxiv.org/abs/2502.20525.

    Example:
        >>> import torch
        >>> block = CGPAttention(8, 2).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def observe(self, tokens: AttentionInputs) -> ObservedKeys | None:
        """The keys with their noise, and their values as observations or weights; None around softmax."""
        if self.softmax is not None:
            return None
        scales = self._scales(tokens, lambda: self._total(tokens))
        return self._observed(tokens, scales.values)

    def mean_heads(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean: no Cholesky factorisation of the keys if the values are weights, otherwise one."""
        if self.softmax is not None:
            return softmax_heads(tokens)
        if self.regresses and tokens.is_causal:
            return self.gaussian(tokens).mean
        scales = self._scales(tokens, lambda: self._total(tokens))
        weights = self._observed(tokens, scales.values).weights if self.regresses else scales.values
        return mask_tokens(scales.of_mean(self._weighted(tokens, weights)), tokens.query_padding)

    def gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The posterior; under a causal mask only its marginals."""
        if self.softmax is not None:
            return self.softmax.around_heads(softmax_heads(tokens), tokens)
        C = self._coupling(tokens)
        scales = self._scales(tokens, lambda: self._total(tokens, C))
        prior_variance = self.canonical.diagonal(tokens.q)
        if tokens.is_causal:
            K_k, noise = self.canonical.gram(tokens.k), self._noise_of_heads(tokens.k.dtype)
            options: dict[str, Any] = {"padding": tokens.key_padding, "observed": self.regresses}
            return scales.of(prefix_posterior(C, K_k, tokens.v, prior_variance, noise=noise, **options))
        K_q, keys = partial(self.canonical.gram, tokens.q), self._observed(tokens, scales.values)
        return scales.of(ExactPosterior(C, keys, prior_variance, K_q=K_q, padding=tokens.query_padding))

    def _observed(self, tokens: AttentionInputs, values: Tensor) -> ObservedKeys:
        if tokens.observed is not None:
            return tokens.observed
        data: dict[str, Any] = {"targets" if self.regresses else "values": values}
        of_keys, dtype = tokens.key_noise, tokens.k.dtype
        noise = self._noise_of_heads(dtype) if of_keys is None else of_keys.to(dtype)
        return ObservedKeys(self.canonical.gram(tokens.k), noise=noise, padding=tokens.key_padding, **data)

    def _total(self, tokens: AttentionInputs, C: Tensor | None = None) -> Tensor:
        """Sum of the covariances of the keys' tokens, as queries and keys; C is that of self-attention."""
        if C is None or tokens.own is not tokens.q:
            assert tokens.own is not None
            C = self._coupling(tokens._replace(q=tokens.own))
        return total_covariance(C, tokens)

    def _weighted(self, tokens: AttentionInputs, weights: Tensor) -> Tensor:
        """The cross-covariance of queries and keys times weights ``(*batch, h, Nk, s)``."""
        if tokens.o is None:
            return kernel_heads(tokens._replace(v=weights), self.canonical)
        K_ok = self.canonical.gram(tokens.k, tokens.o).mT
        return self._latent_hop(tokens, K_ok @ mask_tokens(weights, tokens.key_padding))

    def _coupling(self, tokens: AttentionInputs) -> Tensor:
        """Cross-covariance of queries and keys."""
        if tokens.o is None:
            return self.canonical.gram(tokens.q, tokens.k)
        return self._latent_hop(tokens, self.canonical.gram(tokens.k, tokens.o).mT)

    def _latent_hop(self, tokens: AttentionInputs, K_ok: Tensor) -> Tensor:
        """Cross-covariance of queries and keys through the latent process; given ``K_ok @ weights``, the mean."""
        assert tokens.o is not None
        K_qo, K_o = self.canonical.gram(tokens.q, tokens.o), self.canonical.gram(tokens.o)
        noise = self._noise_of_heads(tokens.o.dtype)
        return latent_coupling(K_qo, K_o, K_ok, noise=noise, padding=tokens.key_padding)
