"""Structures: how outputs are related, as covariances of rows (input, output)."""

from .correlated import Affine, Coregionalised, Independent, Shared, Shifted, SmoothAndRough
from .factors import Factors
from .multiscale import MultiScale
from .structure import Auto, Structure

__all__ = [
    "Affine",
    "Auto",
    "Coregionalised",
    "Factors",
    "Independent",
    "MultiScale",
    "Shared",
    "Shifted",
    "SmoothAndRough",
    "Structure",
]
