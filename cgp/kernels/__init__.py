"""GPyTorch kernels: correlated processes, as views of one canonical process, and Markov processes in linear time."""

from cgp.operators.missing import leave_out_missing

from .affine_map import AffineMap
from .base_kernels import BASE_KERNELS, check_positive_semidefinite
from .canonical_kernel import CanonicalKernel, CanonicalPoints
from .correlated_kernel import CorrelatedKernel, CrossKernel, HadamardCorrelatedKernel, ProcessKernel
from .markov import Markov
from .markov_forms import HasMarkovForm, markov_form
from .markov_kernels import DampedOscillatorKernel, IntegratedWienerKernel

__all__ = [
    "BASE_KERNELS",
    "AffineMap",
    "CanonicalKernel",
    "CanonicalPoints",
    "CorrelatedKernel",
    "CrossKernel",
    "DampedOscillatorKernel",
    "HadamardCorrelatedKernel",
    "HasMarkovForm",
    "IntegratedWienerKernel",
    "Markov",
    "ProcessKernel",
    "check_positive_semidefinite",
    "leave_out_missing",
    "markov_form",
]
