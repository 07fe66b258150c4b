"""The forms that many tables of one kind are given in, and results are returned in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PanelForm", "is_panel"]

Array = NDArray[Any]


def is_panel(X: Any) -> bool:
    """Whether there are several tables: a list of them, a frame whose index has two levels, or three axes."""
    if hasattr(X, "iloc"):
        return getattr(X.index, "nlevels", 1) > 1
    if isinstance(X, list | tuple):
        return bool(X) and all(hasattr(each, "iloc") or (hasattr(each, "shape") and each.ndim == 2) for each in X)
    return getattr(X, "ndim", 2) == 3


class PanelForm(NamedTuple):
    """How the tables of a panel were given.

    Attributes:
        kind: "array" ``(tables, steps, columns)``, "list", or "index": one frame, the first level the table.
        labels: names of the tables.
        names: of the two levels.
        order: of the rows of the frame, table by table, among those given.
    """

    kind: str
    labels: list[Any]
    names: list[Any] | None = None
    order: Array | None = None

    @classmethod
    def split(cls, X: Any) -> tuple[PanelForm, list[Any]]:
        """The form of a panel, and its tables."""
        if hasattr(X, "iloc"):
            rows = _rows_of_tables(X.index)
            tables = [X.iloc[each].droplevel(0) for each in rows.values()]
            order = np.concatenate(list(rows.values()))
            return cls("index", list(rows), list(X.index.names), order), tables
        kind = "list" if isinstance(X, list | tuple) else "array"
        return cls(kind, list(range(len(X)))), list(X)

    def content(self) -> dict[str, Any]:
        """The form as values for JSON."""
        labels = [label.item() if isinstance(label, np.generic) else label for label in self.labels]
        wrong = [label for label in labels if not isinstance(label, str | int | float)]
        if wrong:
            raise ValueError(f"save: expected text or numbers as names of tables, got {wrong[0]!r}")
        order = None if self.order is None else self.order.tolist()
        return self._replace(labels=labels, order=order)._asdict()

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> PanelForm:
        """The form of :meth:`content`."""
        form = cls(**content)
        return form if form.order is None else form._replace(order=np.array(form.order))

    def followed(self, X: Any, others: Any) -> Any:
        """The panel with further tables behind it; others than were given so, or names that are there, are refused."""
        form, tables = PanelForm.split(others)
        if form.kind != self.kind:
            raise ValueError(f"rows: expected tables as in fit, as {self.kind}, got {form.kind}")
        if self.kind == "array":
            return np.concatenate([X, others])
        if self.kind == "list":
            return [*X, *tables]
        again = [label for label in form.labels if label in self.labels]
        if again:
            raise ValueError(f"rows: expected tables with other names than those of fit, got {again[0]!r} again")
        import pandas as pd

        return pd.concat([X, others])

    def joined(self, parts: Sequence[Any]) -> Any:
        """One result for each table, in the form of the panel."""
        if self.kind == "list":
            return list(parts)
        if self.kind == "array":
            return np.stack(parts)
        import pandas as pd

        whole = pd.concat(parts, keys=self.labels, names=self.names)
        if self.order is None or len(whole) != len(self.order):  # sums have other rows
            return whole
        return whole.iloc[np.argsort(self.order, kind="stable")]


def _rows_of_tables(index: Any) -> dict[Any, Array]:
    """The rows of each table, by an index of two levels."""
    import pandas as pd

    if index.nlevels != 2:
        raise ValueError(f"X: expected an index of two levels, (table, time), got {index.nlevels}")
    labels = index.get_level_values(0)
    if labels.dtype.kind == "f":
        raise ValueError("index: expected names of tables in its first level, got coordinates: make them inputs=(...)")
    if labels.hasnans:
        raise ValueError(f"X: expected the name of a table in every row, got none in {int(labels.isna().sum())}")
    rows: dict[Any, Array] = pd.Series(np.arange(len(index))).groupby(np.asarray(labels), sort=False).indices
    if not rows or max(map(len, rows.values())) < 2:
        raise ValueError(
            "index: expected one level, got 2 and one row of each table: name inputs as columns, inputs=(...)"
        )
    return rows
