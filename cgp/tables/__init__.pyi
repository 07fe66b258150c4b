from .filled import Forecast, Interval
from .frames.files.options import ReadOptions
from .frames.files.reading import read_table
from .frames.files.table_file import TableFile
from .imputer import CorrelatedGPImputer
from .known import KnownTotals, adding_up
from .referee.comparison import assess_gaps
from .referee.report import GapReport
from .totals import Aggregate
from .transforms.kinds import BoxCox, Logit, Rectified, Transform, YeoJohnson

__all__ = [
    "Aggregate",
    "BoxCox",
    "CorrelatedGPImputer",
    "Forecast",
    "GapReport",
    "Interval",
    "KnownTotals",
    "Logit",
    "ReadOptions",
    "Rectified",
    "TableFile",
    "Transform",
    "YeoJohnson",
    "adding_up",
    "assess_gaps",
    "read_table",
]
