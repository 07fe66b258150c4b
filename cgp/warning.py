"""Warnings that name the line of a user's own code."""

from __future__ import annotations

import sys
import warnings

__all__ = ["is_inside_cgp", "warn_user"]

# Packages whose lines say nothing to a user: they call cgp, or wrap what it defines
_BETWEEN = {"cgp", "contextlib", "gpytorch", "joblib", "linear_operator", "sklearn", "torch"}


def warn_user(text: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called cgp, be it through scikit-learn, whose methods wrap those of an imputer.

    Args:
        text: of the warning, or the warning itself.
        category: of it, where it is a text.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def is_inside_cgp() -> bool:
    """Whether the function that asks was called, however indirectly, by cgp; itself it may be of cgp."""
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] != "cgp":
        frame = frame.f_back
    return frame is not None
