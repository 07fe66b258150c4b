"""Packages that only an extra of the installation brings: who needs one says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Imports in its body may fail, and then the error says which extra brings the package.

    Args:
        extra: its name, as in ``pip install "cgp[plot]"``.
        what: what cannot be used without it.

    Raises:
        ImportError: if a package is not installed.
        ModuleNotFoundError: if a module of this library is missing.

    Example:
        >>> with needs_extra("plot", "plot"):
        ...     import missing_package
        Traceback (most recent call last):
        ImportError: plot: needs missing_package, which the extra 'plot' installs: pip install "cgp[plot]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing == "cgp":
            raise
        advice = f'needs {missing}, which the extra {extra!r} installs: pip install "cgp[{extra}]"'
        raise ImportError(f"{what}: {advice}", name=missing) from error
