"""Frames in, frames out: the index and the columns of pandas' tables."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["Framing"]


class Framing(NamedTuple):
    """How outputs were given to a fit.

    Attributes:
        kind: the class of the frame or series, None for arrays.
        labels: the columns of a frame, or the name of a series.
    """

    kind: Any = None
    labels: Any = None

    @classmethod
    def of(cls, y: Any) -> Framing:
        """That of y; whatever has rows by ``iloc`` is a frame if it has columns, else a series."""
        if not hasattr(y, "iloc"):
            return cls()
        return cls(type(y), y.columns if hasattr(y, "columns") else y.name)

    def names(self, count: int) -> list[str]:
        """What the outputs are called."""
        if self.kind is None:
            return [f"output {number}" for number in range(count)]
        return [str(label) for label in (self.labels if hasattr(self.kind, "columns") else [self.labels])]

    def applied(self, values: NDArray[Any], X: Any) -> Any:
        """Answers as the outputs were given, with the index of the inputs, if those are a frame, too."""
        if self.kind is None or not hasattr(X, "iloc"):
            return values
        label = {"columns": self.labels} if values.ndim == 2 else {"name": self.labels}
        return self.kind(values, index=X.index, **label)
