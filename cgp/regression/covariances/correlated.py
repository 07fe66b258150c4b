"""Structures by loadings, lengthscales and shifts: independent, coregionalised, shared, shifted and affine outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel

from cgp.spelling import meant

from .neighbours import start_at_correlation
from .rows import Loadings, row_covariance
from .structure import Structure, check_count, count

if TYPE_CHECKING:
    from cgp.regression.observations import Observations

__all__ = [
    "STRUCTURES",
    "Affine",
    "Coregionalised",
    "Correlated",
    "Independent",
    "Shared",
    "Shifted",
    "SmoothAndRough",
    "correlated_covariance",
]

_ROUGH, _ROUGH_STEPS, _ROUGH_SHARE = "matern12", 0.5, 0.05  # kernel, initial lengthscale, and share of the variance


@dataclass(frozen=True)
class Correlated(Structure):
    r"""The outputs share Q independent sets of canonical processes, whose lengthscales start a factor of three apart.

    .. math:: z_p(x) = \sum_{q=1}^{Q} a_{pq}^\top z_o^{(q)}\big(x \odot w_{pq} + b_{pq}\big)

    Args:
        num_components: number Q of components.

    Attributes:
        ratios: whether outputs have lengthscales w of their own.
        shifts: whether outputs have shifts b of their own.
        correlated: whether the loadings a of an output have entries for other outputs' processes.
        shared: whether these are for one more process that all outputs share, in one more component: in a single
            component it would be a special case of coregionalised outputs.
    """

    ratios: ClassVar[bool] = False
    shifts: ClassVar[bool] = False
    correlated: ClassVar[bool] = True
    shared: ClassVar[bool] = False
    num_components: int = count(1)

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows."""
        return self.between(observations.num_outputs, observations.input_dim, kernel).double()

    def start(self, covariance: AdditiveKernel, observations: Observations) -> None:
        """Let the outputs start as correlated as neighbouring observations are."""
        shown = observations.with_bins
        start_at_correlation(covariance, shown.rows, shown.targets)

    def between(self, num_processes: int, input_dim: int, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of so many outputs over so many inputs."""
        options = {"correlated": self.correlated, "shared": self.shared}
        loadings = [Loadings(num_processes, **options) for _ in range(self.num_components + self.shared)]
        return row_covariance(kernel, num_processes, input_dim, loadings, ratios=self.ratios, shifts=self.shifts)


@dataclass(frozen=True)
class Independent(Correlated):
    """No correlations; lengthscales of each output's own."""

    name = "independent"
    ratios, correlated = True, False


@dataclass(frozen=True)
class Coregionalised(Correlated):
    """Correlated outputs with one set of lengthscales."""

    name = "coregionalised"


@dataclass(frozen=True)
class Shared(Correlated):
    """A process that all outputs share, and one of each output's own, in ``num_components + 1`` components."""

    name = "shared"
    shared = True


@dataclass(frozen=True)
class Shifted(Correlated):
    """Correlated outputs with one set of lengthscales, shifted against each other."""

    name = "shifted"
    shifts = True


@dataclass(frozen=True)
class Affine(Correlated):
    """Correlated outputs with lengthscales and shifts of each one's own."""

    name = "affine"
    ratios = shifts = True


@dataclass(frozen=True)
class SmoothAndRough(Correlated):
    r"""Correlated outputs as the sum of smooth processes and rough ones, each with loadings of their own, of one input.

    .. math:: z_p(x) = a_p^\top z_o(x / \ell) + b_p^\top u_o(x / s)

    u are Matérn 1/2 processes, whose s starts at half a step, next to noise that outputs share: what two series have in
    common from one month to the next need not be what their trends have in common. "auto" takes it where an output has
    sums only, as its months could follow no one's noise otherwise.
    """

    name = "rough"

    def obstacle(self, observations: Observations, kernel: str | Kernel | None, num_inducing: int | None) -> str | None:
        """Refuse several columns of inputs."""
        return None if observations.input_dim == 1 else f"X: expected one column, got {observations.input_dim}"

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows, smooth components first."""
        count = observations.num_outputs
        smooth = self.between(count, 1, kernel)
        rough = row_covariance(_ROUGH, count, 1, [Loadings(count)])
        steps = observations.grid.inputs[:, 0].diff()
        with torch.no_grad():
            for component in rough.kernels:
                component.input_maps.log_scales -= np.log(_ROUGH_STEPS * float(steps.median()))
                component.loadings.log_scales += 0.5 * np.log(_ROUGH_SHARE)
        return AdditiveKernel(*smooth.kernels, *rough.kernels).double()


STRUCTURES = tuple(kind.name for kind in (Independent, Coregionalised, Shared, Shifted, Affine))


def correlated_covariance(
    num_processes: int,
    input_dim: int,
    *,
    kernel: str | Kernel = "rbf",
    num_components: int = 1,
    structure: str = "affine",
) -> AdditiveKernel:
    r"""The covariance of P processes that share Q independent sets of canonical processes.

    Args:
        num_processes: number P of processes.
        input_dim: dimension d of the inputs.
        kernel: the canonical covariance: "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel.
        num_components: number Q of components.
        structure: "independent", "coregionalised", "shared", "shifted" or "affine" (:class:`Correlated` says what they
            are).

    Returns:
        A sum of kernels, one per component, of rows whose last column is the process.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> kernel = correlated_covariance(2, 1)
        >>> kernel(torch.tensor([[0.3, 0.0], [0.5, 1.0]])).shape
        torch.Size([2, 2])
    """
    for name, value in (("num_processes", num_processes), ("input_dim", input_dim), ("num_components", num_components)):
        check_count(name, value, 1)
    if structure not in STRUCTURES:
        raise ValueError(f"structure: expected one of {STRUCTURES}, got {structure!r}{meant([structure], STRUCTURES)}")
    kind = type(Correlated.of(structure))
    return kind(num_components).between(num_processes, input_dim, kernel)
