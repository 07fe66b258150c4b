"""Checks of labels, and of the logits of a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "NO_LABEL",
    "check_finite",
    "check_logits",
    "check_not_sigmoid",
    "check_outputs",
    "check_probabilities",
    "class_indices",
    "label_tensor",
    "log_probabilities",
    "rounding_step",
    "values_for",
    "whole_numbers",
]

NO_LABEL = -100
"""The label of examples that all scores ignore, as in torch's losses."""

_FEWEST_VALUES = 8
_STEPS = (100, 255, 256, 1_000, 10_000, 100_000, 1_000_000)  # that probabilities may be rounded to
_MOST_ROUNDING = 0.1  # of their sum, of any number of classes
_FEWEST_FRACTIONS, _UNSEEN = 20, 1e-6  # probabilities that show a step, and the largest zeros are taken for without one


def whole_numbers(labels: Tensor) -> Tensor:
    """Labels of several classes as integers, where none is lost: they are often the floats of a binary loss."""
    return labels.long() if bool((labels == labels.round()).all()) else labels


def label_tensor(labels: Any, name: str = "labels") -> Tensor:
    """Labels, or values, as a tensor.

    Args:
        labels: anything that :func:`torch.as_tensor` takes.
        name: name of the argument, for error messages.

    Returns:
        The tensor.

    Raises:
        TypeError: if they are no numbers, such as names of classes.

    Example:
        >>> label_tensor(["cat", "dog"])
        Traceback (most recent call last):
        ...
        TypeError: labels: expected numbers, such as class indices from 0, got 'cat' ...
    """
    try:
        return torch.as_tensor(labels.to_numpy(copy=True) if hasattr(labels, "iloc") else labels)  # by position
    except (RuntimeError, TypeError, ValueError) as error:
        parts = [labels] if isinstance(labels, str) else labels if hasattr(labels, "__len__") else ()
        first = next((label for label in parts if isinstance(label, str)), None)
        got = f"type {type(labels).__name__} ({error})" if first is None else f"{str(first)!r}"
        advice = "" if first is None else " (pass [names.index(name) for name in labels], with names in their order)"
        raise TypeError(f"{name}: expected numbers, such as class indices from 0, got {got}{advice}") from error


def class_indices(
    labels: Tensor | None,
    shape: tuple[int, ...] | None = None,
    *,
    name: str = "labels",
    every: bool = False,
    reads: bool = True,
) -> Tensor:
    """The labels as int64 class indices.

    Args:
        labels: whole numbers or booleans; None is an error.
        shape: shape of the logits, ``(N, ..., C)``; if None, only the labels are checked.
        name: name of the argument, for error messages.
        every: whether there has to be a label for every example; otherwise −100 stands where there is none.
        reads: whether the values are checked, for which an accelerator has to be waited for.

    Returns:
        The labels, int64.

    Raises:
        ValueError: if they are none; the message says what to pass.

    Example:
        >>> class_indices(torch.tensor([1, 2, 3]), (3, 3))
        Traceback (most recent call last):
        ...
        ValueError: labels: expected labels that are class indices from 0 to 2, got 1 to 3 (pass labels - 1)
    """
    if labels is None:
        raise ValueError(f"{name}: expected batches (inputs, labels) or dicts with 'labels', got some without labels")
    if shape is not None and labels.shape != shape[:-1]:
        got, advice = tuple(labels.shape), _advice_on_shape(tuple(labels.shape), shape)
        raise ValueError(f"{name}: expected labels of shape {tuple(shape[:-1])}, got {got}{advice}")
    if labels.is_floating_point() or labels.is_complex():
        is_wide = labels.dim() > 1
        advice = (
            "labels.argmax(-1) if they are one-hot, the two swapped as (inputs, labels) if they are inputs, "
            if is_wide
            else ""
        )
        raise ValueError(
            f"{name}: expected labels that are class indices, which are whole numbers, got {labels.dtype} "
            f"(pass {advice}labels.long() if they are indices; say task='regression' if they are values of one)"
        )
    indices = labels.long()
    if not reads:
        return indices
    real = indices.flatten() if every else indices[indices != NO_LABEL]
    if not len(real):
        return indices
    wanted = "class indices at least 0" if shape is None else f"class indices from 0 to {shape[-1] - 1}"
    least, most = int(real.min()), int(real.max())
    if least < 0:
        advice = "leave out what has no label" if every else f"pass {NO_LABEL} where there is no label"
        raise ValueError(f"{name}: expected labels that are {wanted}, got {least} ({advice})")
    if shape is not None and most >= shape[-1]:
        advice = " (pass labels - 1)" if (least, most) == (1, shape[-1]) else ""
        raise ValueError(f"{name}: expected labels that are {wanted}, got {least} to {most}{advice}")
    return indices


def values_for(mean: Tensor, labels: Sequence[Tensor | None], name: str = "data", *, first: int = 0) -> Tensor:
    """Values in the shape of a model's outputs ``(N, C)``, finite."""
    values = torch.cat([part for part in labels if part is not None]).to(mean)
    values = values[:, None] if mean.shape[1:] == (1,) and values.dim() == 1 else values
    if values.shape != mean.shape or values.dim() != 2:
        shapes = f"{tuple(values.shape)} and {tuple(mean.shape)}"
        raise ValueError(f"{name}: expected values (N, C) of as many outputs as the model has, got {shapes}")
    for source, numbers in ((name, values), ("model", mean)):
        if not numbers.isfinite().all():
            row = first + int((~numbers.isfinite()).nonzero()[0, 0])
            raise ValueError(f"{source}: expected finite values, got NaN or infinity in row {row}")
    return values


def check_logits(logits: Tensor, *, classes_last: bool = False) -> None:
    """Raise unless values are logits ``(N, ..., C)`` of at least two classes.

    Args:
        logits: logits of one batch.
        classes_last: whether the user has said that the classes are the last dimension. Otherwise images of logits
            are refused: the classes of segmenters come first.

    Raises:
        ValueError: if they are a single logit, images or probabilities; the message says what to pass.

    Example:
        >>> check_logits(torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
        Traceback (most recent call last):
        ...
        ValueError: model: expected logits, got rows that sum to one, as behind a softmax ...
    """
    shape = tuple(logits.shape)
    if len(shape) < 2 or shape[-1] < 2:
        advice = " (for a single logit z pass output=lambda z: torch.cat([0 * z, z], -1))" if shape[-1:] == (1,) else ""
        advice = advice or (" (of one input x pass x[None])" if len(shape) == 1 else "")
        raise ValueError(f"model: expected logits (N, ..., C >= 2), got shape {shape}{advice}")
    if len(shape) > 3 and not classes_last:
        raise ValueError(
            f"model: expected logits (N, C) or (N, n, C), got shape {shape} (pass output=lambda out: "
            "out.movedim(1, -1) where the classes come first, as in segmentation, or output=lambda out: out where they "
            "are last)"
        )
    if _are_probabilities(logits):
        raise ValueError(
            "model: expected logits, got rows that sum to one, as behind a softmax (take the logits before it, or "
            "pass output='probabilities')"
        )


def check_probabilities(p: Tensor) -> None:
    """Raise unless values ``(N, ..., C)`` are probabilities whose rows sum to one, but for rounding."""
    if not _are_probabilities(p):
        sums = f"values from {float(p.min()):.4g} on, in rows that sum to {float(p.sum(-1).max()):.4g}"
        raise ValueError(f"model: expected probabilities, whose rows sum to one, got {sums}")


def check_outputs(outputs: Tensor, what: str = "outputs") -> None:
    """Raise unless there is an output ``(N, ..., C >= 1)`` for each input."""
    if outputs.dim() < 2 or not outputs.shape[-1]:
        advice = " (pass output=lambda out: out[:, None], or of one input x[None])" if outputs.dim() == 1 else ""
        raise ValueError(f"model: expected {what} (N, ..., C >= 1), got shape {tuple(outputs.shape)}{advice}")


def check_finite(values: Tensor, labels: Tensor | None = None, *, first: int = 0, name: str = "model") -> None:
    """Raise for logits ``(N, ..., C)`` without a finite softmax, naming their row.

    Args:
        values: logits of one batch.
        labels: labels ``(N, ...)``; rows without a label (−100) are ignored.
        first: number of rows before this batch.
        name: name of their source, for error messages.

    Raises:
        ValueError: if a row has NaN, +∞, or −∞ for every class; −∞ for some of them is a class that is masked.

    Example:
        >>> check_finite(torch.tensor([[0.5, 1.0], [0.5, torch.nan]]), first=10)
        Traceback (most recent call last):
        ...
        ValueError: model: expected finite values, got nan in row 11: are the inputs finite?
    """
    bad = ~values.float().logsumexp(-1).isfinite()
    bad = bad if labels is None else bad & (labels != NO_LABEL)
    if bad.any():
        row = tuple(bad.nonzero()[0].tolist())
        place = ", position ".join(map(str, (first + row[0], *row[1:])))
        wrong = values[row][~values[row].isfinite()][0].item()
        raise ValueError(f"{name}: expected finite values, got {wrong} in row {place}: are the inputs finite?")


def check_not_sigmoid(logits: Tensor) -> None:
    """Raise for values that are all in [0, 1], as behind a sigmoid; a few logits may be there by chance.

    Args:
        logits: of labels that are there or not, ``(N, ..., C)``.

    Raises:
        ValueError: if there are eight or more of them, and all are probabilities.

    Example:
        >>> check_not_sigmoid(torch.linspace(0.1, 0.9, 8)[:, None])
        Traceback (most recent call last):
        ...
        ValueError: model: expected logits, got values in [0, 1] only, as behind a sigmoid ...
    """
    inside = logits.numel() >= _FEWEST_VALUES and bool(((logits >= 0) & (logits <= 1)).all())
    if inside and bool(logits.any()):
        raise ValueError(
            "model: expected logits, got values in [0, 1] only, as behind a sigmoid (take the logits before it, or "
            "pass output=lambda p: p.logit(1e-6); output=lambda z: z if they are logits)"
        )


def log_probabilities(p: Tensor, step: float | None = None) -> Tensor:
    r"""Logarithms of probabilities, which serve as logits, where zeros may be rounded.

    .. math:: f_c = \log \begin{cases} p_c & p_c > 0 \\ \tfrac12 \Delta / \#\{c' : p_{c'} = 0\} & p_c = 0 \end{cases}

    with the step :math:`\Delta` that they are rounded to: the zeros of a row share half of it, as each is below that,
    and together they are hardly more than what is missing to one.

    Args:
        p: ``(N, ..., C)``.
        step: that they are rounded to, 0 for none; None is that of :func:`rounding_step`.

    Returns:
        The logarithms, ``(N, ..., C)``, of at least single precision.

    Example:
        >>> log_probabilities(torch.tensor([[0.25, 0.75]])).exp()
        tensor([[0.2500, 0.7500]])
    """
    zeros, exact = p == 0, p.double()
    step = rounding_step(p) if step is None else step
    shared = 0.5 * (step or _least_positive(exact)) / zeros.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(zeros, shared, exact).log().to(torch.promote_types(p.dtype, torch.float32))


def rounding_step(p: Tensor) -> float:
    """The step that probabilities are rounded to, such as 0.001 of three decimals.

    Args:
        p: ``(N, ..., C)``.

    Returns:
        The step; 0 where none is seen, or none of them is zero, or fewer than twenty are between 0 and 1.

    Example:
        >>> p = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)).mul(20).softmax(-1)
        >>> rounding_step(p), rounding_step(p.double().round(decimals=3))
        (0.0, 0.001)
    """
    if not bool((p == 0).any()) or int(((p > 0) & (p < 1)).sum()) < _FEWEST_FRACTIONS:
        return 0.0
    return next((1.0 / steps for steps in _steps(p, 0.9 / float(p[p > 0].min()))), 0.0)


def _least_positive(p: Tensor) -> float:
    """What zeros are taken to be below where no step is seen."""
    return min(_UNSEEN, float(p[p > 0].min()))


def _steps(p: Tensor, fewest: float = 0.0) -> Iterator[int]:
    """How many steps from 0 to 1, at least so many, probabilities are multiples of."""
    exact = p.double()
    for steps in (each for each in _STEPS if each > fewest):
        scaled = exact * steps
        if bool(((scaled - scaled.round()).abs() <= 1.2e-7 * steps).all()):
            yield steps


def _are_probabilities(logits: Tensor) -> bool:
    if not logits.numel() or bool((logits < 0).any()):
        return False
    apart = float((logits.double().sum(-1) - 1.0).abs().max())
    return apart <= (_rounding(logits) if logits.is_floating_point() else 0.0)


def _rounding(p: Tensor) -> float:
    """How far the sum of probabilities may be from one: those of half precision, or rounded to decimals or bytes."""
    exact = [kind for kind in (p.dtype, torch.float16, torch.bfloat16) if torch.equal(p, p.to(kind).to(p.dtype))]
    errors = [1e-5, *(4.0 * torch.finfo(kind).eps for kind in exact)]
    errors += [min(0.5 * p.shape[-1] / steps, _MOST_ROUNDING) for steps in _steps(p)]
    return max(errors)


def _advice_on_shape(got: tuple[int, ...], logits: tuple[int, ...]) -> str:
    if got == (*logits[:-1], 1):
        return " (pass labels.squeeze(-1))"
    if got == logits:
        return " (pass labels.argmax(-1) if they are one-hot)"
    if got == (*logits[:1], *logits[2:]):
        return " (pass output=lambda out: out.movedim(1, -1): the classes come first here)"
    return ""
