"""Threads of linear algebra: one of them for small matrices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread", "one_thread", "threads_for"]

P = ParamSpec("P")
T = TypeVar("T")

_FEW = 1000  # observations up to which a fit takes seconds in one thread

_lock = threading.Lock()
_held: dict[str | None, list[Any]] = {}  # the active limits of an interface; each restores the setting before it
_before: dict[str | None, Any] = {}  # the limit that restores the setting before all of them


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
        with _limit("blas"):
            return function(*args, **kwargs)

    return limited


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of BLAS and OpenMP, hence of PyTorch, for small matrices: several threads wait for each other.

    Yields:
        Nothing; afterwards the limit is restored.
    """
    with _limit(None):
        yield


def threads_for(observations: int) -> AbstractContextManager[None]:
    """One thread for a fit to few observations, else as many as there are.

    Args:
        observations: that matrices are made of.

    Returns:
        A context.
    """
    return one_thread() if observations <= _FEW else nullcontext()


@contextmanager
def _limit(interface: str | None) -> Iterator[None]:
    with _lock:
        limit, held = _libraries().limit(limits=1, user_api=interface), _held.setdefault(interface, [])
        if not held:
            _before[interface] = limit
        held.append(limit)
    try:
        yield
    finally:
        with _lock:
            held.remove(limit)
            # In some builds the setting is global to the process: the value another call saved may itself be a limit.
            (limit if held else _before[interface]).restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
