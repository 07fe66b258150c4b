"""One call that recommends an uncertainty of a classifier, and measures its benefit."""

from .assess import assess
from .assessment import Assessment

__all__ = ["Assessment", "assess"]
