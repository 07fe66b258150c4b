"""Rows of a table, each computed once in its own process; as Markdown and CSV: means with errors, the best in bold."""

import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.atomic_files import write_json, write_text
from experiments.evaluation.paired import mean_difference
from experiments.grids import line_of, write_csv
from experiments.studies.regression.problems import SITES

__all__ = ["DIGITS", "cached_row", "stored_row", "summary_table", "with_pairs", "with_peers", "write_results"]


def cached_row(
    folder: Path, key: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]], **settings: Any
) -> dict[str, Any]:
    """A row from its file, or computed with its seconds and its peak memory above the start."""
    stored = stored_row(folder, key, **settings)
    if stored is not None:
        return stored
    row = {**key, **settings, **_measured(compute)}
    write_json(_path(folder, key), row)
    print(line_of({name: value for name, value in row.items() if not isinstance(value, list)}), flush=True)
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
    torch.set_num_threads(1)  # a fork has none of OpenMP's other threads, and would wait for them
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


DIGITS = {
    "smse": 3,
    "rmse": 4,
    "mae": 4,
    "nll": 4,
    "crps": 4,
    "behind": 4,
    "chosen_nll": 4,
    "best_nll": 4,
    "ahead": 4,
    "error": 2,
    "coverage": 3,
    "least_class": 3,
    "greatest_class": 3,
    "sums": 0,
    "seconds": 1,
    "evaluation_seconds": 4,
    "processor_seconds": 1,
    "memory_mb": 0,
}
_TITLES = {
    "smse": "SMSE ↓",
    "rmse": "RMSE ↓",
    "mae": "MAE ↓",
    "nll": "NLL ↓",
    "crps": "CRPS ↓",
    "behind": "behind the best",
    "chosen_nll": "its NLL",
    "best_nll": "the best one's",
    "ahead": "NLL less its peer's",
    "error": "standard error",
    "coverage": "95 % coverage",
    "least_class": "of the class with least",
    "greatest_class": "with most",
    "sums": "sums",
    "seconds": "seconds",
    "evaluation_seconds": "CPU seconds",
    "processor_seconds": "CPU seconds",
    "memory_mb": "peak MB",
}
_KEYS = ("set", "split", "window", "kernel", "variable", "gap", "missing", "n", "method", "chosen", "best")
_BEST = ("smse", "rmse", "mae", "nll", "crps")


def write_results(
    out: Path, name: str, title: str, rows: Sequence[Mapping[str, Any]], groups: Sequence[str], columns: Sequence[str]
) -> None:
    """Write ``NAME.csv`` (one line per row) and ``NAME.md`` (the command and a table), and print the table."""
    kept = [row for row in rows if "failed" not in row]
    keys = list(dict.fromkeys([*groups, *(key for row in kept for key in row if key != SITES)]))
    write_csv(out / f"{name}.csv", [{key: row.get(key, "") for key in keys} for row in kept])
    arguments = " ".join(_anonymous(sys.argv[1:]))
    command = f"```\npython -m experiments.studies.regression {arguments}\n```\n"
    failed = [row for row in rows if "failed" in row]
    notes = "".join(
        f"\nFailed: {' '.join(str(row[key]) for key in row if key in _KEYS)}: {row['failed']}\n" for row in failed
    )
    table = f"{summary_table(kept, groups, columns)}{notes}"
    write_text(out / f"{name}.md", f"# {title}\n\n{command}\n{table}")
    print(f"\n{table}\nWritten: {out / name}.md and .csv")


def with_pairs(rows: Sequence[Mapping[str, Any]], group: str) -> list[dict[str, Any]]:
    """Rows with the mean paired difference of their losses from the best row's, and its standard error."""
    paired = []
    for row in rows:
        if SITES not in row:
            paired.append(dict(row))
            continue
        rivals = [other for other in rows if SITES in other and other[group] == row[group]]
        best = min(rivals, key=lambda other: float(np.mean(other[SITES])))
        paired.append(dict(row) | _difference(row, best, "behind"))
    return paired


def with_peers(
    rows: Sequence[Mapping[str, Any]], groups: Sequence[str], peers: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows with the difference of their negative log-likelihood from that of their peer on the same data.

    It has a standard error if the losses of every observation are known.
    """

    def place(row: Mapping[str, Any], method: str) -> tuple[Any, ...]:
        return *(row[key] for key in groups), method

    measured = {place(row, row["method"]): row for row in rows if "nll" in row}
    paired = []
    for row in rows:
        peer = measured.get(place(row, peers.get(row["method"], "")))
        if peer is None or "nll" not in row or peer["method"] == row["method"]:
            paired.append(dict(row))
        else:
            paired.append(dict(row) | _difference(row, peer, "ahead"))
    return paired


def _difference(row: Mapping[str, Any], other: Mapping[str, Any], name: str) -> dict[str, float]:
    """The mean difference of losses, with its standard error if the losses of every observation are known."""
    if SITES not in row or SITES not in other:
        return {name: row["nll"] - other["nll"]}
    mean, error = mean_difference(np.subtract(row[SITES], other[SITES])[None])
    return {name: mean, f"{name}_se": error}


def summary_table(rows: Sequence[Mapping[str, Any]], groups: Sequence[str], columns: Sequence[str]) -> str:
    """Mean ± standard error over the rows of a group, the best mean of each block in bold."""
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(tuple(row[group] for group in groups), []).append(row)
    header = [*groups, "runs", *(_TITLES[column] for column in columns)]
    text = [f"| {' | '.join(header)} |", f"| {' | '.join(['---'] * len(groups) + ['---:'] * (len(columns) + 1))} |"]
    for key, members in lines.items():
        block = [m for other, m in lines.items() if other[:-1] == key[:-1]]
        cells = [_cell(column, members, block) for column in columns]
        text.append(f"| {' | '.join([*map(str, key), str(len(members)), *cells])} |")
    return "\n".join(text) + "\n"


def _cell(column: str, members: Sequence[Mapping[str, Any]], block: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    values = np.array([row[column] for row in members if column in row], dtype=float)
    if not len(values):
        return "–"
    # Small units, such as those of a ratio of two speeds, would be printed as 0.0000.
    small = column in ("rmse", "mae") and 0.0 < values.mean() < 10.0 ** (1 - DIGITS[column])
    digits = f".{DIGITS[column] + 2 if small else DIGITS[column]}f"
    text = f"{values.mean():{digits}}"
    errors = [row[f"{column}_se"] for row in members if f"{column}_se" in row]
    if errors and not (values.any() or any(errors)):  # of a method from itself, or one that predicts the same
        return "none"
    if errors:  # over observations, which is more precise than the spread over a few runs
        text += f" ± {math.hypot(*errors) / len(errors):{digits}}"
    elif len(values) > 1:
        text += f" ± {values.std(ddof=1) / math.sqrt(len(values)):{digits}}"
    if column not in _BEST:
        return text
    # Means over different runs are not compared.
    rivals = [others for others in block if len(others) >= len(members) and all(column in row for row in others)]
    best = min(np.mean([row[column] for row in others]) for others in rivals)
    return f"**{text}**" if len(rivals) > 1 and values.mean() <= best and len(values) == max(map(len, block)) else text


def _anonymous(arguments: Sequence[str]) -> list[str]:
    """The command without the folders of this machine."""
    shown = list(arguments)
    for flag, word in (("--data", "DATA"), ("--out", "OUT")):
        for index, argument in enumerate(shown):
            if argument == flag and index + 1 < len(shown):
                shown[index + 1] = word
            if argument.startswith(f"{flag}="):
                shown[index] = f"{flag}={word}"
    return shown
