"""Progress on a terminal, or to a function of the user's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

__all__ = ["Progress", "Ticks", "progressing"]

T = TypeVar("T")
Progress = bool | Callable[[int, int], None] | None
"""Whether progress is shown (None: on a terminal, from ten seconds on, elsewhere in one line then), or what is called
with the number of steps done and of all (0 where nobody knows)."""

_LONG = 10.0  # seconds


class Ticks:
    """Counts steps of what is done, of a total or of 0 where nobody knows, and shows them if asked."""

    def __init__(self, progress: Progress, label: str, total: int, unit: str = "it") -> None:
        self.total, self.done = total, 0
        self.label, self.start = label, time.monotonic()
        self.tell = progress if callable(progress) else None
        disable = callable(progress) or (None if progress is None else not progress)
        delay = 0 if progress else _LONG
        self.bar = tqdm(None, label, total or None, unit=unit, disable=disable, delay=delay, dynamic_ncols=True)
        self.is_to_say = progress is None and self.bar.disable

    def __call__(self, count: int) -> None:
        """Count some steps, at most as many as there are."""
        count = min(count, self.total - self.done) if self.total else count
        self.done += count
        if self.tell is not None:
            self.tell(self.done, self.total)
        self.bar.update(count)
        passed = time.monotonic() - self.start
        if self.is_to_say and passed > _LONG and self.done != self.total:
            self.is_to_say = False
            left = f", some {passed * (self.total / self.done - 1):.0f} s more" if self.total and self.done else ""
            sys.stderr.write(f"{self.label}: {passed:.0f} s so far{left}\n")

    def finish(self) -> None:
        """Count the steps that were not needed."""
        self(self.total - self.done)
        self.bar.close()


def progressing(items: Iterable[T], label: str, progress: Progress, total: int | None = None) -> Iterator[T]:
    """Items one after the other, with progress; ``total`` is their number if they have no length."""
    total = len(items) if total is None and isinstance(items, Sized) else total
    ticks = Ticks(progress, label, total or 0, " batches")
    with ticks.bar:
        for item in items:
            yield item
            ticks(1)
