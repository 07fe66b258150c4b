"""Rows of a table, each computed in a separate process, saved when it finishes, and reused."""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from experiments.atomic_files import write_json

__all__ = ["cached_row", "stored_row"]


def cached_row(
    folder: Path, key: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]], **settings: Any
) -> dict[str, Any]:
    """A row from its file, or computed with its seconds and its peak memory above the start."""
    stored = stored_row(folder, key, **settings)
    if stored is not None:
        return stored
    row = {**key, **settings, **_measured(compute)}
    write_json(_path(folder, key), row)
    shown = {name: value for name, value in row.items() if not isinstance(value, list)}  # losses of every value
    print({name: round(value, 4) if isinstance(value, float) else value for name, value in shown.items()}, flush=True)
    return row


def stored_row(folder: Path, key: Mapping[str, Any], **settings: Any) -> dict[str, Any] | None:
    """A row from its file, or None."""
    path = _path(folder, key)
    if not path.exists():
        return None
    row = json.loads(path.read_text(encoding="utf-8"))
    return row if all(row.get(name) == value for name, value in settings.items()) else None


def _path(folder: Path, key: Mapping[str, Any]) -> Path:
    name = "-".join(str(value) for value in key.values()).replace(" ", "_").replace(",", "").replace("/", "_")
    return folder / "rows" / f"{name}.json"


def _measured(compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Run in a forked process, so that its peak memory is its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(compute, sender))
    process.start()
    sender.close()
    try:
        outcome = receiver.recv()
    except EOFError:
        outcome = {"failed": "the process died"}
    process.join()
    return outcome


def _child(compute: Callable[[], Mapping[str, Any]], sender: Connection) -> None:
    torch.manual_seed(0)
    before, started, processor = _resident(), time.perf_counter(), time.process_time()
    try:
        row = dict(compute())
    except (RuntimeError, ValueError) as error:
        row = {"failed": str(error)[:200]}
    row["seconds"] = time.perf_counter() - started
    row["processor_seconds"] = time.process_time() - processor
    row["memory_mb"] = max(0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before)
    sender.send(row)


def _resident() -> float:
    """Megabytes in use now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20
