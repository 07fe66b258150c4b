"""One call that recommends an uncertainty of a classifier or a regression, and measures its benefit."""

from .assess import assess
from .assessment import Assessment
from .regression_report import RegressionAssessment

__all__ = ["Assessment", "RegressionAssessment", "assess"]
