"""Results as pandas frames, with the index and columns of the data."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["Framing"]


class Framing(NamedTuple):
    """The format of the outputs of a fit.

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

    def applied(self, values: NDArray[Any], X: Any) -> Any:
        """Results in the format of the outputs, with the index of the inputs if these are a frame, too."""
        if self.kind is None or not hasattr(X, "iloc"):
            return values
        label = {"columns": self.labels} if values.ndim == 2 else {"name": self.labels}
        return self.kind(values, index=X.index, **label)
