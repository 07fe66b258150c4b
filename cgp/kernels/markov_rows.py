"""Which processes the outputs of a kernel of rows are made of, and where its rows lie on their common time line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, LCMKernel, MultitaskKernel, ProductKernel, ScaleKernel
from torch import Tensor

from cgp.functional.linalg import cholesky
from cgp.statespace.kernels import Constant, MarkovKernel, Steps
from cgp.statespace.space import StateSpace, state_space
from cgp.statespace.timeline import time_line

from .markov_forms import children_of, form_of, markov_obstacle, parts_of

__all__ = [
    "Layout",
    "MarkovTerm",
    "entries_of",
    "layout_of",
    "line_of",
    "markov_terms",
    "observed_rows",
    "space_of",
]


class MarkovTerm(NamedTuple):
    """A term of a kernel: the covariance of inputs, and that of outputs ``(*batch, P, P)``, None if it is 1."""

    form: MarkovKernel
    mixing: Tensor | None


class Layout(NamedTuple):
    """The meaning of a kernel's rows.

    Attributes:
        column: the feature that is the ordered input.
        output_column: the feature that says which output a row is of; None if there is one, or all at each input.
        outputs: number P of outputs.
        every: whether every input has all outputs.
        chosen: whether the kernel chooses its feature, and rows may have others.
    """

    column: int = 0
    output_column: int | None = None
    outputs: int = 1
    every: bool = False
    chosen: bool = False


def layout_of(kernel: Kernel) -> Layout:
    """The meaning of a kernel's rows; raises ValueError if a part is no Markov process, or features do not fit."""
    tasks = [part for part in parts_of(kernel) if isinstance(part, IndexKernel)]
    every = [part for part in parts_of(kernel) if isinstance(part, MultitaskKernel)]
    of_inputs = (part for part in parts_of(kernel) if not isinstance(part, IndexKernel | MultitaskKernel))
    chosen = {feature for part in of_inputs if (feature := _chosen(part)) is not None}
    if len(chosen) > 1:
        raise ValueError(f"kernel: expected one ordered input, got parts of the features {sorted(chosen)}")
    is_chosen, column = bool(chosen), chosen.pop() if chosen else 0
    for part in _pure(kernel):
        obstacle = markov_obstacle(part, column, batch=True)
        if obstacle is not None:
            raise ValueError(f"kernel: {obstacle}")
    sizes = {part.covar_factor.shape[-2] for part in tasks}
    if len(sizes) > 1:
        raise ValueError(f"kernel: expected one number of outputs, got {sorted(sizes)}")
    if every:
        return Layout(column, None, sizes.pop(), True, is_chosen)
    if not tasks:
        return Layout(column, chosen=is_chosen)
    outputs = {_chosen(part) for part in tasks}
    if len(outputs) > 1 or None in outputs or column in outputs:
        raise ValueError(
            "kernel: expected active_dims that say which feature is the input and which the output, "
            f"got {[part.active_dims for part in tasks]} for the outputs"
        )
    return Layout(column, outputs.pop(), sizes.pop(), chosen=is_chosen)


def markov_terms(kernel: Kernel) -> list[MarkovTerm]:
    """A kernel of rows as a sum of covariances of inputs times covariances of outputs."""
    if isinstance(kernel, ScaleKernel) and not _is_pure(kernel):
        return [term._replace(form=term.form * kernel.outputscale) for term in markov_terms(kernel.base_kernel)]
    if isinstance(kernel, AdditiveKernel) and not _is_pure(kernel):
        return [term for part in kernel.kernels for term in markov_terms(part)]
    if isinstance(kernel, LCMKernel):
        return [term for part in kernel.covar_module_list for term in markov_terms(part)]
    if isinstance(kernel, MultitaskKernel):
        return _product([markov_terms(kernel.data_covar_module), markov_terms(kernel.task_covar_module)])
    if isinstance(kernel, IndexKernel):
        return [MarkovTerm(Constant(), kernel._eval_covar_matrix())]
    if isinstance(kernel, ProductKernel) and not _is_pure(kernel):
        return _product([markov_terms(part) for part in kernel.kernels])
    return [MarkovTerm(form_of(kernel), None)]


def _product(factors: Sequence[list[MarkovTerm]]) -> list[MarkovTerm]:
    """The products of terms, one of each factor."""
    return reduce(lambda left, right: [_times(a, b) for a in left for b in right], factors)


def _times(left: MarkovTerm, right: MarkovTerm) -> MarkovTerm:
    forms = [term.form for term in (left, right) if not isinstance(term.form, Constant)]
    mixings = [term.mixing for term in (left, right) if term.mixing is not None]
    return MarkovTerm(reduce(mul, forms) if forms else Constant(), reduce(mul, mixings) if mixings else None)


def line_of(terms: Sequence[MarkovTerm], layout: Layout, x: Tensor, known: int) -> tuple[StateSpace, Tensor]:
    """The state space of rows, and the cell of each.

    Args:
        terms: terms of the kernel.
        layout: meaning of the rows.
        x: ``(*batch, n, d)``.
        known: number of first rows that have cells of their own; others may share them.

    Returns:
        The state space, whose tensors have the dimensions of a batch, and cells ``(*batch, n')``, of P times as many
        rows if every input has all outputs.

    Raises:
        ValueError: if the features do not fit.
    """
    times, outputs, known = entries_of(x, layout, known)
    if times.requires_grad or not _is_one_line(times, outputs):
        lags, steps, cells, start = _row_by_row(times, outputs, layout.outputs)
    else:
        times, outputs = (each.reshape(-1, each.shape[-1])[0] for each in (times, outputs))
        line = time_line(times, outputs, layout.outputs, known)
        lags, steps, cells, start = line.gaps, line.steps, line.cells, times[line.first].double()
    return space_of(terms, layout, Steps(lags, start), steps), cells


def space_of(terms: Sequence[MarkovTerm], layout: Layout, lags: Steps, steps: Tensor) -> StateSpace:
    """The state space of rows with the numbers ``(N,)`` of these lags before them."""
    pairs = [
        (process, _loadings(term.mixing, layout.outputs)) for term in terms for process in term.form.processes(lags)
    ]
    return state_space([process for process, _ in pairs], [loadings for _, loadings in pairs], steps)


def observed_rows(
    terms: Sequence[MarkovTerm], layout: Layout, x: Tensor, before: float | None = None
) -> tuple[StateSpace, Tensor, Tensor]:
    """The state space of observations.

    Args:
        terms: terms of the kernel.
        layout: meaning of the rows.
        x: ``(n, d)``.
        before: the input before the first row; None is that of the prior.

    Returns:
        The state space of N rows, the cell of each observation, ``(n',)``, and the inputs of the rows, ``(N,)``.
    """
    times, outputs, known = entries_of(x, layout, len(x))
    line = time_line(times, outputs, layout.outputs, known, before=None if before is None else (before, 0))
    inputs = torch.empty(len(line.steps), dtype=torch.float64)
    inputs[line.cells // layout.outputs] = times.double()
    space = space_of(terms, layout, Steps(line.gaps, times[line.first].double()), line.steps)
    return space, line.cells, inputs


def entries_of(x: Tensor, layout: Layout, known: int) -> tuple[Tensor, Tensor, int]:
    """Times and outputs of the rows of a covariance, ``(*batch, n)`` each, and the number of first ones."""
    needed = max(layout.column, layout.output_column or 0) + 1
    if x.shape[-1] < needed or (x.shape[-1] > 1 and layout == Layout()):
        raise ValueError(f"x: expected {needed} features, got {x.shape[-1]}")
    times = x[..., layout.column]
    if layout.every:
        outputs = torch.arange(layout.outputs).repeat(x.shape[-2]).expand(*x.shape[:-2], -1)
        return times.repeat_interleave(layout.outputs, dim=-1), outputs, known * layout.outputs
    if layout.output_column is None:
        return times, torch.zeros_like(times, dtype=torch.long), known
    column = x[..., layout.output_column].detach()
    outputs = column.long()
    wrong = (outputs != column) | (outputs < 0) | (outputs >= layout.outputs)
    if bool(wrong.any()):
        raise ValueError(
            f"x: expected outputs 0 to {layout.outputs - 1} in feature {layout.output_column}, "
            f"got {float(column[wrong][0]):g}"
        )
    return times, outputs, known


def _is_one_line(times: Tensor, outputs: Tensor) -> bool:
    """Whether all members of a batch have the same rows."""
    pairs = (each.reshape(-1, each.shape[-1]) for each in (times, outputs))
    return all(len(each) == 1 or bool((each == each[:1]).all()) for each in pairs)


def _row_by_row(times: Tensor, outputs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every entry as a row with a lag of its own, with gradients: lags, steps, cells and the first time."""
    ordered, order = times.double().sort(dim=-1, stable=True)
    lags = torch.cat([torch.zeros_like(ordered[..., :1]), ordered.diff(dim=-1)], dim=-1)
    rows = torch.empty_like(order).scatter(-1, order, torch.arange(order.shape[-1]).expand_as(order))
    return lags, torch.arange(order.shape[-1]), rows * count + outputs, ordered[..., 0]


def _loadings(mixing: Tensor | None, outputs: int) -> Tensor:
    if mixing is None:
        return torch.ones(outputs, 1, dtype=torch.float64)
    return cholesky(mixing.double(), name="covariance of the outputs", jitter=0.0)


def _is_pure(kernel: Kernel) -> bool:
    """Whether a kernel is one of inputs only."""
    return not any(isinstance(part, IndexKernel | MultitaskKernel) for part in parts_of(kernel))


def _pure(kernel: Kernel) -> Iterator[Kernel]:
    """The largest parts that are kernels of inputs only."""
    if _is_pure(kernel):
        yield kernel
        return
    for child in children_of(kernel):
        yield from _pure(child)


def _chosen(kernel: Kernel) -> int | None:
    """The one feature that a kernel chooses; None if it chooses none."""
    if kernel.active_dims is None:
        return None
    if kernel.active_dims.numel() != 1:
        raise ValueError(f"kernel: expected parts of one feature, got active_dims={kernel.active_dims.tolist()}")
    return int(kernel.active_dims)
