"""Tables with gaps: filled, with intervals, by correlated Gaussian processes."""

from .forecasts import Forecast
from .imputer import CorrelatedGPImputer, Interval
from .totals import Totals

__all__ = ["CorrelatedGPImputer", "Forecast", "Interval", "Totals"]
