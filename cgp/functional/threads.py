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
_held: list[Any] = []  # the limits that are held now, each knowing what there was before it
_before: list[Any] = []  # the one that knows what there was before all of them


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function compute with one thread of NumPy's and SciPy's BLAS, which is faster for many small matrices.

    Afterwards it is as it was before, also if several threads of the process compute under it.

    Args:
        function: any.

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
        own = _libraries().limit(limits=1, user_api="blas")
        if not _held:
            _before[:] = [own]
        _held.append(own)
    try:
        yield
    finally:
        with _lock:
            _held.remove(own)
            # Some builds count threads for the process: what another call found there may have been a limit, too.
            (own if _held else _before[0]).restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
