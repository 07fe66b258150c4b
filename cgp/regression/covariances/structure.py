"""What a structure is: how outputs are related, under a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gpytorch.kernels import AdditiveKernel, Kernel

from cgp.regression.named import Named, count
from cgp.regression.observations import Observations

__all__ = ["Auto", "Structure"]


@dataclass(frozen=True)
class Structure(Named):
    """How outputs are related.

    One of your own is a subclass with a ``name`` and :meth:`covariance`, a frozen dataclass if it has options. Once it
    is imported, it is one of the structures by its name, in files too.

    Attributes:
        kernel: name of the canonical covariance where the user gives none.
        inference: name of the only inference that fits it; None where every other does.

    Example:
        >>> class Copies(Structure):
        ...     name = "copies"
        ...
        ...     def covariance(self, observations, kernel): ...
        >>> Structure.of("copies")
        Copies()
    """

    kernel: ClassVar[str] = "rbf"
    inference: ClassVar[str | None] = None

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows (input, output), before a fit.

        Args:
            observations: standardised, which say how many outputs and inputs there are.
            kernel: the canonical covariance, by its name or as a GPyTorch kernel.

        Returns:
            A sum of :class:`.RowKernel`, in float64.
        """
        raise NotImplementedError

    def start(self, covariance: AdditiveKernel, observations: Observations) -> None:
        """Set initial values that observations suggest; there are none unless a structure says so."""

    def resolved(self, observations: Observations) -> Structure:
        """The same structure, without options that observations in the user's units decide."""
        return self

    def variants(self, observations: Observations) -> Mapping[str, Structure]:
        """What is fitted for this structure, by a label each; the best of several by the information criterion."""
        return {self.name: self}

    def obstacle(self, observations: Observations, kernel: str | Kernel | None, num_inducing: int | None) -> str | None:
        """What is in the way of a fit, as "argument: expected …", or None."""
        return None


@dataclass(frozen=True)
class Auto(Structure):
    """Several structures are fitted and averaged, or that of long series is taken.

    Args:
        num_components: of each; None is 1, and for "factors" the number that the criterion selects.
    """

    name = "auto"
    num_components: int | None = count(None)
