"""Imputers on disk: a folder with the table, the axis, the regressor and the hidden blocks, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import validate_data

from cgp.regression.storage import regressor_content, restored_regressor, restored_settings, settings_content

from .conformal import Conformal
from .frames.storage import axis_content, read_content, restored_axis, restored_table, table_content, write_content
from .frames.table import input_columns, read_table

__all__ = ["read_imputer", "write_imputer"]

Imputer = TypeVar("Imputer")

_VALUES = ("scores", "blocks")  # of conformal intervals
_LEFT_OUT = "table.left_out"


def write_imputer(imputer: Any, folder: str | Path) -> None:
    """Write a fitted imputer to a folder."""
    plain, tensors = regressor_content(imputer.regressor_)
    table, values = table_content(imputer._table.given)
    content = {"settings": _settings(imputer), "regressor": plain, "table": table, "axis": axis_content(imputer._axis)}
    values[_LEFT_OUT] = torch.as_tensor(imputer._table.left_out).byte()
    if hasattr(imputer, "conformal_"):
        content["conformal"] = imputer.conformal_.labels.tolist()
        values |= {f"conformal.{name}": torch.as_tensor(getattr(imputer.conformal_, name)) for name in _VALUES}
    write_content(folder, content, tensors | values)


def read_imputer(kind: type[Imputer], folder: str | Path) -> Imputer:
    """An imputer of that class from what :func:`write_imputer` wrote."""
    plain, tensors = read_content(folder)
    settings = restored_settings(plain["settings"])
    imputer: Any = kind(**settings)
    given = restored_table(plain["table"], tensors)
    imputer._axis = restored_axis(plain["axis"])
    validate_data(imputer, given if not hasattr(given, "to_frame") else given.to_frame(), skip_check_array=True)
    table, _ = read_table(given, settings["inputs"], settings["missing_values"], axis=imputer._axis)
    regressor = imputer._regressor()
    imputer.regressor_ = restored_regressor(regressor, plain["regressor"], tensors, table.outputs())
    imputer._parts, imputer._known = [table._replace(left_out=tensors[_LEFT_OUT].bool().numpy())], None
    if "conformal" in plain:
        scores, blocks = (tensors[f"conformal.{name}"].numpy() for name in _VALUES)
        imputer.conformal_ = Conformal(scores, blocks, np.array(plain["conformal"]))
    return imputer


def _settings(imputer: Any) -> dict[str, Any]:
    """The arguments as values for JSON."""
    settings: dict[str, Any] = imputer.get_params(deep=False)
    codes = np.atleast_1d(np.asarray(settings["missing_values"], dtype=np.float64)).tolist()
    inputs = input_columns(settings["inputs"]) or None
    return settings_content(settings) | {"missing_values": codes, "inputs": inputs}
