"""Tables with gaps: filled, with intervals, by correlated Gaussian processes, and a referee of what fills them best."""

from .forecasts import Forecast
from .imputer import CorrelatedGPImputer
from .intervals import Interval
from .referee import assess_gaps
from .report import GapReport
from .totals import Totals

__all__ = ["CorrelatedGPImputer", "Forecast", "GapReport", "Interval", "Totals", "assess_gaps"]
