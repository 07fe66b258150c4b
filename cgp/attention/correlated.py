"""Attention by an exact correlated Gaussian process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cgp.functional import correlated
from cgp.functional.causal import prefix_posterior
from cgp.functional.correlated import ExactTerms
from cgp.functional.correlated_objective import OBJECTIVES, log_density
from cgp.functional.differentiation import may_own_backward
from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.padding import count_tokens, mask_tokens

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs
from .kernel import kernel_heads
from .softmax import softmax_heads
from .softmax_posterior import SoftmaxPosterior

__all__ = ["CGPAttention", "CorrelatedAttention"]

COUPLINGS = ("direct", "latent")
_PIECE = 2**21  # bytes of one covariance of a piece of the batch: where nothing is kept, what fits the cache is faster


class CorrelatedAttention(GaussianProcessAttention):
    """What exact and sparse correlated attention share: coupling, objective, its normalisation.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        coupling: "direct" (one hop) or "latent" (two hops over a latent process, the paper's).
        mean: "kernel", or "softmax": the mean is softmax attention exactly, with the covariance of
            :class:`~cgp.attention.softmax_posterior.SoftmaxPosterior` (direct coupling, squared exponential).
        objective: the regulariser, one of "marginal", "joint", "elbo", "paper_mc", or None for none; "auto" is
            "marginal", and None with softmax's mean. Under a causal mask there is no joint model of the rows, and no
            regulariser is added.
        objective_reduction: "mean" (nats per real token and column, so that alpha means the same at every size) or
            "sum" (the paper's scale).
        objective_draws: draws of "paper_mc".
        amplitude: where the standard deviation of softmax's mean starts; learned per head.
        statistics: of softmax's mean, "sequence", "learned" or "bounded".
        lengthscale: where the lengthscale of "bounded" statistics starts; learned per head.
        **options: of :class:`~cgp.attention.gaussian_process.GaussianProcessAttention`.

    Raises:
        ValueError: if a string is not of its closed set.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        coupling: str = "direct",
        mean: str = "kernel",
        objective: str | None = "auto",
        objective_reduction: str = "mean",
        objective_draws: int = 1,
        amplitude: float = 0.1,
        statistics: str = "sequence",
        lengthscale: float = 3.0,
        **options: Any,
    ) -> None:
        if coupling not in COUPLINGS:
            raise ValueError(f"coupling: expected one of {COUPLINGS}, got {coupling!r}")
        if objective == "auto":
            objective = "marginal" if mean == "kernel" else None
        if objective is not None and objective not in OBJECTIVES:
            raise ValueError(f"objective: expected None or one of {OBJECTIVES}, got {objective!r}")
        _check_mean(mean, coupling, objective, options.get("kernel", "rbf"))
        if objective_reduction not in ("mean", "sum"):
            raise ValueError(f"objective_reduction: expected 'mean' or 'sum', got {objective_reduction!r}")
        processes = ("query", "key", "value") + (("latent",) if coupling == "latent" else ())
        super().__init__(embed_dim, num_heads, processes=processes, **options)
        self.coupling = coupling
        self.objective = objective
        self.objective_reduction = objective_reduction
        self.objective_draws = objective_draws
        self.register_added_loss_term("log_density")
        self.softmax: SoftmaxPosterior | None = None
        self.takes_causal = coupling == "direct"
        if mean == "softmax":
            self._reset_projections()
            self.softmax = SoftmaxPosterior(
                num_heads,
                self.head_dim,
                noise=self.noise,
                amplitude=amplitude,
                statistics=statistics,
                lengthscale=lengthscale,
            ).to(self.in_proj.weight)
            self.takes_causal = statistics != "sequence"

    def _wants_loss(self) -> bool:
        return self.training and self.objective is not None

    def _refuse_joint_if_causal(self, tokens: AttentionInputs) -> None:
        if tokens.is_causal:
            raise ValueError(
                "sampling: 'joint' (and posterior) is not defined under a causal mask, where each row conditions on "
                "its own prefix; expected 'mean' or 'marginal' (or token_variance)"
            )

    def _add_log_density(self, density: Tensor, tokens: AttentionInputs) -> None:
        """Minus the log-density: summed over heads, averaged over the batch, per token and column unless "sum"."""
        if self.objective_reduction == "mean":
            real = count_tokens(tokens.q[..., 0], tokens.query_padding)
            density = density / (real.clamp(min=1.0) * self.head_dim)
        self._add_loss("log_density", -density.sum(-1).mean(), "log_density")


def _check_mean(mean: str, coupling: str, objective: str | None, kernel: str) -> None:
    if mean not in ("kernel", "softmax"):
        raise ValueError(f"mean: expected 'kernel' or 'softmax', got {mean!r}")
    if mean == "softmax" and (coupling, objective, kernel) != ("direct", None, "rbf"):
        raise ValueError(
            f"mean: 'softmax' needs coupling='direct', objective=None and kernel='rbf', "
            f"got {coupling!r}, {objective!r} and {kernel!r}"
        )


def _in_pieces(tokens: AttentionInputs) -> bool:
    """Whether the batch may be cut: no graph is kept, and small products cost no launches."""
    return tokens.q.dim() == 4 and tokens.q.device.type == "cpu" and not torch.is_grad_enabled() and may_own_backward()


class CGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of an exact correlated Gaussian process.

    Queries and keys are two scaled-and-mapped views of one canonical process, so the output has the mean :math:`CV`
    and the covariance

    .. math:: K_q - C(K_k + \sigma^2I)^{-1}C^\top, \qquad C = K_{qk} \;\text{(direct)}\quad\text{or}\quad
        K_{qo}(K_o + \sigma^2I)^{-1}K_{ok} \;\text{(latent)}

    Cost: one Cholesky of n rows (direct), two (latent); a further one for the objective.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        coupling: "direct" or "latent".
        covariance: "coherent" or "paper" (CGPT appendix B; latent coupling only).
        **options: ``kernel``, ``noise``, ``mean``, ``objective``, ``objective_reduction``, ``objective_draws``,
            ``amplitude``, ``statistics``, ``lengthscale``, ``bias``, ``device``, ``dtype``.

    Raises:
        ValueError: if a string is not of its closed set, or the paper's covariance is asked of the direct coupling.

    Example:
        >>> import torch
        >>> block = CGPAttention(8, 2).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, coupling: str = "direct", covariance: str = "coherent", **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, coupling=coupling, **options)
        if covariance not in ("coherent", "paper") or (covariance == "paper" and coupling == "direct"):
            raise ValueError(f"covariance: expected 'coherent', or 'paper' with coupling='latent', got {covariance!r}")
        if coupling == "direct" and self.objective in ("elbo", "paper_mc"):
            raise ValueError(f"objective: {self.objective!r} needs coupling='latent', got 'direct'")
        self.covariance = covariance

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean alone: no Cholesky (direct), one (latent).

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        if self.softmax is not None:
            return softmax_heads(tokens)
        if tokens.o is None:
            return mask_tokens(kernel_heads(tokens, self.canonical), tokens.query_padding)
        gram, padding = self.canonical.gram, tokens.key_padding
        K_qo, K_o, K_ko = gram(tokens.q, tokens.o), gram(tokens.o), gram(tokens.k, tokens.o)
        mean = correlated.latent_mean(
            K_qo, K_o, K_ko, tokens.v, noise=self.noise, key_padding=padding, latent_padding=padding
        )
        return mask_tokens(mean, tokens.query_padding)

    def marginals(self, tokens: AttentionInputs) -> MarginalGaussian:
        """Mean and variance of each token.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, variance ``(*batch, h, Nq)``.
        """
        if self.softmax is not None:
            return self.softmax.exact_marginals(tokens, softmax_heads(tokens))
        size = tokens.q.shape[-3:-1].numel() * tokens.k.shape[-2] * tokens.q.element_size()
        if size * tokens.q.shape[:-3].numel() > _PIECE and _in_pieces(tokens):
            pieces = [self._marginals(piece) for piece in tokens.pieces(max(_PIECE // size, 1))]
            return MarginalGaussian(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))
        return self._marginals(tokens)

    def _marginals(self, tokens: AttentionInputs) -> MarginalGaussian:
        prior_variance = self.canonical.diagonal(tokens.q)
        if tokens.is_causal:
            K_qk, K_k = self.canonical.gram(tokens.q, tokens.k), self.canonical.gram(tokens.k)
            return prefix_posterior(K_qk, K_k, tokens.v, prior_variance, noise=self.noise, padding=tokens.key_padding)
        return correlated.marginal_posterior(self._terms(tokens), prior_variance)

    def joint(self, tokens: AttentionInputs) -> DenseGaussian:
        """Posterior with its covariance over the queries.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, covariance ``(*batch, h, Nq, Nq)``.
        """
        self._refuse_joint_if_causal(tokens)
        if self.softmax is not None:
            return self.softmax.exact_joint(tokens, softmax_heads(tokens))
        return correlated.joint_posterior(self._terms(tokens), self.canonical.gram(tokens.q))

    def gaussian(self, tokens: AttentionInputs) -> MarginalGaussian | DenseGaussian:
        """The posterior that ``sampling`` needs; registers the regulariser in training.

        Args:
            tokens: the projected tokens.

        Returns:
            Joint if draws are joint, marginals otherwise.
        """
        is_marginal = self.sampling != "joint" and not self._wants_loss()
        if tokens.is_causal or self.softmax is not None or is_marginal:
            return self.joint(tokens) if self.sampling == "joint" else self.marginals(tokens)
        terms = self._terms(tokens)
        K_q = self.canonical.gram(tokens.q) if self._wants_loss() or self.sampling == "joint" else None
        if self._wants_loss() and K_q is not None and self.objective is not None:
            self._add_log_density(log_density(terms, K_q, self.objective, draws=self.objective_draws), tokens)
        if self.sampling == "joint" and K_q is not None:
            return correlated.joint_posterior(terms, K_q)
        return correlated.marginal_posterior(terms, self.canonical.diagonal(tokens.q))

    def _terms(self, tokens: AttentionInputs) -> ExactTerms:
        gram, padding = self.canonical.gram, tokens.key_padding
        common: dict[str, Any] = {
            "noise": self.noise,
            "query_padding": tokens.query_padding,
            "key_padding": padding,
        }
        if tokens.o is None:
            return correlated.direct_terms(gram(tokens.q, tokens.k), gram(tokens.k), tokens.v, **common)
        K_qo, K_o, K_ko = gram(tokens.q, tokens.o), gram(tokens.o), gram(tokens.k, tokens.o)
        return correlated.latent_terms(
            K_qo, K_o, K_ko, gram(tokens.k), tokens.v, latent_padding=padding, covariance=self.covariance, **common
        )
