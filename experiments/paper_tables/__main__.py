"""`python -m experiments.paper_tables table|list_tables|plot ...`."""

from jsonargparse import auto_cli

from experiments.paper_tables import list_tables, table

if __name__ == "__main__":
    auto_cli([table, list_tables])
