"""Tables with gaps: filled, with intervals, by correlated Gaussian processes, and a referee of what fills them best."""

from .answers import Forecast
from .filled import Interval
from .imputer import CorrelatedGPImputer
from .referee.comparison import assess_gaps
from .referee.report import GapReport
from .totals import Totals

__all__ = ["CorrelatedGPImputer", "Forecast", "GapReport", "Interval", "Totals", "assess_gaps"]
