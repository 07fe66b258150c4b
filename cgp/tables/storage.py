"""Imputers on disk: a folder with the table, the axis, the regressor and the hidden blocks, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from cgp.regression.storage import regressor_content, restored_regressor, restored_settings, settings_content
from cgp.regression.sums import Sums
from cgp.weights import load_content, part_of, save_content

from .conformal import Conformal
from .frames.coordinates import Axis, Coordinate
from .frames.panels import PanelForm
from .frames.table import input_columns, read_table
from .panel import Panel, panel_options
from .tails import Few, Tail, Tails
from .transforms.choice import restored_setting, setting_content
from .transforms.columns import Transforms
from .transforms.kinds import Transform

__all__ = ["read_imputer", "write_imputer"]

_FILE = "imputer.safetensors"

Content = tuple[dict[str, Any], dict[str, Tensor]]


def _axis_content(axis: Axis) -> dict[str, Any]:
    """An axis as values for JSON."""
    coordinates = [
        coordinate._asdict()
        | {"origin": None if coordinate.origin is None else str(coordinate.origin)}
        | {"zone": None if coordinate.zone is None else _zone_name(coordinate.zone)}
        for coordinate in axis.coordinates
    ]
    return {"columns": list(axis.columns), "coordinates": coordinates}


def _restored_axis(plain: dict[str, Any]) -> Axis:
    """The axis from the result of :func:`_axis_content`."""
    coordinates = [
        Coordinate(each["kind"], each["origin"] and np.datetime64(each["origin"]), each["zone"], each["name"])
        for each in plain["coordinates"]
    ]
    return Axis(tuple(plain["columns"]), tuple(coordinates))


def _table_content(given: Any) -> Content:
    """A table as values for JSON and tensors: an array, or a frame or series with its index."""
    if not hasattr(given, "iloc"):
        return {"kind": "array"}, {"table.0": torch.as_tensor(np.ma.filled(np.asarray(given), np.nan))}
    is_frame = hasattr(given, "columns")
    columns = [given.iloc[:, number] for number in range(given.shape[1])] if is_frame else [given]
    parts = [_column_content(column) for column in [given.index.to_series(), *columns]]
    names = [*given.columns] if is_frame else [given.name]
    units = given.attrs.get("units", {})
    plain = {
        "kind": "frame" if is_frame else "series",
        "names": [name.item() if isinstance(name, np.generic) else name for name in names],
        "units": [str(units[name]) if name in units else None for name in names],
        "dtypes": [dtype for dtype, _ in parts],
        "index_name": given.index.name,
        "freq": getattr(given.index, "freqstr", None),
        "range": [given.index.start, given.index.stop, given.index.step] if hasattr(given.index, "step") else None,
    }
    return plain, {f"table.{number}": values for number, (_, values) in enumerate(parts)}


def _restored_table(plain: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The table from the result of :func:`_table_content`."""
    if plain["kind"] == "array":
        return tensors["table.0"].numpy()
    table = _restored_frame(plain, tensors)
    named = [table.name] if plain["kind"] == "series" else table.columns
    units = zip(named, plain.get("units", ()), strict=False)  # files of before have none
    if found := {name: unit for name, unit in units if unit is not None}:
        table.attrs["units"] = found
    return table


def _restored_frame(plain: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """A frame, or a series, without units."""
    import pandas as pd

    columns = [_column(tensors[f"table.{number}"], dtype) for number, dtype in enumerate(plain["dtypes"])]
    index = pd.RangeIndex(*plain["range"]) if plain["range"] else pd.Index(columns[0])
    index.name = plain["index_name"]
    if plain["freq"] is not None and not plain["dtypes"][0].startswith("period"):
        index.freq = plain["freq"]
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


Imputer = TypeVar("Imputer")

_VALUES = ("scores", "blocks")  # of conformal intervals
_LEFT_OUT = "table.left_out"


def write_imputer(imputer: Any, folder: str | Path) -> None:
    """Write a fitted imputer to a folder."""
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ValueError(f"folder: expected a folder, or the place of a new one, got a file, {str(folder)!r}")
    if hasattr(imputer, "panel_"):
        _write_panel(imputer, folder)
        return
    plain, tensors = regressor_content(imputer.regressor_)
    table, values = _table_content(imputer._table.given)
    content: dict[str, Any] = {"settings": _settings(imputer), "regressor": plain, "table": table}
    content["axis"], content["tails"] = _axis_content(imputer._axis), imputer.tails_.laws
    content["few"] = imputer.tails_.few
    content["transforms"] = imputer.transforms_.content()
    values[_LEFT_OUT] = torch.as_tensor(imputer._table.left_out).byte()
    if imputer._curved is not None:
        content["totals"] = list(imputer._curved.names)
        values |= imputer._curved.tensors("totals.")
    if hasattr(imputer, "conformal_"):
        content["conformal"] = imputer.conformal_.labels.tolist()
        values |= {f"conformal.{name}": torch.as_tensor(getattr(imputer.conformal_, name)) for name in _VALUES}
    save_content(Path(folder) / _FILE, content, tensors | values)


def read_imputer(kind: type[Imputer], folder: str | Path) -> Imputer:
    """An imputer of that class from what :func:`write_imputer` wrote."""
    plain, tensors = load_content(Path(folder) / _FILE)
    if "panel" in plain:
        return _read_panel(kind, plain, tensors)
    settings = _restored(plain["settings"])
    imputer: Any = kind(**settings)
    given = _restored_table(plain["table"], tensors)
    imputer._axis = _restored_axis(plain["axis"])
    validate_data(imputer, given if not hasattr(given, "to_frame") else given.to_frame(), skip_check_array=True)
    table, _ = read_table(given, settings["inputs"], settings["missing_values"], axis=imputer._axis)
    kinds = [Transform.of_content(each) for each in plain.get("transforms", [])]  # files of before have none
    imputer.transforms_ = Transforms(tuple(kinds), tuple(table.names)) if kinds else Transforms.none(table.names)
    laws = {label: Tail(*law) for label, law in plain.get("tails", {}).items()}
    imputer.tails_ = Tails(laws, tuple(Few(*each) for each in plain.get("few", ())))  # files of before have none
    imputer._curved = Sums.of_tensors(plain.get("totals", ()), part_of(tensors, "totals."))
    regressor = imputer._regressor()
    imputer.regressor_ = restored_regressor(regressor, plain["regressor"], tensors, table.outputs())
    imputer._parts, imputer._known = [table._replace(left_out=tensors[_LEFT_OUT].bool().numpy())], None
    if "conformal" in plain:
        scores, blocks = (tensors[f"conformal.{name}"].numpy() for name in _VALUES)
        imputer.conformal_ = Conformal(scores, blocks, np.array(plain["conformal"]))
    return imputer


def _write_panel(imputer: Any, folder: str | Path) -> None:
    """Write an imputer with its panel, table by table."""
    form, parts = PanelForm.split(imputer._given)
    plain, tensors = imputer.panel_.content()
    tables = []
    for number, part in enumerate(parts):
        table, values = _table_content(part)
        tables.append(table)
        tensors |= {f"{number}.{name}": value for name, value in values.items()}
    content = {"settings": _settings(imputer), "panel": plain, "axis": _axis_content(imputer._axis)}
    save_content(Path(folder) / _FILE, content | {"tables": tables, "form": form.content()}, tensors)


def _read_panel(kind: type[Imputer], plain: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Imputer:
    """The imputer of :func:`_write_panel`."""
    imputer: Any = kind(**_restored(plain["settings"]))
    parts = []
    for number, table in enumerate(plain["tables"]):
        parts.append(_restored_table(table, part_of(tensors, f"{number}.")))
    imputer._given = PanelForm.of_content(plain["form"]).joined(parts)
    imputer._axis = _restored_axis(plain["axis"])
    first = parts[0] if not hasattr(parts[0], "to_frame") else parts[0].to_frame()
    validate_data(imputer, first, skip_check_array=True)
    imputer.panel_ = Panel.of_content(plain["panel"], tensors, panel_options(imputer, imputer._axis)[0])
    imputer._known = imputer._panel(imputer._given)
    return imputer


def _settings(imputer: Any) -> dict[str, Any]:
    """The arguments as values for JSON."""
    settings: dict[str, Any] = imputer.get_params(deep=False)
    codes = np.atleast_1d(np.asarray(settings["missing_values"], dtype=np.float64)).tolist()
    inputs = input_columns(settings["inputs"]) or None
    transforms = setting_content(settings["transforms"])
    return settings_content(settings) | {"missing_values": codes, "inputs": inputs, "transforms": transforms}


def _restored(content: dict[str, Any]) -> dict[str, Any]:
    """The arguments of :func:`_settings`."""
    return restored_settings(content) | {"transforms": restored_setting(content.get("transforms"))}
