"""What estimators in scikit-learn's convention share: checked data, formats, gross errors, and rolled back failures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import validate_data

from cgp.warning import warn_user

__all__ = ["Accepted", "Framing", "checked_inputs", "checked_outputs", "unchanged_on_error", "with_nan"]

Array = NDArray[Any]
P = ParamSpec("P")
R = TypeVar("R")

_TAIL = 0.005  # share on either side, outside the range that gross errors are compared with
_FAR = 20.0  # ranges


def checked_inputs(estimator: Any, *data: Any, **options: Any) -> Any:
    """X, or X and y, checked by scikit-learn; dates and masks, which it would misread as numbers, are rejected."""
    X = data[0]
    if X is None:
        raise ValueError("X: expected inputs (n, d), numbers in an array or a frame, got None")
    _refuse_dates("X", X)
    if np.ma.is_masked(X):
        raise ValueError(f"X: expected every value, got a masked array without {np.ma.count_masked(X)} of them")
    return validate_data(estimator, *data, dtype=np.float64, **options)


def _refuse_dates(name: str, values: Any) -> None:
    """Reject arrays and data frames with dates or time differences, which would be read as counts of their unit."""
    dtypes = np.atleast_1d(np.asarray(getattr(values, "dtypes", getattr(values, "dtype", None)), dtype=object))
    dates = [dtype for dtype in dtypes if getattr(dtype, "kind", "") in ("m", "M")]
    if dates:
        example = "np.asarray((dates - dates[0]) / np.timedelta64(1, 'D'))[:, None]"
        raise ValueError(f"{name}: expected numbers, such as {example}, got {dates[0]}")


def with_nan(y: Any) -> Any:
    """Outputs whose masked entries are NaN, that is, not observed."""
    return np.ma.filled(y.astype(np.float64), np.nan) if isinstance(y, np.ma.MaskedArray) else y


def checked_outputs(y: Any, x: NDArray[Any], summed: Any = ()) -> tuple[NDArray[Any], bool]:
    """Outputs as columns ``(n, P)``, NaN for unobserved entries, and whether they had a single axis.

    Args:
        y: as given.
        x: inputs.
        summed: numbers of outputs of which sums are known: they need no other value.

    Returns:
        Both.

    Raises:
        ValueError: if they cannot be used.
    """
    _refuse_dates("y", y)
    options: dict[str, Any] = {"ensure_2d": False, "dtype": np.float64, "input_name": "y"}
    y = check_array(with_nan(y), ensure_all_finite="allow-nan", **options)
    if y.ndim == 1:
        y = check_array(y, **options)  # a single process must be observed everywhere
    check_consistent_length(x, y)
    columns = y.reshape(len(y), -1)
    unseen = np.flatnonzero(np.isnan(columns).all(axis=0))
    if len(unseen) == columns.shape[1] or not np.isin(unseen, summed).all():
        raise ValueError(f"y: expected at least one observation of each process, got none of {unseen.tolist()}")
    return columns, y.ndim == 1


class Framing(NamedTuple):
    """The format of the outputs of a fit, an array or a frame of pandas, and of the results.

    Attributes:
        kind: class of the frame or series, None for arrays.
        labels: columns of a frame, or name of a series.
    """

    kind: Any = None
    labels: Any = None

    @classmethod
    def of(cls, y: Any) -> Framing:
        """The format of y; an object with ``iloc`` is a frame if it has columns, otherwise a series."""
        if not hasattr(y, "iloc"):
            return cls()
        return cls(type(y), y.columns if hasattr(y, "columns") else y.name)

    def names(self, count: int) -> list[str]:
        """The names of the outputs."""
        if self.kind is None:
            return [f"output {number}" for number in range(count)]
        return [str(label) for label in (self.labels if hasattr(self.kind, "columns") else [self.labels])]

    def applied(self, values: Array, X: Any) -> Any:
        """Results in the format of the outputs, with the index of the inputs if these are a frame, too."""
        if self.kind is None or not hasattr(X, "iloc"):
            return values
        label = {"columns": self.labels} if values.ndim == 2 else {"name": self.labels}
        return self.kind(values, index=X.index, **label)


class Accepted(NamedTuple):
    """The range of each output that readings are taken from: what is farther out is an error of measurement.

    Codes of failed sensors are such values. The range needs some hundred values of an output, and a constant output has
    none.

    Attributes:
        low: ``(P,)``.
        high: ``(P,)``.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, y: Array) -> Self:
        """Twenty times the width of the middle 99 % of each output ``(n, P)``, to either side of these."""
        low, high = np.full((2, y.shape[1]), np.nan)
        seen = ~np.isnan(y).all(axis=0)
        low[seen], high[seen] = np.nanquantile(y[:, seen], [_TAIL, 1.0 - _TAIL], axis=0)
        width = np.where(high > low, high - low, np.inf)
        return cls(low - _FAR * width, high + _FAR * width)

    @classmethod
    def everything(cls, num_outputs: int) -> Self:
        """No limits."""
        return cls(np.full(num_outputs, -np.inf), np.full(num_outputs, np.inf))

    def errors(self, y: Array) -> NDArray[np.bool_]:
        """The values outside, in the shape of y ``(n, P)``.

        Args:
            y: outputs, NaN for unobserved entries.

        Returns:
            Booleans in its shape.

        Warns:
            UserWarning: if there are any, with their number and the most extreme of each output.
        """
        with np.errstate(invalid="ignore"):
            far = (y < self.low) | (y > self.high)
        if far.any():
            farthest = {
                int(p): float(f"{y[far[:, p], p][np.argmax(np.abs(y[far[:, p], p]))]:.6g}")
                for p in np.flatnonzero(far.any(0))
            }
            warn_user(
                f"y: {far.sum()} values are farther than {_FAR:g} times the width of the middle 99 % from all others "
                f"and are left out as errors of measurement; the farthest by output: {farthest}. If they are right, "
                "rescale the outputs, for example by their logarithm."
            )
        return far


def unchanged_on_error(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Method of an estimator after whose errors, ctrl-C included, the estimator has the attributes that it had before.

    Half of a failed fit, such as a new standardisation with old parameters, would predict wrong numbers. Under another
    default device of torch than the CPU, where estimators work, the method is refused.

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
        before, device = vars(self).copy(), torch.get_default_device()
        if device.type != "cpu":
            raise ValueError(
                f"{type(self).__name__}: expected torch's default device to be the CPU, where it is computed, got "
                f"{device}; call it within `with torch.device('cpu'):`"
            )
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded
