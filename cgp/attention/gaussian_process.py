"""Base of the Gaussian-process blocks: posterior, draws, variance per token, loss terms."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor, nn

from cgp.functional.gaussians import Gaussian
from cgp.functional.kernels import CANONICAL, Canonical, canonical
from cgp.functional.linalg import may_read
from cgp.operators import LazyMultivariateNormal, shared_covariance
from cgp.spelling import meant
from cgp.variational.loss_terms import LossTerm

from .base import MIN_NOISE, Attention
from .inputs import AttentionInputs, EncodedKeys, full_precision

__all__ = ["MIN_NOISE", "GaussianProcessAttention", "use_kernel"]


def use_kernel(block: nn.Module, kernel: str | Kernel) -> Canonical:
    """A covariance for a block; a kernel becomes its ``covar_module``, whose parameters are trained with it.

    Returns:
        The covariance of points.

    Raises:
        TypeError: if it is neither a name nor a kernel.
        ValueError: if a kernel has lengthscales for another number of channels than a head has.
    """
    if isinstance(kernel, str):
        try:
            return canonical(kernel)
        except ValueError as error:
            raise ValueError(f"{error}{meant([kernel], CANONICAL)}") from None
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel: expected one of {sorted(CANONICAL)} or a gpytorch.kernels.Kernel, got {kernel!r}")
    for part in kernel.modules():
        size = part.ard_num_dims if isinstance(part, Kernel) and part.active_dims is None else None
        if size not in (None, 1, block.head_dim) and kernel.active_dims is None:
            raise ValueError(
                f"kernel: expected ard_num_dims={block.head_dim}, the channels of a head (embed_dim / num_heads), "
                f"got {size} of {type(part).__name__}"
            )
    block.covar_module = kernel
    return Canonical(type(kernel).__name__, _Gram(kernel), _LogDiagonal(kernel), bool(kernel.is_stationary))


class _Gram:
    """Objects, not functions, so that a copy of the block has a copy of the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.kernel(x1, x1 if x2 is None else x2).to_dense()


class _LogDiagonal:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel(x, diag=True).log()


class GaussianProcessAttention(Attention):
    """Base of the blocks whose head outputs are Gaussian-process posteriors.

    A subclass defines :meth:`gaussian`, a lazily evaluated posterior, and its loss terms. Tokens that are not finite
    and not padding raise ValueError on the CPU; on an accelerator, which would have to be waited for, an exact block
    raises where it factorises, the others return NaN.

    Args:
        kernel: name of the canonical covariance, or a kernel of GPyTorch over the s channels of a head.
        noise: observation variance, at least 1e-6; fixed.

    Raises:
        ValueError: if the kernel is unknown or the noise is below its floor.
    """

    stochastic = True
    objective: str | None = None  # name of the regulariser

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        processes: tuple[str, ...] = ("query", "key", "value"),
        kernel: str | Kernel = "rbf",
        noise: float = 0.01,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, processes=processes, dropout=dropout)
        if not noise >= MIN_NOISE:
            raise ValueError(f"noise: expected a variance of at least {MIN_NOISE:g}, got {noise!r}")
        self.canonical = use_kernel(self, kernel)
        self._noise = float(noise)
        self._reset_process_maps(stationary=self.canonical.stationary)

    @property
    def noise(self) -> Tensor | float:
        """Observation variance."""
        return self._noise

    def project(
        self, query: Tensor, key: Tensor | EncodedKeys | None = None, value: Tensor | None = None, **masks: Any
    ) -> AttentionInputs:
        """As of :class:`Attention`; raises ValueError on the CPU if projected tokens are not finite."""
        tokens = super().project(query, key, value, **masks)
        for x in {id(x): x for x in (tokens.q, tokens.k, tokens.v)}.values():
            if x.device.type == "cpu" and may_read(x) and not (x.detach().sum().isfinite() or x.isfinite().all()):
                raise ValueError(_not_finite(x, self.in_proj.weight))
        return tokens

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """The mean of the heads, or a draw; registers the loss terms in training."""
        if tokens.is_causal and self.sampling == "joint":
            raise ValueError(
                "sampling: 'joint' (and posterior) is not defined under a causal mask, where each row conditions on "
                "its own prefix; expected 'mean' or 'marginal'"
            )
        with torch.autocast(tokens.q.device.type, enabled=False):
            wants_loss = self._wants_loss()
            if self.sampling == "mean" and not wants_loss:
                return self.mean_heads(tokens)
            posterior = self.gaussian(tokens)
            if wants_loss:
                self._add_losses(posterior, tokens)
            return posterior.rsample(self.sampling, self.draw_shape)

    def gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The posterior of the heads, lazily evaluated: mean ``(*batch, h, Nq, s)``, variance ``(*batch, h, Nq)``."""
        raise NotImplementedError

    def lasting_gaussian(self, tokens: AttentionInputs) -> Gaussian:
        """The same posterior, whose covariance does not change with later weights."""
        return self.gaussian(tokens)

    def mean_heads(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean ``(*batch, h, Nq, s)``; a subclass may leave out what only the covariance needs."""
        return self.gaussian(tokens).mean

    def posterior(
        self, query: Tensor, key: Tensor | EncodedKeys | None = None, value: Tensor | None = None, **masks: Any
    ) -> MultivariateNormal:
        """The predictive distribution of the head outputs before the output projection; arguments of :meth:`forward`.

        Returns:
            Batch shape ``(*batch, h, s)``, event shape ``(Nq,)``: the tokens of each channel of a head. The s channels
            are independent and share one covariance, which is computed on first use; those of
            :class:`SGPAttention` have one each, and those of :class:`KEPSVGPAttention` depend on each other, too, so
            that their densities do not add up. ``log_prob`` leaves padded tokens out.

        Raises:
            ValueError: if a mask is causal: no covariance over tokens is defined then.
        """
        tokens = self.project(query, key, value, **masks)
        with full_precision(tokens.q.device):
            posterior = self.lasting_gaussian(tokens)
            if "joint" not in posterior.sampling:
                raise ValueError(
                    "posterior: it is not defined under a causal mask, where each row conditions on its own prefix; "
                    "expected token_variance, or sampling 'mean' or 'marginal'"
                )
            variance = posterior.column_variances.mT
            padding = None if tokens.query_padding is None else tokens.query_padding.unsqueeze(-2)
            covariance = partial(_covariance, posterior)
            return LazyMultivariateNormal(posterior.mean.mT, covariance, variance=variance, padding=padding)

    def token_variance(
        self, query: Tensor, key: Tensor | EncodedKeys | None = None, value: Tensor | None = None, **masks: Any
    ) -> Tensor:
        """Predictive variance of each token in each head; arguments of :meth:`forward`.

        The s channels of a head share it; in :class:`SGPAttention` and :class:`KEPSVGPAttention` it is their average,
        as each has its own (``posterior(...).variance``). In float32, a variance of an exact posterior below about 1e-5
        of the prior's is rounding error.

        Returns:
            ``(*batch, h, Nq)``, in units of the head outputs squared.
        """
        tokens = self.project(query, key, value, **masks)
        with full_precision(tokens.q.device):
            return self.gaussian(tokens).variance

    def _wants_loss(self) -> bool:
        return self.training and self.objective is not None

    def _add_losses(self, posterior: Any, tokens: AttentionInputs) -> None:
        """Update the loss terms registered in ``__init__``: the only state that a forward pass writes."""

    def _add_loss(self, name: str, value: Tensor, kind: str) -> None:
        """Update one loss term, which the objective adds."""
        self.update_added_loss_term(name, LossTerm(value, kind))


def _not_finite(projected: Tensor, weight: Tensor) -> str:
    """What is wrong with projected tokens ``(*batch, h, N, s)`` that are not all finite."""
    wrong = ~projected.isfinite().all(-1).all(-2)
    cause = "leave these out by key_padding_mask, or put numbers in their place"
    if not weight.isfinite().all():
        cause = "the block's weights are not finite either, as after too large a step of training"
    return f"tokens: expected finite ones, got NaN or infinity in {int(wrong.sum())} of {wrong.numel()}: {cause}"


def _covariance(posterior: Gaussian) -> LinearOperator:
    with full_precision(posterior.mean.device):
        return shared_covariance(posterior)
