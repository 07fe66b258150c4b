"""Results of several tables alike, printed as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cgp.spelling import meant

__all__ = ["beside", "check_heads", "column_of", "is_name", "one_frame"]


def beside(result: Any, further: dict[str, Any] | None = None) -> str:
    """The ``repr`` of a named tuple of frames, or series, alike: the fields of a column beside each other.

    Args:
        result: a named tuple.
        further: fields that it has besides.

    Returns:
        A line for each row, each column in it; a tuple of anything else is written as Python does.

    Example:
        >>> from typing import NamedTuple
        >>> import pandas as pd
        >>> class Ends(NamedTuple):
        ...     lower: object
        ...     upper: object
        ...
        ...     def __repr__(self):
        ...         return beside(self)
        >>> Ends(pd.DataFrame({"a": [1, 2], "b": 0}), pd.DataFrame({"a": [3, 4], "b": 5}))
              a           b
          lower upper lower upper
        0     1     3     0     5
        1     2     4     0     5
    """
    fields = result._asdict() | (further or {})
    first, *others = fields.values()
    if not all(hasattr(each, "iloc") for each in (first, *others)):
        return f"{type(result).__name__}({', '.join(f'{name}={each!r}' for name, each in fields.items())})"
    import pandas as pd

    whole = pd.concat(fields, axis=1)
    if hasattr(first, "columns"):
        width = len(first.columns)
        whole = whole.iloc[:, [field * width + p for p in range(width) for field in range(len(fields))]]
        whole = whole.reorder_levels([*range(1, whole.columns.nlevels), 0], axis=1)
    shown = pd.options.display
    return whole.to_string(max_rows=shown.max_rows, min_rows=shown.min_rows, line_width=shown.width)


def is_name(key: Any) -> bool:
    """Whether a key is the name of a column, and no number or slice of a tuple."""
    return isinstance(key, str)


def column_of(result: Any, name: Any, further: dict[str, Any] | None = None) -> Any:
    """The fields of one column of a named tuple of frames alike.

    Args:
        result: a named tuple.
        name: of the column.
        further: fields that it has besides.

    Returns:
        A frame with a column for each field.

    Raises:
        KeyError: if there is no such column.

    Example:
        >>> from collections import namedtuple
        >>> import pandas as pd
        >>> Ends = namedtuple("Ends", "lower upper")
        >>> column_of(Ends(pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3, 4]})), "a")
           lower  upper
        0      1      3
        1      2      4
    """
    fields = result._asdict() | (further or {})
    names = [*getattr(next(iter(fields.values())), "columns", [])]
    if name not in names:
        said = (
            f"one of the columns {names}"
            if names
            else f"a field, such as .{next(iter(fields))}, of what has no columns"
        )
        raise KeyError(f"expected {said}, got {name!r}{meant([name], names)}")
    import pandas as pd

    return pd.concat({field: each[name] for field, each in fields.items()}, axis=1)


def one_frame(parts: dict[str, Any]) -> Any:
    """Frames, or series, alike as one frame, the parts of a column beside each other.

    Args:
        parts: by what follows the names of their columns.

    Returns:
        A frame with a column for each part of each column.

    Raises:
        ValueError: if they are of no table of pandas, or two parts would have one name.

    Example:
        >>> import pandas as pd
        >>> one_frame({"": pd.DataFrame({"a": [1, 2]}), " std": pd.DataFrame({"a": [0, 4]})})
           a  a std
        0  1      0
        1  2      4
    """
    if not all(hasattr(part, "iloc") for part in parts.values()):
        kinds = type(next(iter(parts.values()))).__name__
        raise ValueError(f"to_frame: expected answers for a table of pandas, got {kinds}: its fields are arrays")
    import pandas as pd

    frames = {end: part if hasattr(part, "columns") else part.to_frame() for end, part in parts.items()}
    pairs = [(name, end) for name in next(iter(frames.values())) for end in frames]
    check_heads([f"{name}{end}" for name, end in pairs])
    return pd.DataFrame({f"{name}{end}": frames[end][name] for name, end in pairs})


def check_heads(heads: Sequence[str]) -> None:
    """Refuse parts of columns of which two would have one name.

    Args:
        heads: the name of each.

    Raises:
        ValueError: if one occurs twice, such as "a std" of the columns "a" and "a std".
    """
    if twice := [head for head in dict.fromkeys(heads) if heads.count(head) > 1]:
        raise ValueError(
            f"table: expected columns that are not called as the parts of another are, got two parts {twice[0]!r}: "
            "rename such a column"
        )
