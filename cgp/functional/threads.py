"""Threads of linear algebra: one of them for small matrices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread", "one_thread", "threads_for"]

_FEW = 2000  # observations up to which a fit takes a minute or two in one thread: where cores are busy, two take longer

_lock = threading.Lock()
_held: dict[str | None, list[Any]] = {}  # the active limits of an interface; each restores the setting before it
_before: dict[str | None, Any] = {}  # the limit that restores the setting before all of them


@contextmanager
def one_thread(interface: str | None = None) -> Iterator[None]:
    """One thread of BLAS and OpenMP, hence of PyTorch, for small matrices: several threads wait for each other.

    A context, or a decorator. Afterwards the limit is restored, also if several threads of the process have such
    contexts at once.

    Args:
        interface: "blas" for NumPy's and SciPy's BLAS only.

    Yields:
        Nothing.
    """
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


one_blas_thread = one_thread("blas")
"""Let a function compute with one thread of NumPy's and SciPy's BLAS, which is faster for many small matrices."""


def threads_for(observations: int) -> AbstractContextManager[None]:
    """One thread for a fit to few observations, else as many as there are.

    Args:
        observations: that matrices are made of.

    Returns:
        A context.
    """
    return one_thread() if observations <= _FEW else nullcontext()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
