"""Where and when a benchmark was run, in words that name no machine."""

import datetime as dt
import os
from pathlib import Path

import torch

from experiments.benchmarks.counting import matmul_rate
from experiments.benchmarks.rows import Row
from experiments.provenance import provenance

__all__ = ["machine"]


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


def _processor() -> str:
    """The processor's name where the system tells it, and the widest vectors that torch uses on it."""
    name, info = "processor", Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        name = names[0].split(":", 1)[1].strip() if names else name
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
