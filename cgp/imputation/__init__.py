"""Tables with gaps: filled, with intervals, by correlated Gaussian processes."""

from .imputer import CorrelatedGPImputer

__all__ = ["CorrelatedGPImputer"]
