"""The papers' tables with our numbers beside the printed ones, recomputed from the predictions of runs."""

from experiments.reports.papers.commands import list_tables, table, table_rows
from experiments.reports.papers.plots import plot

__all__ = ["list_tables", "plot", "table", "table_rows"]
