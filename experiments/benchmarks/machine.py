"""Where and when a benchmark was run, in words that name no machine."""

import datetime as dt
import os
from pathlib import Path

import torch

from experiments.benchmarks.counting import matmul_rate
from experiments.benchmarks.rows import Row
from experiments.runs.provenance import provenance

__all__ = ["machine", "settle_allocator"]

_LARGEST = 2**25 - 2**16  # bytes of a block from which the C library learns its largest thresholds


def machine() -> Row:
    """Processor, cores, threads, versions, date and the rate of its matrix products.

    Example:
        >>> machine()["suite"]
        'machine'
    """
    versions = provenance()
    return {
        "suite": "machine",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "matmul_rate": matmul_rate(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": versions["versions"]["python"],
        "commit": versions["commit"],
    }


def settle_allocator() -> None:
    """Bring the C library's memory thresholds to where they end up in any process that has freed a large block.

    glibc gives memory back to the system as soon as more is free than twice the largest block that was ever mapped and
    freed. In a young process that is a few megabytes: a call whose intermediate results are larger then pays for every
    page of them again and again, and what is measured depends on what was measured before it.
    """
    torch.empty(_LARGEST, dtype=torch.uint8).fill_(1)


def _processor() -> str:
    """The processor's name where the system tells it, and the widest vectors that torch uses on it."""
    name, info = "processor", Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        name = names[0].split(":", 1)[1].strip() if names else name
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
