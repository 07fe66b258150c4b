"""The most memory that something takes."""

import resource
import sys
from pathlib import Path

import torch

__all__ = ["forget_peak", "peak_bytes"]

_KILO = 1 if sys.platform == "darwin" else 1024
_CLEAR = Path("/proc/self/clear_refs")  # Linux: "5" sets the peak to what is in use now


def forget_peak(device: torch.device) -> None:
    """Let what is in use now be the peak, so that an earlier run in this process does not count.

    Systems other than Linux cannot forget that of a CPU.

    Args:
        device: whose memory.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """Return the peak in bytes: of the GPU's tensors, or of the whole process, the libraries' code included.

    Args:
        device: whose memory.

    Example:
        >>> cpu = torch.device("cpu")
        >>> peak_bytes(cpu) > 2**20
        True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _KILO * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
