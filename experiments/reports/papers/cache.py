"""Metrics computed once: remembered by the content of the predictions and of the code that computes them."""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import experiments.evaluation
from experiments.storage import write_json

__all__ = ["Cache"]

Numbers = dict[str, float]


class Cache(NamedTuple):
    """Results in one small file each, or computed anew every time.

    Attributes:
        folder: where they lie; nothing to remember nothing.
    """

    folder: Path | None

    def numbers(self, question: str, files: Sequence[Path], compute: Callable[[], Numbers]) -> Numbers:
        """What was computed for this question of these files, or compute it.

        Args:
            question: in words, with every option.
            files: whose content decides.
            compute: the computation.
        """
        if self.folder is None:
            return compute()
        path = self.folder / f"{_key(question, files)}.json"
        if path.exists():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        result = compute()
        # Runs that may only be read are scored anew each time.
        with contextlib.suppress(OSError):
            write_json(path, result)
        return result


def _key(question: str, files: Sequence[Path]) -> str:
    parts = [_code(), question, *(_digest(path, path.stat().st_size, path.stat().st_mtime_ns) for path in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@functools.cache
def _digest(path: Path, size: int, modified: int) -> str:
    """Hash a file once a process: size and time stand in for its content in between."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def _code() -> str:
    """Hash of the metrics' source: another formula is another question."""
    sources = sorted(Path(experiments.evaluation.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
