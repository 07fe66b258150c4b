"""`python -m experiments.paper_tables table|list|plot ...`."""

from jsonargparse import auto_cli

from experiments.paper_tables import list_tables, plot, table

if __name__ == "__main__":
    auto_cli({"table": table, "list": list_tables, "plot": plot}, as_positional=True)
