"""Attention by a sparse variational Gaussian process with one map for queries and keys."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.attention.formulas.kernel_attention import kernel_attention
from cgp.functional import sgpa
from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.kernels import Canonical
from cgp.functional.linalg import product, solve_lower
from cgp.functional.padding import mask_tokens
from cgp.functional.sgpa import GlobalKeys, StandardPosterior
from cgp.variational import InducingVariables

from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs, full_precision

__all__ = ["SGPAttention", "StandardSGPAttention", "SymmetricAttention"]

_KERNELS = ("rbf", "exponential")
_INDUCING = ("own", "travel")
_SMALL = 256  # up to this number of tokens the whole covariance is formed
_INITIAL_SCALE = 0.3  # initial standard deviation of the whitened inducing variables; at the prior's 1, noise dominates


class HeadKernel(NamedTuple):
    r"""A canonical covariance with one variance per head, :math:`a_h^2\kappa(z, z')`.

    Attributes:
        canonical: the canonical covariance.
        outputscale: :math:`a^2`, ``(h,)``.
    """

    canonical: Canonical
    outputscale: Tensor

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariance ``(*batch, h, N, M)`` of points ``(*batch, h, N, s)`` and ``(*batch, h, M, s)``."""
        return self.outputscale[:, None, None] * self.canonical.gram(x1, x2)

    def attend(self, x1: Tensor, x2: Tensor | None, values: Tensor) -> Tensor:
        """Kernel attention ``gram(x1, x2) @ values`` of values ``(*batch, h, M, c)``."""
        values = self.outputscale[:, None, None] * values  # scale the smaller of both factors
        if x2 is None and x1.shape[-2] <= _SMALL:  # one set of points: half the products in the backward pass
            return product(self.canonical.gram(x1), values)
        return kernel_attention(self.canonical, x1, x1 if x2 is None else x2, values)

    def features(self, points: Tensor, whitening: Tensor, x: Tensor) -> Tensor:
        """Features ``whitening @ gram(points, x)`` for points ``(h, m, s)``, shared by the batch."""
        return product(self.outputscale[:, None, None] * whitening, self.canonical.gram(points, x))

    def diagonal(self, x: Tensor) -> Tensor:
        """Prior variance of each point, ``(*batch, h, N)``."""
        return self.outputscale[:, None] * self.canonical.diagonal(x)


class SymmetricAttention(GaussianProcessAttention):
    r"""Base of both forms of SGPA: one map and one kernel :math:`a^2\kappa(z, z')` for queries and keys."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: str,
        initial_outputscale: float,
        sequence_weight: float,
        dropout: float,
    ) -> None:
        if kernel not in _KERNELS:
            raise ValueError(f"kernel: expected one of {_KERNELS}, got {kernel!r}")
        if not initial_outputscale > 0:
            raise ValueError(f"initial_outputscale: expected a positive number, got {initial_outputscale!r}")
        if not sequence_weight >= 0:
            raise ValueError(f"sequence_weight: expected at least 0, got {sequence_weight!r}")
        super().__init__(embed_dim, num_heads, kernel=kernel, processes=("key", "value"), dropout=dropout)
        self.sequence_weight = sequence_weight
        self.log_outputscale = nn.Parameter(torch.full((num_heads,), float(initial_outputscale)).log())
        if kernel == "exponential":  # start at a diagonal of e: at unit variance it would be exp(√s)
            with torch.no_grad():
                self.in_proj.weight[:embed_dim] *= self.head_dim**-0.25
        self.register_added_loss_term("kl")

    @property
    def kernel(self) -> HeadKernel:
        """The kernel with the current variances."""
        return HeadKernel(self.canonical, self.log_outputscale.exp())

    def _wants_loss(self) -> bool:
        return self.training and self.sequence_weight > 0

    def _add_divergence(self, divergence: Tensor) -> None:
        """Update the loss term by the sequences' divergence ``(*batch, h)``: sum over heads, mean over the batch."""
        self._add_loss("kl", self.sequence_weight * divergence.sum(-1).mean(), "kl")


class SGPAttention(SymmetricAttention):
    r"""Attention as a sparse variational Gaussian process whose inducing inputs are the keys (decoupled SGPA).

    Queries and keys share one map and one kernel :math:`a^2\kappa(z, z')`, whose lengthscales are part of the map.
    Values are variational parameters, so the mean is kernel attention, corrected by m global keys :math:`\beta`, which
    carry the covariance:

    .. math:: K_{qk}V + T_q^\top(w - T_kV), \quad K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q, \qquad
        T = L_\beta^{-1}K_{\beta\cdot}

    The divergence has two parts: that of the global variables (``variational_strategy``, divided by the size of the
    data set) and that of each sequence's values (a loss term of kind "kl"). Cost: O(n² s + n m² s) per head.

    Args:
        num_inducing: m, number of global keys.
        inducing: "own", a learned set in this layer's input space, or "travel", a set that
            :class:`~cgp.attention.shared_inducing.SharedInducingPoints` passes through the layers below (as in the
            paper).
        kernel: "rbf" or "exponential" (of the scaled dot product).
        initial_outputscale: initial value of :math:`a^2`, learned per head.
        sequence_weight: weight of the sequences' divergence. At 1 the loss is the evidence lower bound, in which one
            label rarely outweighs the divergence of the values of a whole sequence, and training may drive attention to
            zero; see the note on training SGPA.

    Raises:
        ValueError: if a size is not positive or a string is not one of the listed values.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023),
        https://arxiv.org/abs/2303.02444.

    Example:
        >>> block = SGPAttention(8, 2, num_inducing=4).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_inducing: int = 16,
        inducing: str = "own",
        kernel: str = "rbf",
        initial_outputscale: float = 0.3,
        sequence_weight: float = 1e-3,
        dropout: float = 0.0,
    ) -> None:
        if inducing not in _INDUCING:
            raise ValueError(f"inducing: expected one of {_INDUCING}, got {inducing!r}")
        scales = {"initial_outputscale": initial_outputscale, "sequence_weight": sequence_weight}
        super().__init__(embed_dim, num_heads, kernel=kernel, dropout=dropout, **scales)
        self.num_inducing, self.inducing = num_inducing, inducing
        batch = torch.Size([num_heads, self.head_dim])
        self.variational_strategy = InducingVariables(num_inducing, batch, initial_scale=_INITIAL_SCALE)
        points = nn.Parameter(torch.randn(num_inducing, embed_dim)) if inducing == "own" else None
        self.register_parameter("inducing_points", points)
        self._travelled: GlobalKeys | None = None  # during a forward pass of SharedInducingPoints
        self._carries_points = False

    def forward(self, query: Tensor, *args: Any, **options: Any) -> Tensor:
        """Attend as every block does; while global keys travel through the block, return its posterior mean there."""
        return self._carry(query) if self._carries_points else super().forward(query, *args, **options)

    def gaussian(self, tokens: AttentionInputs) -> ColumnGaussian:
        """Posterior, with one covariance per column."""
        kernel, keys, variables = self.kernel, self.global_keys(), self.variational_strategy
        is_self = tokens.q is tokens.k
        values = mask_tokens(tokens.v, tokens.key_padding)
        features = kernel.features(keys.points, keys.whitening, tokens.q)
        of_keys = features if is_self else kernel.features(keys.points, keys.whitening, tokens.k)
        gathered = product(of_keys, values)
        attended = kernel.attend(tokens.q, None if is_self else tokens.k, values)

        def divergence() -> Tensor:
            by_keys = attended if is_self else kernel.attend(tokens.k, None, values)
            return sgpa.decoupled_divergence(values, by_keys, gathered)

        posterior = sgpa.decoupled_posterior(
            sgpa.decoupled_mean(attended, features, gathered, variables.variational_mean.to(values.dtype).mT),
            features,
            variables.root.to(values.dtype),
            kernel.diagonal(tokens.q),
            partial(_residual_root, kernel, keys, tokens.q, tokens.query_padding),
            tokens.query_padding,
        )
        posterior.loss = divergence
        return posterior

    def global_keys(self) -> GlobalKeys:
        """The projected global keys and their factors: travelling, frozen, or computed from the block's points."""
        if self._travelled is not None:
            return self._travelled
        if self._frozen:
            return GlobalKeys(**self._frozen)
        if self.inducing_points is None:
            raise ValueError(
                "inducing: 'travel' expects the model inside SharedInducingPoints, which brings the global keys; "
                "got none"
            )
        return self._locate(self.inducing_points)

    def weight_factors(self) -> dict[str, Tensor]:
        """The projected global keys and their factors; empty if the keys travel and have not arrived."""
        return {} if self.inducing_points is None and self._travelled is None else self.global_keys()._asdict()

    def _carry(self, points: Tensor) -> Tensor:
        # The posterior mean at the global keys is K_bb v_b: it depends on weights, not on any sequence.
        self._travelled = keys = self._locate(points)
        mean = keys.factor @ self.variational_strategy.variational_mean.to(keys.factor.dtype).mT
        return self.merge(mean, points.dtype)

    def _locate(self, points: Tensor) -> GlobalKeys:
        """Project points of the input space by the keys' map and factorise their covariance."""
        with full_precision(points.device):
            projected = self.in_proj(points.to(self.in_proj.weight.dtype))  # "key" comes first
            located = self._split(projected[..., : self.embed_dim])
            return sgpa.global_keys(located, self.kernel.gram(located))

    def _add_losses(self, posterior: ColumnGaussian, tokens: AttentionInputs) -> None:
        assert posterior.loss is not None
        self._add_divergence(posterior.loss())


def _residual_root(kernel: HeadKernel, keys: GlobalKeys, queries: Tensor, padding: Tensor | None) -> Tensor:
    """Root of the covariance that the global keys leave unexplained, for joint draws: one n × n Cholesky per head."""
    with full_precision(queries.device):
        features = solve_lower(keys.factor, kernel.gram(keys.points, queries))
        return sgpa.unexplained_root(kernel.gram(queries), features, padding)


_INITIAL_PRECISION = 0.3**-2


class StandardSGPAttention(SymmetricAttention):
    r"""Attention as a sparse variational Gaussian process on the keys of the sequence (standard SGPA), O(n³) per head.

    .. math:: K_{qk}V, \qquad K_{qq} + K_{qk}(K_{kk}^{-1}SK_{kk}^{-1} - K_{kk}^{-1})K_{kq}, \qquad
        S = (K_{kk}^{-1} + \Pi)^{-1}

    The precision :math:`\Pi` of each token is a function of its key, so S does not depend on the order of the tokens
    (the paper's triangular S does). The divergence is a loss term of kind "kl". The arguments are those of
    :class:`~cgp.attention.sgpa.SGPAttention`.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023).

    Example:
        >>> import torch
        >>> StandardSGPAttention(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    weighs_values = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kernel: str = "rbf",
        initial_outputscale: float = 0.3,
        sequence_weight: float = 1e-3,
        dropout: float = 0.0,
    ) -> None:
        scales = {"initial_outputscale": initial_outputscale, "sequence_weight": sequence_weight}
        super().__init__(embed_dim, num_heads, kernel=kernel, dropout=dropout, **scales)
        start = self.log_outputscale.new_full((num_heads, 1), _INITIAL_PRECISION).expm1().log()  # inverse softplus
        self.precision_offset = nn.Parameter(start)
        self.precision_map = nn.Parameter(start.new_zeros(num_heads, self.head_dim, 1))

    def gaussian(self, tokens: AttentionInputs) -> StandardPosterior:
        """Posterior, lazily evaluated: the mean is kernel attention."""
        kernel, is_self = self.kernel, tokens.q is tokens.k
        K_qk = kernel.gram(tokens.q, None if is_self else tokens.k)
        offset, slope = (x.to(K_qk.dtype) for x in (self.precision_offset, self.precision_map))
        return StandardPosterior(
            K_qk,
            K_qk if is_self else kernel.gram(tokens.k),
            tokens.v,
            nn.functional.softplus((tokens.k @ slope)[..., 0] + offset),
            kernel.diagonal(tokens.q),
            partial(kernel.gram, tokens.q),
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
        )

    def _add_losses(self, posterior: StandardPosterior, tokens: AttentionInputs) -> None:
        self._add_divergence(posterior.divergence)
