"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801
    """As :func:`functools.cached_property`, without its lock, which compilers cannot trace.

    Args:
        compute: the method that computes the attribute.

    Example:
        >>> class Square:
        ...     side = 3
        ...
        ...     @lazy
        ...     def area(self):
        ...         return self.side**2
        >>> square = Square()
        >>> "area" in vars(square), square.area, "area" in vars(square)
        (False, 9, True)
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        """The value, which from then on is an attribute of the instance."""
        value = self.compute(instance)
        setattr(instance, self.name, value)
        return value
