"""Rows of a table, each computed in a separate process, saved when it finishes, and reused."""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from experiments.atomic_files import write_json
from experiments.studies.regression.methods import SPARSE, Method, chosen, stochastic
from experiments.studies.regression.peers import svgp
from experiments.studies.regression.problems import Problem, scores

__all__ = ["cached_row", "sparse_rows", "stored_row"]

_EXACT_ROWS = 2000


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


def sparse_rows(
    folder: Path,
    problems: Iterable[tuple[Mapping[str, Any], Problem]],
    methods: Sequence[str] | None,
    num_inducing: int,
    num_steps: int | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Rows of the sparse methods and, up to 2,000 observations, of the exact ones on every problem."""
    rows = []
    for key, problem in problems:
        for label, method in chosen(SPARSE, methods).items():
            exact = "exact" in label.lower()
            if exact and len(problem.inputs) > _EXACT_ROWS:
                continue
            options = settings | ({} if exact else {"num_inducing": num_inducing})
            if num_steps is not None and method in (stochastic, svgp):
                options["num_steps"] = num_steps
            place = {**key, "method": label}
            rows.append(cached_row(folder, place, partial(_scored, problem, method, options), **options))
    return rows


def _scored(problem: Problem, method: Method, options: Mapping[str, Any]) -> dict[str, float]:
    return scores(problem.test_targets, method(problem, **options))


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
