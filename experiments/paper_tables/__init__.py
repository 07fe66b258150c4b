"""The papers' tables with our numbers beside the printed ones, recomputed from the predictions of runs."""

from experiments.paper_tables.commands import list_tables, table, table_rows

__all__ = ["list_tables", "table", "table_rows"]
