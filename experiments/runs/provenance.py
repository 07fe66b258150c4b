"""Provenance of a result: versions, machine, commit; and peak memory."""

import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

__all__ = ["forget_peak", "peak_bytes", "provenance"]

_PACKAGES = (
    *("torch", "gpytorch", "linear-operator", "lightning", "torchmetrics", "torchvision", "scikit-learn", "numpy"),
)
_KILO = 1 if sys.platform == "darwin" else 1024
_CLEAR = Path("/proc/self/clear_refs")  # Linux: "5" resets the peak to the memory in use


def provenance() -> dict[str, Any]:
    """Command, commit (marked if files differ from it), versions, and processor."""
    return {
        "command": " ".join(["python -m experiments", *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "threads": torch.get_num_threads()},
    }


def _commit() -> str:
    """Return the commit of the checkout, or "unknown" if there is none."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def forget_peak(device: torch.device) -> None:
    """Reset the peak to the memory in use, so that an earlier run in this process does not count.

    For the CPU, this is possible only on Linux.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """Return the peak in bytes: of tensors on a GPU, otherwise of the whole process including library code."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _KILO * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
