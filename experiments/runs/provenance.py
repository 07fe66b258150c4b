"""Where a result comes from: versions, machine, commit."""

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

__all__ = ["provenance"]

_PACKAGES = (
    "torch",
    "gpytorch",
    "linear-operator",
    "lightning",
    "torchmetrics",
    "torchvision",
    "scikit-learn",
    "numpy",
)


def provenance() -> dict[str, Any]:
    """Describe the software and the machine that make a result.

    Returns:
        Command, commit (with a mark if files differ from it), versions, and processor.

    Example:
        >>> sorted(provenance())
        ['command', 'commit', 'machine', 'versions']
    """
    return {
        "command": " ".join(["python -m experiments", *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "threads": torch.get_num_threads()},
    }


def _commit() -> str:
    """Return the commit of the checkout, or "unknown" where there is none."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
