"""Threads of BLAS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_held: list[Any] = []  # the active limits; each restores the setting before it
_before: list[Any] = []  # the limit that restores the setting before all of them


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function compute with one thread of NumPy's and SciPy's BLAS, which is faster for many small matrices.

    Afterwards the limit is restored, also if several threads of the process call such functions at once.

    Args:
        function: any function.

    Returns:
        The same function under the limit.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with _limit():
            return function(*args, **kwargs)

    return limited


@contextmanager
def _limit() -> Iterator[None]:
    with _lock:
        limit = _libraries().limit(limits=1, user_api="blas")
        if not _held:
            _before[:] = [limit]
        _held.append(limit)
    try:
        yield
    finally:
        with _lock:
            _held.remove(limit)
            # In some builds the setting is global to the process: the value another call saved may itself be a limit.
            (limit if _held else _before[0]).restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
