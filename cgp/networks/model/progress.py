"""A line of progress on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

__all__ = ["progress"]

T = TypeVar("T")

_LONG = 10.0  # seconds


def progress(items: Iterable[T], label: str, verbose: bool | None, total: int | None = None) -> Iterator[T]:
    """Items one after the other, with a line of progress on the standard error stream.

    Args:
        items: any, such as a loader's batches.
        label: name of what is done.
        verbose: whether progress is shown; None shows it on a terminal, from ten seconds on.
        total: number of items; None takes their length, if they have one.

    Returns:
        The items.

    Example:
        >>> list(progress([1, 2], "predict", None))
        [1, 2]
    """
    options: dict[str, Any] = {"disable": None if verbose is None else not verbose, "delay": 0 if verbose else _LONG}
    return iter(tqdm(items, label, total, unit=" batches", dynamic_ncols=True, **options))
