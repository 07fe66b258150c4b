"""Variational distributions and strategies: how a posterior over inducing variables becomes one over functions."""

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
