"""Imputers on disk: a folder with the table, the axis, the regressor and the hidden blocks, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import validate_data

from cgp.regression.storage import regressor_content, restored_regressor, restored_settings, settings_content
from cgp.weights import part_of

from .conformal import Conformal
from .frames.panels import PanelForm
from .frames.storage import axis_content, read_content, restored_axis, restored_table, table_content, write_content
from .frames.table import input_columns, read_table
from .panel import Panel, panel_options
from .transforms.choice import restored_setting, setting_content
from .transforms.columns import Transforms
from .transforms.kinds import Transform

__all__ = ["read_imputer", "write_imputer"]

Imputer = TypeVar("Imputer")

_VALUES = ("scores", "blocks")  # of conformal intervals
_LEFT_OUT = "table.left_out"


def write_imputer(imputer: Any, folder: str | Path) -> None:
    """Write a fitted imputer to a folder."""
    if hasattr(imputer, "panel_"):
        _write_panel(imputer, folder)
        return
    plain, tensors = regressor_content(imputer.regressor_)
    table, values = table_content(imputer._table.given)
    content = {"settings": _settings(imputer), "regressor": plain, "table": table, "axis": axis_content(imputer._axis)}
    content["transforms"] = imputer.transforms_.content()
    values[_LEFT_OUT] = torch.as_tensor(imputer._table.left_out).byte()
    if hasattr(imputer, "conformal_"):
        content["conformal"] = imputer.conformal_.labels.tolist()
        values |= {f"conformal.{name}": torch.as_tensor(getattr(imputer.conformal_, name)) for name in _VALUES}
    write_content(folder, content, tensors | values)


def read_imputer(kind: type[Imputer], folder: str | Path) -> Imputer:
    """An imputer of that class from what :func:`write_imputer` wrote."""
    plain, tensors = read_content(folder)
    if "panel" in plain:
        return _read_panel(kind, plain, tensors)
    settings = _restored(plain["settings"])
    imputer: Any = kind(**settings)
    given = restored_table(plain["table"], tensors)
    imputer._axis = restored_axis(plain["axis"])
    validate_data(imputer, given if not hasattr(given, "to_frame") else given.to_frame(), skip_check_array=True)
    table, _ = read_table(given, settings["inputs"], settings["missing_values"], axis=imputer._axis)
    kinds = [Transform.of_content(each) for each in plain.get("transforms", [])]  # files of before have none
    imputer.transforms_ = Transforms(tuple(kinds), tuple(table.names)) if kinds else Transforms.none(table.names)
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
        table, values = table_content(part)
        tables.append(table)
        tensors |= {f"{number}.{name}": value for name, value in values.items()}
    content = {"settings": _settings(imputer), "panel": plain, "axis": axis_content(imputer._axis)}
    write_content(folder, content | {"tables": tables, "form": form.content()}, tensors)


def _read_panel(kind: type[Imputer], plain: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Imputer:
    """The imputer of :func:`_write_panel`."""
    imputer: Any = kind(**_restored(plain["settings"]))
    parts = []
    for number, table in enumerate(plain["tables"]):
        parts.append(restored_table(table, part_of(tensors, f"{number}.")))
    imputer._given = PanelForm.of_content(plain["form"]).joined(parts)
    imputer._axis = restored_axis(plain["axis"])
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
