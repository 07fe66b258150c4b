"""The memory of the machine, and fits that exceed it."""

from __future__ import annotations

import os
from pathlib import Path

from cgp.regression.solvers.choice import Cost

__all__ = ["check_memory", "machine_memory"]

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def check_memory(cost: Cost) -> None:
    """Reject costs that exceed the memory of the machine."""
    available = machine_memory()
    if cost.bytes > available:
        raise ValueError(
            f"X, y: expected a fit within the machine's memory of {available / 1e9:.1f} GB, got an estimated "
            f"{cost.bytes / 1e9:.1f} GB"
        )


def machine_memory() -> float:
    """Bytes of memory of this machine, or of the control group (container) that the process is in."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return total if limit == "max" else min(total, float(limit))
