"""The papers' tables with our numbers beside the printed ones, recomputed from the predictions of runs."""

from experiments.paper_tables.commands import list_tables, table, table_rows
from experiments.paper_tables.plots import plot

__all__ = ["list_tables", "plot", "table", "table_rows"]
