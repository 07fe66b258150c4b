"""Reports on a network's uncertainties: methods, detectors and prediction sets, compared on held-out folds."""

from .assess import assess
from .assessment import Assessment

__all__ = ["Assessment", "assess"]
