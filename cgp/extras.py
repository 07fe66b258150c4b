"""Optional dependencies: an import that fails names the extra that installs the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Context for imports of optional dependencies; if one fails, the error names the extra that installs it.

    Args:
        extra: name of the extra, as in ``pip install "cgp[plot]"``.
        what: the feature that needs it, for the error message.

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
