"""GPyTorch kernels of correlated processes: scaled, mapped views of one canonical process."""

from .affine_map import AffineMap
from .base_kernels import BASE_KERNELS, check_positive_semidefinite
from .canonical_kernel import CanonicalKernel, CanonicalPoints
from .correlated_kernel import CorrelatedKernel, CrossKernel, ProcessKernel
from .hadamard_correlated_kernel import HadamardCorrelatedKernel

__all__ = [
    "BASE_KERNELS",
    "AffineMap",
    "CanonicalKernel",
    "CanonicalPoints",
    "CorrelatedKernel",
    "CrossKernel",
    "HadamardCorrelatedKernel",
    "ProcessKernel",
    "check_positive_semidefinite",
]
