"""Checkpoints: written under another name and renamed, the previous one kept, checked completely when read."""

import contextlib
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from typing_extensions import override

from experiments.atomic_files import write_atomically

__all__ = ["BEST", "LAST", "AtomicCheckpoints", "read_checkpoint", "sound_checkpoint"]

LAST, BEST = "last.ckpt", "best.ckpt"
_PREVIOUS = "previous.ckpt"


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes in the same folder and renames, whereas Lightning may copy from another file system."""

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        path = Path(path)
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        if path.name == LAST and path.exists():
            with contextlib.suppress(OSError):  # some file systems have no links; only the write below must succeed
                write_atomically(path.with_name(_PREVIOUS), lambda aside: os.link(path, aside))
        write_atomically(path, lambda aside: aside.write_bytes(buffer.getvalue()))

    @override
    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint of plain values and tensors; ValueError for a damaged file or another content."""
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch writes checksums but does not verify them
            damaged = archive.testzip()
        if damaged is None:
            return torch.load(path, map_location=map_location, weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, RuntimeError, NotImplementedError) as error:
        raise _damaged(path) from error
    raise _damaged(path)


def sound_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint to continue from: the last one, or the previous one if that is damaged, or None.

    ValueError if there are checkpoints but all are damaged.
    """
    checkpoints = [folder / name for name in (LAST, _PREVIOUS) if (folder / name).exists()]
    for path in checkpoints:
        try:
            read_checkpoint(path)
        except ValueError:
            continue
        return path
    if checkpoints:
        raise _damaged(checkpoints[0])
    return None


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{path}: expected a checkpoint, got a damaged file; remove {path.parent} to train from the start"
    )
