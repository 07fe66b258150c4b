"""Every table of the papers, by its name on the command line."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments.reports.papers import cgpt, kep, sgpa
from experiments.reports.papers.names import plain
from experiments.reports.papers.specification import TableSpec

__all__ = ["TABLES", "find_tables"]

TABLES: Mapping[str, TableSpec] = MappingProxyType(
    {spec.name: spec for spec in (*cgpt.TABLES, *kep.TABLES, *sgpa.TABLES)}
)


def find_tables(name: str) -> list[TableSpec]:
    """The table of that name, the tables of that paper, or all.

    Args:
        name: "cgpt-I", "kep-1", "sgpa-cost", ...; "cgpt", "kep" or "sgpa"; or "all". Case does not matter.

    Raises:
        ValueError: If there is no such table.

    Example:
        >>> [spec.number for spec in find_tables("CGPT-ii")]
        ['Table II']
    """
    asked = plain(name)
    exact = [spec for key, spec in TABLES.items() if plain(key) == asked]
    found = exact or [spec for key, spec in TABLES.items() if asked in ("all", plain(key.partition("-")[0]))]
    if not found:
        raise ValueError(f"name: expected all, cgpt, kep, sgpa or one of {', '.join(TABLES)}, got {name!r}")
    return found
