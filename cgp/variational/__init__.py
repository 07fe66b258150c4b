"""Variational distributions and strategies: from a posterior over inducing variables to one over functions."""

from .dtc import DTCVariationalStrategy
from .inducing_variables import InducingVariables
from .kernel_eigen import KernelEigenVariationalStrategy
from .sgpa import DecoupledSGPAVariationalStrategy, SGPAVariationalStrategy

__all__ = [
    "DTCVariationalStrategy",
    "DecoupledSGPAVariationalStrategy",
    "InducingVariables",
    "KernelEigenVariationalStrategy",
    "SGPAVariationalStrategy",
]
