"""Inputs of models: tensors, arrays, tuples, dicts, lists of examples, data sets and loaders, in batches."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from cgp.networks.model.labels import check_probabilities, label_tensor, log_probabilities, rounding_step
from cgp.networks.model.structural_copy import structural_copy, with_own_buffers
from cgp.spelling import first_of, meant
from cgp.warning import warn_user

__all__ = [
    "Batch",
    "batches",
    "call_model",
    "check_finite_inputs",
    "check_labelled",
    "input_batches",
    "is_batch",
    "is_cache",
    "logits_of",
    "logits_of_probabilities",
    "model_device",
    "refuse_labels_apart",
    "split_inputs",
    "to_device",
    "with_own_caches",
]

_LABELS = ("labels", "label")
_DEFAULT_BATCH = 32
_ROWS_SHOWN = 5
_BATCH_DIMENSIONS = {"input_ids": 2, "inputs_embeds": 3, "input_values": 2, "input_features": 3, "pixel_values": 4}


class Batch(NamedTuple):
    """A batch of examples.

    Attributes:
        inputs: arguments of the model.
        labels: labels of the batch, or None if the source has none.
    """

    inputs: Any
    labels: Tensor | None


def call_model(model: nn.Module, inputs: Any, **options: Any) -> Any:
    """Call a model: a dict gives keyword arguments, a tuple or list positional ones, anything else is one argument."""
    inputs = with_own_caches(inputs)  # so that every call finds a cache as it was given
    try:
        if isinstance(inputs, Mapping):
            return model(**inputs, **options)
        return model(*inputs, **options) if isinstance(inputs, tuple | list) else model(inputs, **options)
    except (RuntimeError, IndexError, ValueError, AssertionError) as error:
        _refuse_none(model, inputs, error)
        _refuse_other_precision(model, inputs, error)
        _say_shapes(model, inputs, error)
        raise
    except TypeError as error:
        _refuse_other_keys(model, inputs, error)
        raise


def check_labelled(model: nn.Module, batch: Batch, name: str) -> None:
    """Raise for a batch that is a dict without labels, such as one that calls them otherwise.

    Args:
        model: whose arguments the other values are.
        batch: as :func:`batches` yields it.
        name: name of the argument, for error messages.

    Raises:
        ValueError: if it is; the message names the keys.

    Example:
        >>> check_labelled(nn.Linear(2, 2), Batch({"x": torch.zeros(1, 2), "y": torch.zeros(1)}, None), "data")
        Traceback (most recent call last):
        ...
        ValueError: data: expected dicts with 'labels' and the arguments of Linear.forward, 'input', got 'x', 'y'
    """
    if batch.labels is None and isinstance(batch.inputs, Mapping):
        got = ", ".join(map(repr, batch.inputs))
        raise ValueError(f"{name}: expected dicts with 'labels' and {_said_arguments(model)}, got {got}")


def _said_arguments(model: nn.Module) -> str:
    """The arguments of a model in words."""
    named = [p for p in _signature(model).values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return ", ".join([f"the arguments of {type(model).__name__}.forward", *(repr(each.name) for each in named)])


def _signature(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The parameters of a model; none where they are not known, as of TorchScript."""
    try:
        return inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return {}


def _refuse_other_keys(model: nn.Module, inputs: Any, error: Exception) -> None:
    """Say which keys a dict should have, where it is not what a model takes."""
    if not isinstance(inputs, Mapping) or not (known := _signature(model)):
        return
    strange = (
        [] if any(p.kind is p.VAR_KEYWORD for p in known.values()) else [key for key in inputs if key not in known]
    )
    lacking = [p.name for p in known.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if strange or not {*lacking} <= {*inputs}:
        advice = meant(strange, known) or (f" (leave out {', '.join(map(repr, strange))})" if strange else "")
        got = ", ".join(map(repr, inputs)) + advice
        raise ValueError(f"inputs: expected {_said_arguments(model)}, and perhaps 'labels', got {got}") from error


def _refuse_none(model: nn.Module, inputs: Any, error: Exception) -> None:
    """Say that there are no inputs, where a model cannot take none."""
    given: list[Tensor] = []
    _each(inputs, lambda tensor: given.append(tensor) if tensor.dim() else None)
    if given and not any(map(len, given)):
        got = f"got an empty batch, {tuple(given[0].shape)} (leave it out)"
        raise ValueError(f"inputs: expected at least one input of {type(model).__name__}, {got}") from error


def _refuse_other_precision(model: nn.Module, inputs: Any, error: Exception) -> None:
    """Say what torch's error on dtypes means, where inputs are of another precision than all weights."""
    given: set[torch.dtype] = set()
    _each(inputs, lambda tensor: given.add(tensor.dtype))
    given = {dtype for dtype in given if dtype.is_floating_point} or given  # beside masks and indices
    known = {p.dtype for p in model.parameters() if p.is_floating_point()}
    is_of_indices = "indices" in str(error)  # of an embedding
    if "type" in str(error) and not is_of_indices and len(given) == len(known) == 1 and given != known:
        dtype, advice = given.pop(), " (scale them as in training)"
        got = f"{dtype}{'' if dtype.is_floating_point else advice}"
        raise ValueError(
            f"inputs: expected {known.pop()}, as the weights of {type(model).__name__}, got {got}"
        ) from error


def _say_shapes(model: nn.Module, inputs: Any, error: Exception) -> None:
    """Say what came, beside an error on shapes of torch or the model, which may be of the inputs or of the model."""
    of_torch = ("shape", "size", "dimension", "channels")
    said = {  # norms expect "4D input (got 3D input)", and vision transformers unpack four sizes, or assert each
        RuntimeError: of_torch,
        IndexError: of_torch,
        ValueError: ("d input (got", "values to unpack"),
        AssertionError: ("",),
    }
    if not any(word in str(error).lower() for word in said.get(type(error), ())):
        return
    given: list[str] = []
    _each(inputs, lambda tensor: given.append(f"{tensor.dtype} {tuple(tensor.shape)}"))
    kind = ValueError if isinstance(error, AssertionError) else type(error)
    raise kind(
        f"inputs: expected what {type(model).__name__} takes, with examples along the first dimension (x[None] of one "
        f"example x), got {', '.join(given)} ({error})"
    ) from error


def refuse_labels_apart(call: str, labels: Sequence[Any], others: Iterable[str] = (), known: Any = None) -> None:
    """Raise for labels that come as an argument of their own, and for names of arguments that there are not.

    Args:
        call: name of the function of ``cgp`` that was called.
        labels: what came after the data; nothing is as it should be.
        others: names of arguments that it has not.
        known: the function.

    Raises:
        TypeError: if there is anything.

    Example:
        >>> refuse_labels_apart("assess", [torch.zeros(2)])
        Traceback (most recent call last):
        TypeError: data: expected batches, got inputs and labels apart: cgp.assess(model, [(inputs, labels)])
    """
    if labels or {"label", "labels", "targets", "y"} & {*others}:
        raise TypeError(f"data: expected batches, got inputs and labels apart: cgp.{call}(model, [(inputs, labels)])")
    for name in others:
        names = [*inspect.signature(known).parameters.keys() - {"labels", "others"}]
        raise TypeError(f"{call}: unexpected argument {name!r}{meant([name], names)}")


def is_cache(value: Any) -> bool:
    """Whether a value is a cache of keys and values, which a decoder appends to in every call."""
    return any("cache" in kind.__name__.lower() for kind in type(value).__mro__)


def with_own_caches(inputs: Any) -> Any:
    """Inputs of a model in which every cache is a copy, with its own tensors; all else is shared.

    Args:
        inputs: a value, or a tuple, list or dict of them.

    Returns:
        The same structure; ``inputs`` itself where there is no cache.

    Example:
        >>> x = torch.zeros(2)
        >>> with_own_caches({"x": x})["x"] is x
        True
    """
    values = (
        inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple | list) else [inputs]
    )
    if not any(is_cache(value) for value in values):
        return inputs
    if isinstance(inputs, Mapping):
        return {name: with_own_caches(value) for name, value in inputs.items()}
    return [with_own_caches(value) for value in inputs] if isinstance(inputs, tuple | list) else _copied(inputs)


def _copied(value: Any) -> Any:
    """A copy of an object, of what it holds, and of their tensors, which need not be leaves of a graph."""
    kind = type(value)
    if isinstance(value, Tensor):
        return value.detach().clone()
    if kind in (list, tuple, set):
        return kind(_copied(item) for item in value)
    if kind is dict:
        return {name: _copied(item) for name, item in value.items()}
    if not isinstance(getattr(value, "__dict__", None), dict) or isinstance(value, nn.Module) or callable(value):
        return value
    changed = copy.copy(value)
    vars(changed).update({name: _copied(item) for name, item in vars(value).items()})
    return changed


def logits_of(output: Any) -> Tensor:
    """The logits ``(B, ..., C)`` in what a model returns: a tensor, or an object or mapping with ``logits``."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"model: expected a tensor of logits or an output with .logits, got {type(output).__name__} "
            "(pass output=, which takes them from it: output=lambda out: out[0] of a tuple)"
        )
    return logits


def logits_of_probabilities(output: Any) -> Tensor:
    """The logarithms of the probabilities ``(B, ..., C)`` in what a model returns; a warning if they are rounded."""
    p = logits_of(output)
    check_probabilities(p)
    step = rounding_step(p)
    if step:
        warn_user(
            f"model: these probabilities seem rounded to {step:.3g}: zeros of an input share half of that, which is a "
            "guess (logits, or more digits, say how improbable they are, and with that the temperature)"
        )
    return log_probabilities(p, step)


def model_device(model: nn.Module) -> torch.device:
    """The device of a model's first parameter; the CPU if it has none."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def to_device(inputs: Any, device: torch.device) -> Any:
    """Move every tensor in a tensor, tuple, list or dict to a device."""
    return _each(inputs, lambda tensor: tensor.to(device))


def batches(data: Any, batch_size: int | None = None, *, dtype: torch.dtype | None = None) -> Iterator[Batch]:
    """Read batches of inputs, and of labels if there are any.

    Args:
        data: one of

            - a tensor, an array, a tuple of arguments or a dict of them: split along the first dimension,
            - a list of dicts, one per example: stacked; sequences of several lengths are padded by zeros,
            - a data set or loader (or other iterator) of ``(inputs, labels)``, of dicts with or without "labels", or of
              inputs.
        batch_size: examples per batch. None is all at once for tensors, and 32 for a list or data set; loaders
            determine it themselves.
        dtype: dtype to which floating-point NumPy arrays are converted; None keeps theirs.

    Yields:
        The batches in order.

    Raises:
        ValueError: if the batch size is not positive, or examples cannot be stacked.

    Example:
        >>> [len(batch.inputs) for batch in batches(np.zeros((5, 2)), 2)]
        [2, 2, 1]
        >>> next(batches([{"ids": [1, 2], "labels": 0}, {"ids": [3, 4], "labels": 1}])).labels
        tensor([0, 1])
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    loader: Iterable[Any] = data
    if _are_examples(data) or isinstance(data, Dataset) or _looks_like_dataset(data):
        generator = torch.Generator()  # otherwise the loader would draw from the global generator
        loader = DataLoader(data, batch_size or _DEFAULT_BATCH, collate_fn=_collate, generator=generator)
    elif isinstance(data, Tensor | np.ndarray | Mapping | tuple | list):
        inputs = _tensors_for_arrays(data, dtype)
        yield from (Batch(part, None) for part in split_inputs(inputs, batch_size))
        return
    for batch in loader:
        inputs, labels = _without_labels(batch)
        yield Batch(_tensors_for_arrays(inputs, dtype), labels)


def input_batches(
    model: nn.Module, inputs: Any, batch_size: int | None = None, *, name: str = "inputs"
) -> Iterator[Batch]:
    """The batches of any inputs that :func:`cgp.predict` accepts; arrays are converted to the model's dtype."""
    if isinstance(inputs, tuple):
        _check_arguments(model, inputs)
    are_batches = isinstance(inputs, list) and bool(inputs) and all(map(is_batch, inputs))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    first = 0
    if isinstance(inputs, tuple | list) and not inputs:
        raise ValueError(f"{name}: expected at least one batch, got none")
    for batch in batches(iter(inputs) if are_batches else inputs, batch_size, dtype=dtype):
        _check_no_numbers(batch.inputs, name)
        first += check_finite_inputs(model, batch.inputs, name, first)
        yield batch


def check_finite_inputs(model: nn.Module, inputs: Any, name: str = "inputs", first: int = 0) -> int:
    """Raise for NaN or infinity in a batch of inputs, unless the model makes numbers of it.

    Args:
        model: only called where there is NaN or infinity; a model may fill gaps itself.
        inputs: arguments of the model.
        name: name of the inputs, for error messages.
        first: number of inputs before this batch.

    Returns:
        The number of inputs.

    Raises:
        ValueError: if there are such inputs, of which it returns NaN or infinity; their rows are named.

    Example:
        >>> check_finite_inputs(nn.Linear(1, 2), torch.tensor([[0.0], [torch.nan]]), first=10)
        Traceback (most recent call last):
        ...
        ValueError: inputs: expected finite values, got NaN or infinity in row 11 (fill them, ...
    """
    given: list[Tensor] = []
    _each(inputs, lambda tensor: given.append(tensor) if tensor.dim() else None)
    count = len(given[0]) if given else 0
    bad = _not_finite(given, count)
    if bad.any():
        copy = with_own_buffers(structural_copy(model))
        for module in copy.modules():
            module.training = False
        with torch.no_grad():
            leaves = pytree.tree_leaves(call_model(copy, to_device(inputs, model_device(copy))))
        returned = (leaf if isinstance(leaf, Tensor) else getattr(leaf, "logits", None) for leaf in leaves)
        bad &= _not_finite([leaf for leaf in returned if isinstance(leaf, Tensor) and leaf.dim()], count)
    if bad.any():
        rows = (bad.nonzero()[:, 0] + first).tolist()
        raise ValueError(
            f"{name}: expected finite values, got NaN or infinity in {'row' if len(rows) == 1 else 'rows'} "
            f"{first_of(map(str, rows), _ROWS_SHOWN)} (fill them, or leave these inputs out)"
        )
    return count


def _not_finite(tensors: Sequence[Tensor], count: int) -> Tensor:
    """Which of so many rows have NaN or infinity; −∞ stands where something is masked."""
    bad = torch.zeros(count, dtype=torch.bool)
    for tensor in tensors:
        if tensor.is_floating_point() and len(tensor) == count:
            bad |= ~(tensor < torch.inf).reshape(count, math.prod(tensor.shape[1:])).all(1).cpu()
    return bad


def is_batch(item: Any) -> bool:
    """Whether an item of a list is a batch: a pair with labels, or a dict whose tensors have a batch's dimensions."""
    if isinstance(item, Mapping):
        return any(getattr(item.get(name), "ndim", None) == count for name, count in _BATCH_DIMENSIONS.items())
    return isinstance(item, tuple) and len(item) == 2


def _check_arguments(model: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Raise for a tuple that does not match the model's arguments, such as inputs and labels."""
    if not (known := _signature(model)):
        return
    try:
        inspect.Signature([*known.values()]).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"inputs: expected the arguments of {type(model).__name__}.forward, got a tuple of "
            f"{len(arguments)} (pass [(inputs, labels)] for a batch with labels)"
        ) from error


def _check_no_numbers(inputs: Any, name: str) -> None:
    """Raise for lists of numbers, which a model would take as positional arguments."""
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], list | int | float):
        items = "lists" if isinstance(inputs[0], list) else "numbers"
        raise ValueError(
            f"{name}: expected inputs that are tensors or arrays, got a list of {items} (pass torch.tensor(inputs))"
        )


def split_inputs(inputs: Any, batch_size: int | None) -> Iterator[Any]:
    """A tensor, tuple, list or dict, in batches along the first dimension of every tensor; None is all at once."""
    if batch_size is None:
        yield inputs
        return
    sizes: set[int] = set()
    if isinstance(inputs, Mapping | tuple | list) and with_own_caches(inputs) is not inputs:
        raise ValueError(f"batch_size: expected None with a cache, which cannot be split, got {batch_size}")
    _each(inputs, lambda tensor: sizes.add(tensor.shape[0] if tensor.dim() else 0))
    if len(sizes) != 1:
        raise ValueError(
            f"inputs: expected tensors with one first dimension to split, got sizes {sorted(sizes)} "
            "(batch_size=None passes them whole)"
        )
    for start in range(0, sizes.pop(), batch_size):
        part = slice(start, start + batch_size)
        yield _each(inputs, lambda tensor, part=part: tensor[part])


def _each(value: Any, change: Any) -> Any:
    """A tensor, tuple, list or dict with every tensor in it changed."""
    if isinstance(value, Mapping):
        return {name: _each(item, change) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_each(item, change) for item in value)
    return change(value) if isinstance(value, Tensor) else value


def _tensors_for_arrays(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(value))
        return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
    if isinstance(value, Mapping):
        return {name: _tensors_for_arrays(item, dtype) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_tensors_for_arrays(item, dtype) for item in value)
    return value


def _are_examples(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and all(isinstance(item, Mapping) for item in data)


def _looks_like_dataset(data: Any) -> bool:
    known = isinstance(data, Tensor | np.ndarray | Mapping | tuple | list | DataLoader)
    return not known and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _without_labels(batch: Any) -> tuple[Any, Tensor | None]:
    if isinstance(batch, Mapping):
        key = next((name for name in _LABELS if name in batch), None)
        labels = None if key is None or batch[key] is None else label_tensor(batch[key])
        return {name: value for name, value in batch.items() if name not in _LABELS}, labels
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], None if batch[1] is None else label_tensor(batch[1])
    return (batch[0] if isinstance(batch, tuple | list) and len(batch) == 1 else batch), None


def _collate(examples: list[Any]) -> Any:
    """Examples stacked; in dicts, sequences of several lengths padded by zeros."""
    if not isinstance(examples[0], Mapping):
        return torch.utils.data.default_collate(examples)
    columns = {name: [example[name] for example in examples] for name in examples[0]}
    return {name: _stacked(name, values, "attention_mask" in columns) for name, values in columns.items()}


def _stacked(name: str, values: list[Any], has_mask: bool) -> Any:
    if any(isinstance(value, str | bytes) or value is None for value in values):
        raise ValueError(
            f"data: expected numbers in {name!r}, got {type(values[0]).__name__} (tokenise the text first)"
        )
    tensors = [label_tensor(value) if name in _LABELS else torch.as_tensor(value) for value in values]
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(tensors)
    if not has_mask or any(tensor.dim() != 1 for tensor in tensors):
        raise ValueError(
            f"data: expected {name!r} of one shape, or sequences with an 'attention_mask', "
            f"got shapes {sorted({tuple(tensor.shape) for tensor in tensors})}"
        )
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=-100 if name in _LABELS else 0)
