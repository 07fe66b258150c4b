"""Attention as the posterior of an exact correlated Gaussian process, and the base class of exact and sparse form."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from cgp.attention.formulas.causal import prefix_posterior
from cgp.functional.correlated import ExactPosterior, ObservedKeys, check_objective, latent_coupling
from cgp.functional.gaussians import Gaussian
from cgp.functional.padding import count_tokens, mask_tokens

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs
from .kernel import kernel_heads
from .softmax import softmax_heads
from .softmax_posterior import SoftmaxPosterior

__all__ = ["CGPAttention", "CorrelatedAttention"]

COUPLINGS = ("direct", "latent")


class CorrelatedAttention(GaussianProcessAttention):
    """Base of exact and sparse correlated attention: coupling, mean, regulariser.

    Args:
        coupling: "direct" (one hop) or "latent" (two hops over a latent process, as in the paper).
        mean: "kernel", or "softmax": the mean is softmax attention exactly, with the covariance of
            :class:`~cgp.attention.softmax_posterior.SoftmaxPosterior` around it (direct coupling, squared exponential,
            no regulariser), or of the exact form "regression": the values are observations at the keys, with noise.
        kernel: name of the canonical covariance.
        noise: observation variance, at least 1e-6; fixed if ``mean`` is "kernel", the initial value of a learned
            variance per head if it is "softmax".
        objective: regulariser, "marginal" or "joint", see
            :meth:`~cgp.functional.correlated.ExactPosterior.log_density`, or None. Under a causal mask there is no
            joint model of the rows, and no regulariser is added.
        amplitude: initial standard deviation if ``mean`` is "softmax", learned per head; None is 0.1.

    Raises:
        TypeError: if ``amplitude`` is given and ``mean`` is "kernel".
        ValueError: if a string is not one of the listed values, or options exclude each other.
    """

    means: tuple[str, ...] = ("kernel", "softmax")

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        coupling: str = "direct",
        mean: str = "kernel",
        kernel: str = "rbf",
        noise: float = 0.01,
        objective: str | None = None,
        amplitude: float | None = None,
    ) -> None:
        _check_options(coupling, mean, kernel, objective, amplitude, self.means)
        processes = ("query", "key", "value") + (("latent",) if coupling == "latent" else ())
        super().__init__(embed_dim, num_heads, processes=processes, kernel=kernel, noise=noise)
        self.coupling, self.objective = coupling, objective
        self.regresses = mean == "regression"
        self.takes_causal = coupling == "direct" and not self.regresses
        self.register_added_loss_term("log_density")
        self.softmax: SoftmaxPosterior | None = None
        if mean == "softmax":
            self._reset_projections()
            amplitude = 0.1 if amplitude is None else amplitude
            self.softmax = SoftmaxPosterior(num_heads, self.head_dim, noise=noise, amplitude=amplitude)

    def _add_losses(self, posterior: Any, tokens: AttentionInputs) -> None:
        """Negative log-density in nats per real token and column, summed over heads, averaged over the batch."""
        if tokens.is_causal:
            return
        density = posterior.log_density(self.objective)
        real = count_tokens(tokens.q[..., 0], tokens.query_padding)
        density = density / (real.clamp(min=1.0) * self.head_dim)
        self._add_loss("log_density", -density.sum(-1).mean(), "log_density")


def _check_options(
    coupling: str, mean: str, kernel: str, objective: str | None, amplitude: float | None, means: tuple[str, ...]
) -> None:
    if coupling not in COUPLINGS:
        raise ValueError(f"coupling: expected one of {COUPLINGS}, got {coupling!r}")
    if objective is not None:
        check_objective(objective)
    if mean not in means:
        raise ValueError(f"mean: expected {' or '.join(map(repr, means))}, got {mean!r}")
    if mean == "softmax" and (coupling, objective, kernel) != ("direct", None, "rbf"):
        raise ValueError(
            f"mean: 'softmax' needs coupling='direct', objective=None and kernel='rbf', "
            f"got {coupling!r}, {objective!r} and {kernel!r}"
        )
    if mean != "softmax" and amplitude is not None:
        raise TypeError(f"amplitude: only with mean='softmax', got mean={mean!r}")


class CGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of an exact correlated Gaussian process.

    Queries and keys are two mapped views of one canonical process, so the output has the mean :math:`CV` and the
    covariance

    .. math:: K_q - C(K_k + \sigma^2I)^{-1}C^\top, \qquad C = K_{qk} \;\text{(direct)}\quad\text{or}\quad
        K_{qo}(K_o + \sigma^2I)^{-1}K_{ok} \;\text{(latent)}

    Cost: one Cholesky factorisation of an n × n matrix (direct) or two (latent), and another for the regulariser. The
    arguments are those of :class:`CorrelatedAttention`.

    With ``mean="regression"`` the values are observations at the keys, and the mean is
    :math:`C(K_k + \Sigma)^{-1}V`: a neural process whose targets attend to contexts. Without a regulariser each key may
    have a noise of its own, :math:`\Sigma = \operatorname{diag}(\sigma_1^2, \dots)` (``key_noise``; the kernel's mean
    CV does not depend on it, the covariance does), and :meth:`encode` factorises contexts once for all targets.

    Example:
        >>> import torch
        >>> block = CGPAttention(8, 2).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    means = ("kernel", "softmax", "regression")

    @property
    def takes_key_noise(self) -> bool:
        """Whether each key may have a noise of its own: not around softmax, nor with a regulariser."""
        return self.softmax is None and self.objective is None

    def observe(self, tokens: AttentionInputs) -> ObservedKeys | None:
        """The keys with their noise, and their values or (regression) targets; None around softmax."""
        if self.softmax is not None:
            return None
        data = {"targets" if self.regresses else "values": tokens.v}
        noise = self.noise if tokens.key_noise is None else tokens.key_noise.to(tokens.k.dtype)
        return ObservedKeys(self.canonical.gram(tokens.k), noise=noise, padding=tokens.key_padding, **data)

    def mean_heads(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean: no Cholesky factorisation (direct) or one (latent), one more for a regression."""
        if self.softmax is not None:
            return softmax_heads(tokens)
        if self.regresses:
            return mask_tokens(self.gaussian(tokens).mean, tokens.query_padding)
        if tokens.o is None:
            return mask_tokens(kernel_heads(tokens, self.canonical), tokens.query_padding)
        K_ok = self.canonical.gram(tokens.k, tokens.o).mT
        mean = self._latent_hop(tokens, K_ok @ mask_tokens(tokens.v, tokens.key_padding))
        return mask_tokens(mean, tokens.query_padding)

    def gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The posterior; under a causal mask only its marginals."""
        if self.softmax is not None:
            return self.softmax.around_heads(softmax_heads(tokens), tokens)
        gram, prior_variance = self.canonical.gram, self.canonical.diagonal(tokens.q)
        if tokens.is_causal:
            K_qk, noise, padding = gram(tokens.q, tokens.k), self.noise, tokens.key_padding
            return prefix_posterior(K_qk, gram(tokens.k), tokens.v, prior_variance, noise=noise, padding=padding)
        observed = self.observe(tokens) if tokens.observed is None else tokens.observed
        assert observed is not None, "only softmax observes nothing"
        return ExactPosterior(
            self._coupling(tokens),
            observed,
            prior_variance,
            K_q=partial(gram, tokens.q),
            padding=tokens.query_padding,
        )

    def _coupling(self, tokens: AttentionInputs) -> Tensor:
        """Cross-covariance of queries and keys."""
        if tokens.o is None:
            return self.canonical.gram(tokens.q, tokens.k)
        return self._latent_hop(tokens, self.canonical.gram(tokens.k, tokens.o).mT)

    def _latent_hop(self, tokens: AttentionInputs, K_ok: Tensor) -> Tensor:
        """Cross-covariance of queries and keys through the latent process; given ``K_ok @ values``, the mean."""
        assert tokens.o is not None
        K_qo, K_o = self.canonical.gram(tokens.q, tokens.o), self.canonical.gram(tokens.o)
        return latent_coupling(K_qo, K_o, K_ok, noise=self.noise, padding=tokens.key_padding)
