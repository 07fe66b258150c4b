"""One call that says which uncertainty of a classifier to use, and by how much it helps."""

from .assess import assess
from .assessment import Assessment

__all__ = ["Assessment", "assess"]
