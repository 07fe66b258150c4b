"""The papers' tables with our numbers beside the printed ones, recomputed from the predictions of runs."""

from experiments.reports.papers.specification import TABLES
from experiments.reports.papers.tables import table, table_rows

__all__ = ["TABLES", "table", "table_rows"]
