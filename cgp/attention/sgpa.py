"""Attention by a sparse variational Gaussian process with one map for queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor, nn

from cgp.functional.column_gaussians import ColumnGaussian, ColumnMarginals
from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.sparse_gp import GlobalKeys, global_keys
from cgp.functional.sparse_gp_standard import StandardTerms
from cgp.operators import LazyMultivariateNormal
from cgp.variational import InducingVariables

from .gaussian_process import GaussianProcessAttention
from .head_kernel import HeadKernel
from .inputs import AttentionInputs, full_precision
from .sgpa_decoupled import DecoupledForm, DecoupledTerms
from .sgpa_standard import StandardForm

__all__ = ["SGPAttention"]

_CHOICES = {
    "mode": ("decoupled", "standard"),
    "inducing": ("own", "travel"),
    "kernel": ("rbf", "exponential"),
}


class SGPAttention(GaussianProcessAttention):
    r"""Attention as a sparse variational Gaussian process whose inducing inputs are the keys (SGPA).

    Queries and keys share one map and one kernel :math:`a^2\kappa(z, z')`, whose lengthscales live in the map. Values
    are variational parameters, so the mean is kernel attention.

    .. math:: \text{decoupled:}\quad & K_{qk}V + T_q^\top(w - T_kV), \quad
        K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q \\
        \text{standard:}\quad & K_{qk}V, \quad K_{qq} + K_{qk}(K_{kk}^{-1}SK_{kk}^{-1} - K_{kk}^{-1})K_{kq}

    with :math:`T = L_\beta^{-1}K_{\beta\cdot}` of m global keys :math:`\beta`. The divergence has two channels: of the
    global variables (``variational_strategy``, divided by the size of the data set) and of each sequence's values
    (a loss term of kind "kl").

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        mode: "decoupled" (global keys carry the covariance) or "standard" (the sequence's own keys carry it; O(n³)).
        num_inducing: m, global keys of the decoupled mode.
        inducing: whose the global keys are: "own", a learned set in this layer's input space, or "travel", a set that
            :class:`~cgp.attention.shared_inducing.SharedInducingPoints` carries through the layers below (the paper's).
        kernel: "rbf" or "exponential" (of the scaled dot product).
        amortisation: how the standard mode finds S: "sites" or "triangular" (the paper's; it depends on the order of
            the tokens), see :class:`~cgp.attention.sgpa_standard.StandardForm`.
        initial_outputscale: :math:`a^2` to start from; one is learned a head.
        initial_scale: standard deviation of the whitened inducing variables to start from.
        sequence_weight: weight of the sequences' own divergence; one is the evidence lower bound, under which one
            label rarely pays for the values of a whole sequence and attention may switch itself off; see the note on
            training SGPA.
        **options: ``bias``, ``device``, ``dtype``.

    Raises:
        ValueError: if a size is not positive or a string is not of its closed set.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023).

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
        mode: str = "decoupled",
        num_inducing: int = 16,
        inducing: str = "own",
        kernel: str = "rbf",
        amortisation: str = "sites",
        initial_outputscale: float = 0.3,
        initial_scale: float = 0.3,
        sequence_weight: float = 1.0,
        **options: Any,
    ) -> None:
        if not sequence_weight >= 0:
            raise ValueError(f"sequence_weight: expected at least 0, got {sequence_weight!r}")
        for name, value in (("mode", mode), ("inducing", inducing), ("kernel", kernel)):
            if value not in _CHOICES[name]:
                raise ValueError(f"{name}: expected one of {_CHOICES[name]}, got {value!r}")
        super().__init__(embed_dim, num_heads, kernel=kernel, processes=("key", "value"), **options)
        factory: dict[str, Any] = {"device": self.in_proj.weight.device, "dtype": self.in_proj.weight.dtype}
        self.mode, self.inducing, self.num_inducing = mode, inducing, num_inducing
        self.sequence_weight = sequence_weight
        self.kernel = HeadKernel(self.canonical, num_heads, initial_outputscale=initial_outputscale, **factory)
        self._shrink_exponential_map()
        form: dict[str, Any] = {"initial_scale": initial_scale, **factory}
        self.form: DecoupledForm | StandardForm
        if mode == "decoupled":
            self.form = DecoupledForm(num_inducing, num_heads, self.head_dim, **form)
        else:
            self.form = StandardForm(num_heads, self.head_dim, amortisation=amortisation, **form)
        owns_points = mode == "decoupled" and inducing == "own"
        points = nn.Parameter(torch.randn(num_inducing, embed_dim, **factory)) if owns_points else None
        self.register_parameter("inducing_points", points)
        self._travelled: GlobalKeys | None = None  # for the time of a forward pass of SharedInducingPoints
        self._carries_points = False
        self.register_added_loss_term("kl")

    @property
    def variational_strategy(self) -> InducingVariables | None:
        """The global inducing variables, whose divergence the whole data set shares; None in the standard mode."""
        return self.form.variables if isinstance(self.form, DecoupledForm) else None

    def forward(self, query: Tensor, *args: Any, **options: Any) -> Tensor:
        """Attend, as every block does; while global keys travel through it, pass them on by their mean.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            *args: key and value, as for :meth:`~cgp.attention.base.Attention.forward`.
            **options: masks, likewise.

        Returns:
            AttentionInputs ``(*batch, Nq, d)``; ``(S, *batch, Nq, d)`` if ``num_samples`` is S and the block draws.
        """
        return self._carry(query) if self._carries_points else super().forward(query, *args, **options)

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean alone.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        return self.form.mean(tokens, self.kernel, self.global_keys())  # type: ignore[arg-type]

    def marginals(self, tokens: AttentionInputs) -> ColumnMarginals | MarginalGaussian:  # type: ignore[override]
        """Mean and variances; the decoupled form has a variance a column.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)`` and variances.
        """
        return self.form.marginals(self._terms(tokens), tokens, self.kernel)  # type: ignore[arg-type]

    def joint(self, tokens: AttentionInputs) -> ColumnGaussian | DenseGaussian:  # type: ignore[override]
        """Posterior with its covariance over the queries; the decoupled form has one a column.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)`` and covariances.
        """
        return self.form.joint(self._terms(tokens), tokens, self.kernel)  # type: ignore[arg-type]

    def gaussian(self, tokens: AttentionInputs) -> Any:
        """The posterior that ``sampling`` needs; registers the sequences' divergence in training.

        Args:
            tokens: the projected tokens.

        Returns:
            Joint if draws are joint, marginals otherwise.
        """
        terms = self._terms(tokens)
        if self._wants_loss():
            self._add_loss("kl", self.sequence_weight * terms.divergence.sum(-1).mean(), "kl")
        posterior = self.form.joint if self.sampling == "joint" else self.form.marginals
        return posterior(terms, tokens, self.kernel)  # type: ignore[arg-type]

    def global_keys(self) -> GlobalKeys | None:
        """The projected global keys and their factor, from weights alone; None in the standard mode.

        Returns:
            Points ``(h, m, s)`` and factors ``(h, m, m)``: those that travel or were frozen, else of the block's own
            inducing points.

        Raises:
            ValueError: if the keys are to travel and none have come.
        """
        if self.mode == "standard" or self._travelled is not None:
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
        """The projected global keys and their factors.

        Returns:
            By name; empty in the standard mode, and where the keys travel but none have come.
        """
        if self.inducing_points is None and self._travelled is None:
            return {}
        keys = self.global_keys()
        return {} if keys is None else keys._asdict()

    def _carry(self, points: Tensor) -> Tensor:
        # The posterior mean at the global keys is K_bb v_b: no sequence's values move it, weights alone do.
        self._travelled = keys = self._locate(points)
        assert isinstance(self.form, DecoupledForm)
        mean = keys.factor @ self.form.variables.variational_mean.to(keys.factor.dtype).mT
        return self.merge(mean, points.dtype)

    def _locate(self, points: Tensor) -> GlobalKeys:
        """Points of the input space through the keys' map, with the factor of their covariance."""
        with full_precision(points.device):
            projected = self.in_proj(points.to(self.in_proj.weight.dtype))  # "key" comes first
            located = self._split(projected[..., : self.embed_dim])
            return global_keys(located, self.kernel.gram(located))

    def _terms(self, tokens: AttentionInputs) -> DecoupledTerms | StandardTerms:
        return self.form.terms(tokens, self.kernel, self.global_keys())  # type: ignore[arg-type]

    def _distribution(self, tokens: AttentionInputs) -> MultivariateNormal:
        """In the decoupled form each channel has a covariance of its own."""
        terms = self._terms(tokens)
        if isinstance(self.form, DecoupledForm) and isinstance(terms, DecoupledTerms):
            marginals = self.form.marginals(terms, tokens, self.kernel)
            build = self.form.later(terms, tokens, self.kernel)
            return LazyMultivariateNormal(marginals.mean.mT, build, variance=marginals.variances.mT)
        return super()._distribution(tokens)

    def _wants_loss(self) -> bool:
        return self.training

    def _shrink_exponential_map(self) -> None:
        """Start the exponential kernel at a diagonal of e: at unit variance its diagonal would be exp(√s)."""
        if not self.canonical.stationary:
            with torch.no_grad():
                self.in_proj.weight[: self.embed_dim] *= self.head_dim**-0.25
