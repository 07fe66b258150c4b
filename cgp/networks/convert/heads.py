"""The posterior around the attention of a host model: its scales, one set per head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.attention import StochasticHeads
from cgp.attention.formulas.masked_softmax import Visibility, read_visibility
from cgp.attention.gaussian_process import MIN_NOISE
from cgp.attention.softmax_posterior import SoftmaxScales
from cgp.functional.gaussians import Gaussian
from cgp.functional.kernels import squared_exponential
from cgp.functional.linalg import whiten

__all__ = ["ConvertedHeads", "HostAttention"]


class HostAttention(NamedTuple):
    """One call of attention in a host model.

    Attributes:
        call: the host's own computation, ``() -> (*batch, h, Nq, s_v)``.
        q: queries, ``(*batch, h, Nq, s)``.
        k: keys, ``(*batch, h or a divisor of it, Nk, s)``.
        mask: the mask of ``scaled_dot_product_attention``: True = attended, or an additive bias; or None.
        is_causal: whether query i sees the keys up to i.
        scale: factor of the scores, a number or one per head, ``(h, 1, 1)``; None is :math:`s^{-1/2}`.
        is_self: whether queries and keys are computed from the same argument.
        trail: intermediate tensors between the scores and the output, where the host computes attention by hand.
    """

    call: Callable[[], Tensor]
    q: Tensor
    k: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | Tensor | None = None
    is_self: bool = True
    trail: tuple[Tensor, ...] = ()

    def read_mask(self) -> tuple[Visibility, Tensor | None]:
        """Read the mask: the keys that each query sees, and which queries are padding.

        The mask is over keys. It says which queries are padding only if the queries are among the keys: both come from
        one argument, and there are as many of both, or a causal mask says which key belongs to which query. It does
        not if the keys are other tokens (a context, a cache, pooled tokens).

        Returns:
            The keys that each query sees, and which queries are padding, ``(*batch, Nq)``, or None.
        """
        count, keys = self.q.shape[-2], self.k.shape[-2]
        visible = read_visibility(self.mask, count, keys, is_causal=self.is_causal)
        first = 0 if visible.offset is None and count == keys else visible.offset
        if not self.is_self or visible.hidden is None or first is None:
            return visible, None
        if first < 0 or first + count > visible.hidden.shape[-1]:
            return visible, None
        return visible, visible.hidden[..., first : first + count]


class ConvertedHeads(SoftmaxScales, StochasticHeads):
    r"""Gaussian-process posterior whose mean is the attention that a host model computes.

    .. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]

    Its scales are those of :class:`~cgp.attention.softmax_posterior.SoftmaxScales`. Each query is conditioned on the
    keys that the mask lets it see (:mod:`cgp.attention.formulas.masked_softmax`).

    Args:
        num_heads: h; 1 means one set of scales for any number of heads.
        amplitude: initial value of :math:`\tau`; learned per head.
        noise: initial value of :math:`\sigma^2`; learned per head.
        lengthscale: initial value of :math:`\ell`; learned per head.
        num_inducing: m, number of inducing inputs, to be placed later; None is the exact posterior.
        inducing: these inputs, ``(h, m, s)``, in units of :math:`K s^{-1/4}`.

    Raises:
        ValueError: if a scale is not positive.

    Example:
        >>> heads, x = ConvertedHeads(2), torch.randn(3, 2, 5, 4)
        >>> attention = HostAttention(lambda: nn.functional.scaled_dot_product_attention(x, x, x), x, x)
        >>> heads.gaussian(attention).variance.shape
        torch.Size([3, 2, 5])
    """

    layer: Tensor

    def __init__(
        self,
        num_heads: int,
        *,
        amplitude: float = 0.1,
        noise: float = 0.01,
        lengthscale: float = 3.0,
        num_inducing: int | None = None,
        inducing: Tensor | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("amplitude", amplitude), ("noise", noise), ("lengthscale", lengthscale)):
            if not value > MIN_NOISE:
                raise ValueError(f"{name}: expected a number above {MIN_NOISE:g}, got {value!r}")
        self.num_heads = num_heads
        self.path = ""  # the layer's name in the model, for error messages
        # Index among the model's attention layers. Saved with the weights: a host may rename its modules on disk.
        self.register_buffer("layer", torch.tensor(0))
        self.register_buffer("cgp_temperature", torch.tensor(1.0))  # cgp.predict divides the model's logits by it
        self.register_buffer("cgp_weights", torch.tensor(0))  # fingerprint of those that it was calibrated with, or 0
        self.register_scales(num_heads, amplitude=amplitude, noise=noise, lengthscale=lengthscale)
        self.num_inducing = num_inducing if inducing is None else inducing.shape[-2]
        self.inducing = None if inducing is None else nn.Parameter(inducing)

    def candidates(self, inputs: HostAttention) -> list[tuple[Tensor, Tensor | None]]:
        """Queries and keys, and which of them are padding."""
        (q, k), (visible, padding) = self.points(inputs), inputs.read_mask()
        return [(q, padding), (visible.filled(k), visible.hidden)]

    @torch.no_grad()
    def place_inducing(self, points: Tensor) -> None:
        """Take inducing inputs ``(h, m, s)`` in units of the lengthscale."""
        self.inducing = nn.Parameter(self.stretched(points).to(self.log_lengthscale.dtype))

    def project(self, function: Callable[..., Tensor], *tokens: Any) -> Tensor:
        """Apply a host's projection; a method, whose result a shared prefix of the structural copy can keep."""
        return function(*tokens)

    def points(self, inputs: HostAttention) -> tuple[Tensor, Tensor]:
        """Queries and keys ``(*batch, h, N, s)`` in units of the lengthscale, in float32 at least."""
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (inputs.q, inputs.k))
        if q.dim() > 3 and k.shape[-3] != q.shape[-3]:
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        quarter = q.shape[-1] ** 0.25
        scale = quarter**-2 if inputs.scale is None else inputs.scale
        inverse = self._inverse_lengthscale(q.dtype)
        return q * (scale * quarter * inverse), k * (inverse / quarter)

    def gaussian(self, inputs: HostAttention) -> Gaussian:
        """The posterior around the host's attention: "joint" where all queries see the same keys."""
        (visible, padding), mean = inputs.read_mask(), inputs.call()
        if self.sampling == "joint" and not visible.is_common:
            where = "where queries see different keys (a causal mask, a window)"
            raise ValueError(f"{self.path}: sampling 'joint' is not defined {where}; expected 'mean' or 'marginal'")
        (q, k), inducing = self.points(inputs), None
        if self.inducing is not None:
            inducing = self.shrunk(self.inducing), (self._frozen or self.weight_factors())["whitening"]
        return self.around(mean.to(q.dtype), q, k, visible, padding, inducing)

    def weight_factors(self) -> dict[str, Tensor]:
        """The inverse Cholesky factor of the inducing inputs' covariance, which depends only on weights."""
        return {} if self.inducing is None else {"whitening": whiten(squared_exponential(self.shrunk(self.inducing)))}
