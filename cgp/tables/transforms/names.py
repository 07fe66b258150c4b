"""What transforms are called: known before anything heavy is imported."""

from __future__ import annotations

from cgp.spelling import meant

__all__ = ["AUTO", "NAMES", "check_name"]

AUTO = "auto"
NAMES = (AUTO, "log", "box-cox", "yeo-johnson", "logit", "rectified", "none")


def check_name(asked: object) -> None:
    """Refuse what no transform is called.

    Args:
        asked: a name.

    Raises:
        ValueError: if it is none of them, with the one that is near.

    Example:
        >>> check_name("log")
    """
    if not isinstance(asked, str) or asked not in NAMES:
        near = meant([asked], NAMES) if isinstance(asked, str) else ""
        raise ValueError(
            f"transforms: expected one of {NAMES}, an object such as BoxCox(), or None, got {asked!r}{near}"
        )
