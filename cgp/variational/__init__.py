"""Variational distributions and strategies: how a posterior over inducing variables becomes one over functions."""

from .column_normal import column_normal
from .decoupled_sgpa import DecoupledSGPAVariationalStrategy
from .dtc import DTCVariationalStrategy
from .eigen_variables import EigenVariables
from .inducing_variables import InducingVariables, positive_triangle
from .kernel_eigen import KernelEigenVariationalStrategy
from .sgpa import SGPAVariationalStrategy

__all__ = [
    "DTCVariationalStrategy",
    "DecoupledSGPAVariationalStrategy",
    "EigenVariables",
    "InducingVariables",
    "KernelEigenVariationalStrategy",
    "SGPAVariationalStrategy",
    "column_normal",
    "positive_triangle",
]
