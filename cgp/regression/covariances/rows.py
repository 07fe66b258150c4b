"""The covariance of a regression: sums of correlated views of independent canonical processes."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import reduce

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor, nn

from cgp.kernels.base_kernels import base_gram, base_kernel_from
from cgp.kernels.canonical_kernel import (
    CanonicalKernel,
    CanonicalPoints,
    PriorModule,
    make_priors_picklable,
    process_numbers,
    rows_of,
)

__all__ = [
    "COMPONENT_STEP",
    "FactorLoadings",
    "InputMaps",
    "Loadings",
    "ProcessLoadings",
    "Relations",
    "RowKernel",
    "check_covariance",
    "correlation_of",
    "dense_covariance",
    "grid_covariances",
    "has_common_inputs",
    "is_independent",
    "principal_components",
    "prior_variance",
    "row_covariance",
]

_PART = 0.1  # unit in which parameters count relations

COMPONENT_STEP = 3.0  # between the lengthscales at which components start


class InputMaps(PriorModule):
    r"""Diagonal affine maps of P processes into the inputs of one canonical process.

    .. math:: (x, p) \mapsto x \odot w_0 \odot r_p + b_p, \qquad r_0 = 1,\; b_0 = 0

    The first process has the inverse lengthscales w_0; a later one has them times its ratios r and is shifted by b.
    Priors, for inputs of unit variance: :math:`\log w_0 \sim N(-\tfrac12\log d, 3)`, :math:`\log r \sim N(0, 1/4)`,
    :math:`b \sim N(0, 0.3^2)`, in units of the lengthscale. Processes are thus expected to vary about as fast and at
    about the same place, and one with few observations takes its lengthscales from the first.

    Args:
        num_processes: number P of processes.
        input_dim: dimension d of the inputs.
        ratios: whether later processes have r.
        shifts: whether later processes have b.

    Source:
        CGPT equations (13)-(16).
    """

    def __init__(self, num_processes: int, input_dim: int, *, ratios: bool = True, shifts: bool = True) -> None:
        super().__init__()
        later = num_processes - 1
        centre = -0.5 * math.log(input_dim)
        self.register_normal("log_scales", torch.full((input_dim,), centre), centre, math.sqrt(3.0))
        self.register_normal("log_ratios", torch.zeros(later * ratios, input_dim), 0.0, 0.5)
        self.register_normal("shifts", torch.zeros(later * shifts, input_dim), 0.0, 0.3)
        self.num_processes = num_processes

    @property
    def scales(self) -> Tensor:
        """Inverse lengthscales of the first process, ``(*batch, d)``."""
        return self.log_scales.exp()

    @property
    def all_scales(self) -> Tensor:
        """Inverse lengthscales of every process, ``(*batch, P, d)``."""
        scales = self.scales.unsqueeze(-2)
        if self.log_ratios is None:
            return scales.expand(*scales.shape[:-2], self.num_processes, -1)
        return scales * _after_zeros(self.log_ratios).exp()

    @property
    def all_shifts(self) -> Tensor | None:
        """Shifts of every process, ``(*batch, P, d)``, or None where there are none."""
        return None if self.shifts is None else _after_zeros(self.shifts)

    def forward(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Inputs ``(*batch, n, d)`` of the processes of these numbers ``(*batch, n)``, in the canonical space."""
        mapped = x * self.scales.unsqueeze(-2)
        if self.log_ratios is not None:
            mapped = mapped * rows_of(_after_zeros(self.log_ratios), numbers).exp()
        return mapped if self.shifts is None else mapped + rows_of(_after_zeros(self.shifts), numbers)


def _after_zeros(later: Tensor) -> Tensor:
    """Values of all processes from those of the later ones."""
    return nn.functional.pad(later, (0, 0, 1, 0))


class ProcessLoadings(PriorModule):
    """Base class of loadings: a call returns those of all processes, ``(*batch, P, R)``.

    Attributes:
        correlated: whether they have partial correlations, which can be set to start with.
        shared: whether all processes load a further one, which none of them owns.
    """

    correlated, shared = False, False


class Loadings(ProcessLoadings):
    r"""How strongly each process varies, and how correlated they are: a factor of their covariance matrix.

    .. math:: a_p = \sigma_p L_p, \qquad L_{pr} = \tanh(c_{pr}) \prod_{s<r} \operatorname{sech}(c_{ps}), \quad
        L_{pp} = \prod_{s<p} \operatorname{sech}(c_{ps})

    L is the Cholesky factor of a correlation matrix: any of them, by its partial correlations. For "shared" it is that
    of processes whose only correlations are those with one more process, which no output observes:
    :math:`L_p = (\tanh c_p,\; \operatorname{sech}(c_p)\, e_p)`. Priors, for outputs of unit variance:
    :math:`\log\sigma \sim N(0, 4)`, :math:`c \sim N(0, 1)`.

    Args:
        num_processes: number P of processes.
        correlated: whether there are c, P (P - 1) / 2 of them; without, L is the identity.
        shared: whether the only correlations are those with one more process; there are P of c then.

    Source:
        Lewandowski, Kurowicka & Joe (2009), Generating random correlation matrices based on vines and extended onion
        method.
    """

    def __init__(self, num_processes: int, *, correlated: bool = True, shared: bool = False) -> None:
        super().__init__()
        self.num_processes, self.shared = num_processes, shared
        later = correlated * (num_processes - 1)
        count = num_processes * min(later, 1) if self.shared else num_processes * later // 2
        self.register_normal("log_scales", torch.zeros(num_processes), 0.0, 2.0)
        self.register_normal("partials", torch.zeros(count), 0.0, 1.0)
        self.correlated = self.partials is not None

    @property
    def scales(self) -> Tensor:
        """Standard deviation of each process, ``(*batch, P)``."""
        return self.log_scales.exp()

    def set_correlation(self, correlation: Tensor) -> None:
        """Take the partial correlations from a positive definite correlation matrix ``(P, P)``."""
        if self.shared:  # which can represent only the first principal component
            values, vectors = torch.linalg.eigh(correlation)
            common = vectors[:, -1] * values[-1].sqrt()
            self.initialize(partials=common.clamp(-0.95, 0.95).atanh().to(self.partials))
            return
        remaining = torch.linalg.cholesky(correlation)
        partials = torch.zeros_like(remaining)
        remaining_scale = torch.ones_like(remaining[:, 0])
        for column in range(self.num_processes):
            partials[:, column] = (remaining[:, column] / remaining_scale).clamp(-0.999, 0.999).atanh()
            remaining_scale = remaining_scale / partials[:, column].cosh()
        below = torch.ones_like(partials).tril(-1).bool()
        self.initialize(partials=partials[below].to(self.partials))

    def forward(self) -> Tensor:
        """The loadings of all processes, ``(*batch, P, P)``, lower triangular, or ``(*batch, P, P + 1)`` if shared."""
        size = self.num_processes
        scales = self.scales.unsqueeze(-1)
        if self.partials is None:
            return torch.diag_embed(self.scales)
        if self.shared:
            specific = torch.diag_embed(self.partials.cosh().reciprocal())
            return scales * torch.cat([self.partials.tanh().unsqueeze(-1), specific], dim=-1)
        below = torch.ones(size, size, dtype=torch.bool, device=scales.device).tril(-1)
        batch = self.partials.shape[:-1]
        c = scales.new_zeros(*batch, size, size).masked_scatter(below.expand(*batch, -1, -1), self.partials)
        remaining = nn.functional.pad(c.cosh().reciprocal().cumprod(-1)[..., :-1], (1, 0), value=1.0)
        diagonal = torch.eye(size, dtype=c.dtype, device=c.device)
        return scales * (c.tanh() + diagonal) * remaining.tril()


class Relations(PriorModule):
    r"""How each output depends on the preceding ones, in all components of a covariance alike.

    .. math:: B = I + (b_{pq})_{q<p}, \qquad b_{pq} \sim N(0, 1)

    What short time scales tell of an output that was observed for a short while is thus known of long ones. Parameters
    count b in tenths: a step of one length moves b less than other parameters, and it stays nearer to a start that
    knows of long time scales what windows do not.

    Args:
        num_processes: number P of outputs.

    Source:
        Pourahmadi (1999), Joint mean-covariance models with applications to longitudinal data, on the factor B.
    """

    def __init__(self, num_processes: int) -> None:
        super().__init__()
        self.register_normal("parts", torch.zeros(num_processes, num_processes).double(), 0.0, 1.0 / _PART)

    def forward(self) -> Tensor:
        """B, unit lower triangular, ``(*batch, P, P)``."""
        return _PART * self.parts.tril(-1) + torch.eye(self.parts.shape[-1], dtype=self.parts.dtype)

    def set_covariance(self, covariance: Tensor) -> Tensor:
        r"""Take B from a covariance :math:`\Sigma = B\,\mathrm{diag}(d)\,B^\top` ``(P, P)``; returns d, ``(P,)``."""
        root = torch.linalg.cholesky(covariance)
        scales = root.diagonal()
        self.initialize(parts=(root / scales).tril(-1) / _PART)
        return scales.square()


class FactorLoadings(ProcessLoadings):
    r"""Loadings of R processes that all outputs share, and of a separate process for each output where there are these.

    .. math:: a_p = \sum_{q \le p} B_{pq} (\lambda_{q1}, \dots, \lambda_{qR},\; \omega_q e_q)

    Priors, for outputs of unit variance: :math:`\lambda \sim N(0, 1)`, :math:`\log\omega \sim N(-2, 4)`.

    Args:
        num_processes: number P of processes.
        num_factors: number R of factors; 0 for independent processes.
        separate: whether outputs have processes of their own.
        relations: B, which other loadings may have, too; None is the identity.

    Source:
        Teh, Seeger & Jordan (2005), Semiparametric latent factor models.
    """

    def __init__(
        self, num_processes: int, num_factors: int, *, separate: bool = True, relations: Relations | None = None
    ) -> None:
        super().__init__()
        self.num_processes, self.relations = num_processes, relations
        initial = torch.zeros if separate else torch.ones
        self.register_normal("factors", initial(num_processes, num_factors), 0.0, 1.0)
        self.register_normal("log_scales", torch.full((num_processes * separate,), -2.0), -2.0, 2.0)

    def forward(self) -> Tensor:
        """The loadings of all processes, ``(*batch, P, R + P)``, or ``(*batch, P, R)``."""
        parts = [] if self.factors is None else [self.factors]
        parts += [] if self.log_scales is None else [torch.diag_embed(self.log_scales.exp())]
        loadings = torch.cat(parts, dim=-1)
        return loadings if self.relations is None else self.relations() @ loadings


class RowKernel(CanonicalKernel):
    r"""The covariance of rows (input, process) that see independent copies of one canonical process.

    .. math:: k\big((x, p), (x', r)\big) = a_p^\top a_r\; \kappa(x \odot w_p + b_p,\; x' \odot w_r + b_r)

    With equal w and without b it is the intrinsic model of
    coregionalisation; with a diagonal a the processes are independent, each with lengthscales of its own; with parallel
    a they are views of one canonical process.

    Args:
        kernel: name of the canonical covariance, or a GPyTorch kernel.
        num_processes: number P of processes.
        input_dim: dimension d of the inputs.
        ratios: whether processes have lengthscales of their own.
        shifts: whether processes are shifted against the first.
        loadings: of the processes; None is :class:`Loadings`.

    Source:
        CGPT equations (13)-(16); Álvarez, Rosasco & Lawrence (2012), Kernels for vector-valued functions, section 4.
    """

    def __init__(
        self,
        kernel: str | Kernel,
        num_processes: int,
        input_dim: int,
        *,
        ratios: bool = False,
        shifts: bool = False,
        loadings: ProcessLoadings | None = None,
    ) -> None:
        super().__init__()
        self.num_processes = num_processes
        if isinstance(kernel, Kernel):
            make_priors_picklable(kernel)  # of the given kernel, which an estimator keeps, and thus of its copies
        try:
            self.covar_module = base_kernel_from(copy.deepcopy(kernel), input_dim)
        except ValueError as error:  # with the name of the argument here
            raise ValueError(str(error).removeprefix("base_")) from error
        if isinstance(kernel, str) and self.covar_module.has_lengthscale:
            self.covar_module.double().lengthscale = 1.0  # exact in float64, too
        self.input_maps = InputMaps(num_processes, input_dim, ratios=ratios, shifts=shifts)
        self.loadings = Loadings(num_processes) if loadings is None else loadings

    def inducing(self, points: Tensor) -> CanonicalPoints:
        """Inducing inputs that are rows ``(m, d + 1)``: one place has P independent copies of the canonical process."""
        return self.points(points)

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of rows ``(*batch, n, d + 1)``, the last column 0 … P-1."""
        numbers = process_numbers(x, self.num_processes, input_dim=self.input_maps.log_scales.shape[-1])
        return CanonicalPoints(self.input_maps(x[..., :-1], numbers), rows_of(self.loadings(), numbers))


def row_covariance(
    kernel: str | Kernel,
    num_processes: int,
    input_dim: int,
    loadings: Sequence[ProcessLoadings],
    *,
    ratios: bool = False,
    shifts: bool = False,
) -> AdditiveKernel:
    """A component for each of some loadings, of equal variances, with lengthscales that are a factor of three apart."""
    maps = {"ratios": ratios, "shifts": shifts}
    components = [RowKernel(kernel, num_processes, input_dim, loadings=each, **maps) for each in loadings]
    with torch.no_grad():
        for number, component in enumerate(components):
            component.input_maps.log_scales += number * torch.tensor(COMPONENT_STEP).log()
            component.loadings.log_scales -= 0.5 * torch.tensor(float(len(components))).log()
    return AdditiveKernel(*components)


def correlation_of(loadings: Tensor) -> Tensor:
    """The correlations ``(*batch, P, P)`` of loadings ``(*batch, P, R)``."""
    rows = loadings / loadings.norm(dim=-1, keepdim=True)
    return rows @ rows.mT


def principal_components(correlation: Tensor) -> Tensor:
    """The principal components of a correlation matrix ``(P, P)`` as columns, the largest first."""
    values, vectors = torch.linalg.eigh(correlation)
    return (vectors * values.clamp(min=0.0).sqrt()).flip(-1)


def check_covariance(covariance: AdditiveKernel, num_processes: int, input_dim: int) -> None:
    """Reject covariances that :func:`correlated_covariance` does not return for these sizes."""
    for component in getattr(covariance, "kernels", [covariance]):
        if not isinstance(component, RowKernel):
            raise ValueError(f"covar_module: expected what correlated_covariance gives, got {type(component).__name__}")
        sizes = (component.num_processes, component.input_maps.log_scales.shape[-1])
        if sizes != (num_processes, input_dim):
            raise ValueError(f"covar_module: expected {(num_processes, input_dim)} processes and inputs, got {sizes}")


def dense_covariance(covariance: AdditiveKernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The covariance ``(*batch, n, m)`` of rows and others, or each other, as a tensor, with gradients."""
    points = ((each, each.points(x1), None if x2 is None else each.points(x2)) for each in covariance.kernels)
    return reduce(torch.add, (component.gram(left, right) for component, left, right in points))


def grid_covariances(covariance: AdditiveKernel, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""The covariances between inputs and those between processes, whose products are the covariances of rows.

    .. math:: k\big((x, p), (x', r)\big) = \sum_c \big(A_cA_c^\top\big)_{pr}\, \kappa_c(x, x')

    The processes must have the same lengthscales and no shifts. A canonical covariance is computed once for all pairs
    of processes, so that the cost of the exponentials is negligible.

    Args:
        covariance: of C components whose processes differ in their loadings only.
        x: ``(T, d)``.

    Returns:
        ``(*batch, C, T, T)`` and ``(*batch, C, P, P)``.

    Raises:
        ValueError: if processes have lengthscales or shifts of their own.
    """
    if not all(has_common_inputs(component) for component in covariance.kernels):
        raise ValueError("covariance: expected processes with the same lengthscales and no shifts")
    grams, mixing = [], []
    for component in covariance.kernels:
        points, loadings = x * component.input_maps.scales.unsqueeze(-2), component.loadings()
        grams.append(base_gram(component.base_kernel, points, points))
        mixing.append(loadings @ loadings.mT)
    return torch.stack(grams, dim=-3), torch.stack(mixing, dim=-3)


def has_common_inputs(component: RowKernel) -> bool:
    """Whether all processes see the same canonical inputs: they have one set of lengthscales and no shifts."""
    return component.input_maps.log_ratios is None and component.input_maps.shifts is None


def is_independent(component: RowKernel) -> bool:
    """Whether the loadings of a component are diagonal by its structure."""
    return isinstance(component.loadings, Loadings) and not component.loadings.correlated


def prior_variance(covariance: AdditiveKernel, x: Tensor) -> Tensor:
    """The diagonal ``(*batch, n)`` of the covariance of rows."""
    total: Tensor = sum(component.variances(component.points(x)) for component in covariance.kernels)
    return total
