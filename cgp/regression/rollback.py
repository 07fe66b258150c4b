"""Estimators that stay as they were where a fit fails or is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["unchanged_on_error"]

P = ParamSpec("P")
R = TypeVar("R")


def unchanged_on_error(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Method of an estimator after whose errors, ctrl-C included, the estimator has the attributes that it had before.

    Half of a failed fit, such as a new standardisation with old parameters, would predict wrong numbers.

    Args:
        method: of an estimator.

    Returns:
        The same method, guarded.

    Example:
        >>> class Estimator:
        ...     @unchanged_on_error
        ...     def fit(self):
        ...         self.scale_ = 2.0
        ...         raise ValueError("no data")
        >>> estimator = Estimator()
        >>> estimator.fit()
        Traceback (most recent call last):
        ...
        ValueError: no data
        >>> vars(estimator)
        {}
    """

    @wraps(method)
    def guarded(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = vars(self).copy()
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded
