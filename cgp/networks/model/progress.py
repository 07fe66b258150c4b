"""Progress on a terminal, or to a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, TypeVar

from tqdm import tqdm

__all__ = ["Progress", "Ticks", "progressing"]

T = TypeVar("T")
Progress = bool | Callable[[int, int], None] | None
"""Whether progress is shown (None: on a terminal, from ten seconds on), or what is called with the number of steps done
and of all (0 where nobody knows)."""

_LONG = 10.0  # seconds


def progressing(items: Iterable[T], label: str, progress: Progress, total: int | None = None) -> Iterator[T]:
    """Items one after the other, with progress.

    Args:
        items: any, such as a loader's batches.
        label: name of what is done.
        progress: whether it is shown, or a function.
        total: number of items; None takes their length, if they have one.

    Returns:
        The items.

    Example:
        >>> list(progressing([1, 2], "predict", None))
        [1, 2]
    """
    if not callable(progress):
        return iter(tqdm(items, label, total, unit=" batches", **_options(progress)))
    count = total if total is not None else len(items) if isinstance(items, Sized) else 0
    return _told(items, progress, count)


class Ticks:
    """Counts steps of what is done, of a number that is known.

    Args:
        progress: whether it is shown, or a function.
        label: name of what is done.
        total: number of steps.
    """

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self.total, self.done, self.tell = total, 0, progress if callable(progress) else None
        self.bar = None if callable(progress) else tqdm(None, label, total, **_options(progress))

    def __call__(self, count: int) -> None:
        """Count some steps."""
        count = min(count, self.total - self.done)
        self.done += count
        if self.tell is not None:
            self.tell(self.done, self.total)
        if self.bar is not None:
            self.bar.update(count)

    def finish(self) -> None:
        """Count the steps that were not needed."""
        self(self.total - self.done)
        if self.bar is not None:
            self.bar.close()


def _told(items: Iterable[T], tell: Callable[[int, int], None], total: int) -> Iterator[T]:
    for done, item in enumerate(items, 1):
        yield item
        tell(done, total)


def _options(progress: bool | None) -> dict[str, Any]:
    disable = None if progress is None else not progress
    return {"disable": disable, "delay": 0 if progress else _LONG, "dynamic_ncols": True}
