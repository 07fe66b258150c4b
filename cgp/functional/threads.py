"""Threads of linear algebra, one of them for small matrices, and what they do with numbers that are nearly zero."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread", "one_thread", "threads_for", "without_denormals"]

_FEW = 2000  # observations up to which a fit takes a minute or two in one thread: where cores are busy, two take longer
_DENORMAL = 1e-310

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


@contextmanager
def threads_for(observations: int) -> Iterator[None]:
    """One thread, without denormal numbers, for a fit to few observations, else as many as there are.

    Args:
        observations: that matrices are made of.

    Yields:
        Nothing.
    """
    if observations > _FEW:
        yield
        return
    with one_thread(), without_denormals():
        yield


@contextmanager
def without_denormals() -> Iterator[None]:
    """Zeros in this thread for numbers so near zero that processors take a hundred times as long for each.

    A context, or a decorator. Covariances of rows far from each other are such, and their products: an evaluation of
    the evidence of 2,000 observations took up to half as long again. Results are the same but for these numbers.

    Yields:
        Nothing.

    Example:
        >>> tiny = torch.tensor(1e-310, dtype=torch.float64)
        >>> with without_denormals():
        ...     print(float(tiny * 1.0))
        0.0
    """
    had_none = not (torch.full((), _DENORMAL, dtype=torch.float64) * 1.0).item()  # PyTorch does not tell otherwise
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(had_none)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
