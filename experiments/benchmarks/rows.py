"""Measured rows on disk, one file a group: what is there is not measured again."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.storage import write_text

__all__ = ["Row", "measured", "stored"]

Row = dict[str, Any]


def measured(out: Path, name: str, compute: Callable[[], Sequence[Row]]) -> list[Row]:
    """The rows of a group: from its file, or measured now and written to it.

    Args:
        out: folder of the benchmark.
        name: of the group.
        compute: measures it.
    """
    path = out / "rows" / f"{name}.json"
    if not path.exists():
        rows = list(compute())
        write_text(path, json.dumps(rows, indent=1) + "\n")
        print(f"{name}: {len(rows)} rows", flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def stored(out: Path) -> list[Row]:
    """All rows that were measured so far, by the names of their groups.

    Args:
        out: folder of the benchmark.
    """
    files = sorted((out / "rows").glob("*.json"))
    return [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
