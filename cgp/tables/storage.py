"""Saving and loading of imputers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted, validate_data

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.storage import regressor_content, restored_regressor, restored_settings, settings_content

from .answers import ProcessMixin
from .conformal import Conformal
from .filled import Filling
from .frames.storage import axis_content, read_content, restored_axis, restored_table, table_content, write_content
from .frames.table import Table, input_columns, read_table

__all__ = ["StorageMixin"]

_VALUES = ("scores", "blocks")  # of conformal intervals


class StorageMixin(ProcessMixin):
    """An imputer that can be saved to a folder, without pickle."""

    _parts: list[Table]
    _known: Filling | None

    def save(self, folder: str | Path) -> None:
        """Write the imputer to a folder, with the table that it knows, as safetensors and JSON.

        Args:
            folder: is made if it is not there.

        Raises:
            ValueError: if the kernel is an object, or a name of a column is neither text nor a number.
            OSError: if it cannot be written.
        """
        check_is_fitted(self)
        plain, tensors = regressor_content(self.regressor_)
        table, values = table_content(self._table.given)
        content = {"settings": self._settings(), "regressor": plain, "table": table, "axis": axis_content(self._axis)}
        if hasattr(self, "conformal_"):
            content["conformal"] = self.conformal_.labels.tolist()
            values |= {f"conformal.{name}": torch.as_tensor(getattr(self.conformal_, name)) for name in _VALUES}
        write_content(folder, content, tensors | values)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            folder: that it was written to.

        Returns:
            An imputer that fills as the one that was saved.

        Raises:
            ValueError: if the file is damaged, or of a later version.
            OSError: if it cannot be read.
        """
        plain, tensors = read_content(folder)
        settings = restored_settings(plain["settings"])
        imputer = cls(**settings)
        given = restored_table(plain["table"], tensors)
        imputer._axis = restored_axis(plain["axis"])
        validate_data(imputer, given if not hasattr(given, "to_frame") else given.to_frame(), skip_check_array=True)
        table, _ = read_table(given, settings["inputs"], settings["missing_values"], axis=imputer._axis)
        regressor = imputer._regressor()
        imputer.regressor_ = restored_regressor(regressor, plain["regressor"], tensors, table.outputs())
        imputer._parts, imputer._known = [table], None
        if "conformal" in plain:
            scores, blocks = (tensors[f"conformal.{name}"].numpy() for name in _VALUES)
            imputer.conformal_ = Conformal(scores, blocks, np.array(plain["conformal"]))
        return imputer

    def _settings(self) -> dict[str, Any]:
        """The arguments as values for JSON."""
        settings: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        codes = np.atleast_1d(np.asarray(settings["missing_values"], dtype=np.float64)).tolist()
        inputs = input_columns(settings["inputs"]) or None
        return settings_content(settings) | {"missing_values": codes, "inputs": inputs}

    def _regressor(self) -> CorrelatedGPRegressor:
        """A regressor with the imputer's arguments, not fitted."""
        raise NotImplementedError
