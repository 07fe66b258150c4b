"""Imputers on disk: one file of tensors, with a checksum, whose header has settings and names as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cgp.weights import load_content, save_content

from .coordinates import Axis, Coordinate

__all__ = ["axis_content", "read_content", "restored_axis", "restored_table", "table_content", "write_content"]

_FILE = "imputer.safetensors"

Content = tuple[dict[str, Any], dict[str, Tensor]]


def write_content(folder: str | Path, plain: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write plain values and tensors of an imputer to a folder."""
    save_content(Path(folder) / _FILE, plain, tensors)


def read_content(folder: str | Path) -> Content:
    """Read what :func:`write_content` wrote."""
    return load_content(Path(folder) / _FILE)


def axis_content(axis: Axis) -> dict[str, Any]:
    """An axis as values for JSON."""
    coordinates = [
        coordinate._asdict()
        | {"origin": None if coordinate.origin is None else str(coordinate.origin)}
        | {"zone": None if coordinate.zone is None else _zone_name(coordinate.zone)}
        for coordinate in axis.coordinates
    ]
    return {"columns": list(axis.columns), "coordinates": coordinates}


def restored_axis(plain: dict[str, Any]) -> Axis:
    """The axis from the result of :func:`axis_content`."""
    coordinates = [
        Coordinate(each["kind"], each["origin"] and np.datetime64(each["origin"]), each["zone"], each["name"])
        for each in plain["coordinates"]
    ]
    return Axis(tuple(plain["columns"]), tuple(coordinates))


def table_content(given: Any) -> Content:
    """A table as values for JSON and tensors: an array, or a frame or series with its index."""
    if not hasattr(given, "iloc"):
        return {"kind": "array"}, {"table.0": torch.as_tensor(np.ma.filled(np.asarray(given), np.nan))}
    is_frame = hasattr(given, "columns")
    columns = [given.iloc[:, number] for number in range(given.shape[1])] if is_frame else [given]
    parts = [_column_content(column) for column in [given.index.to_series(), *columns]]
    names = [*given.columns] if is_frame else [given.name]
    plain = {
        "kind": "frame" if is_frame else "series",
        "names": [name.item() if isinstance(name, np.generic) else name for name in names],
        "dtypes": [dtype for dtype, _ in parts],
        "index_name": given.index.name,
        "freq": getattr(given.index, "freqstr", None),
        "range": [given.index.start, given.index.stop, given.index.step] if hasattr(given.index, "step") else None,
    }
    return plain, {f"table.{number}": values for number, (_, values) in enumerate(parts)}


def restored_table(plain: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The table from the result of :func:`table_content`."""
    if plain["kind"] == "array":
        return tensors["table.0"].numpy()
    import pandas as pd

    columns = [_column(tensors[f"table.{number}"], dtype) for number, dtype in enumerate(plain["dtypes"])]
    index = pd.RangeIndex(*plain["range"]) if plain["range"] else pd.Index(columns[0])
    index.name = plain["index_name"]
    if plain["freq"] is not None:
        index = _with_frequency(index, plain["freq"], plain["dtypes"][0])
    parts = [pd.Series(column.array, index=index) for column in columns[1:]]
    if plain["kind"] == "series":
        return parts[0].rename(plain["names"][0])
    frame = pd.concat(parts, axis=1) if parts else pd.DataFrame(index=index)
    return frame.set_axis(pd.Index(plain["names"]), axis=1)


def _zone_name(zone: Any) -> str:
    """The name of a time zone, by which pandas knows it."""
    import pandas as pd

    try:
        pd.DatetimeTZDtype(tz=str(zone))
    except (KeyError, TypeError, ValueError) as error:
        advice = "convert it, frame.tz_convert('Europe/Berlin'), to one with a name"
        raise ValueError(f"save: expected a time zone with a name, got {zone}: {advice}") from error
    return str(zone)


def _column_content(column: Any) -> tuple[str, Tensor]:
    """The dtype and the values of a column as a tensor: times as integers in their unit, missing values as NaN."""
    import pandas as pd

    dtype = str(column.dtype)
    if dtype.startswith("period"):
        column = pd.Series(column.array.to_timestamp())
        dtype = f"{dtype} {column.dtype}"
    if column.dtype.kind in "mM":
        return dtype, torch.as_tensor(column.astype(np.int64).to_numpy().copy())
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return dtype, torch.as_tensor(column.to_numpy().copy())
    numbers = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    return "float64" if column.dtype.kind == "O" else dtype, torch.as_tensor(numbers.copy())


def _column(values: Tensor, dtype: str) -> Any:
    import pandas as pd

    column = pd.Series(values.numpy())
    if dtype.startswith("period"):
        kind, times = dtype.split(" ", 1)
        return column.astype(times).dt.to_period(kind.removeprefix("period[").removesuffix("]"))
    if dtype.startswith("datetime64") and ", " in dtype:
        unit, zone = dtype.removeprefix("datetime64[").removesuffix("]").split(", ")
        return column.astype(f"datetime64[{unit}]").dt.tz_localize("UTC").dt.tz_convert(zone)
    return column.astype(dtype)


def _with_frequency(index: Any, frequency: str, dtype: str) -> Any:
    if not dtype.startswith("period"):
        index.freq = frequency
    return index
