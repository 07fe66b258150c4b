"""GPyTorch kernels of one input as Markov processes: the one place that knows which kernel is which process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce, singledispatch
from operator import add, mul
from typing import Protocol, runtime_checkable

from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LCMKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    ProductKernel,
    ScaleKernel,
)
from torch import Tensor

from cgp.statespace import kernels as forms
from cgp.statespace.kernels import MarkovKernel, Steps
from cgp.statespace.processes import MarkovProcess

__all__ = [
    "HasMarkovForm",
    "children_of",
    "form_of",
    "markov_form",
    "markov_obstacle",
    "markov_processes",
    "parts_of",
]


@runtime_checkable
class HasMarkovForm(Protocol):
    """A GPyTorch kernel that says itself which Markov process it is."""

    def markov_form(self) -> MarkovKernel:
        """The kernel as a state space, with its present parameters."""


def markov_processes(kernel: Kernel, steps: Steps) -> list[MarkovProcess]:
    r"""Independent processes whose covariances add up to that of a kernel.

    Args:
        kernel: Matérn, periodic, cosine, linear or constant, scaled, or sums or products of these, or of kernels that
            have a ``markov_form``.
        steps: the inputs, in order, in the kernel's units.

    Returns:
        A process for each term of the sum, at these lags, with gradients by the kernel's parameters.

    Raises:
        ValueError: if the kernel is of another kind.

    Example:
        >>> import torch
        >>> steps = Steps(torch.tensor([0.0, 1.0]), torch.tensor(0.0))
        >>> [process.stationary.shape[-1] for process in markov_processes(MaternKernel(nu=1.5), steps)]
        [2]
    """
    return markov_form(kernel).processes(steps)


def markov_form(kernel: Kernel) -> MarkovKernel:
    """A kernel as a state space, with its present parameters.

    Kernels of one's own have a method ``markov_form``; subclasses of GPyTorch's count as their base unless they
    define ``forward``.

    Returns:
        The kernel as :class:`cgp.statespace.kernels.MarkovKernel`, whose ``state_space(lags)`` has matrices.

    Raises:
        ValueError: if a part is of another kind.

    Example:
        >>> import torch
        >>> markov_form(MaternKernel(nu=1.5)).state_space(torch.tensor([0.0, 0.1])).transition.shape
        torch.Size([2, 2, 2])
    """
    obstacle = markov_obstacle(kernel, batch=True)
    if obstacle is not None:
        raise ValueError(f"kernel: {obstacle}")
    return form_of(kernel)


def markov_obstacle(kernel: Kernel, column: int | None = None, *, batch: bool = False) -> str | None:
    """Why a kernel, of the feature of that column, is no sum of Markov processes of one input; None if it is."""
    for part in parts_of(kernel):
        name, own = type(part).__name__, isinstance(part, HasMarkovForm)
        if not own and form_of.dispatch(type(part)) is form_of.dispatch(object):
            known = ", ".join(sorted(kind.__name__ for kind in form_of.registry if kind is not object))
            near = ": MaternKernel(nu=2.5) is the smoothest that has one" if name == "RBFKernel" else ""
            return f"{name} is not one of {known}, and has no markov_form{near}"
        if not own and not _is_as_its_base(part):
            return f"{name} has a forward of its own, and no markov_form"
        chosen = part.active_dims is not None and part.active_dims.tolist() != [column]
        if part.batch_shape.numel() > 1 and not batch:
            return f"{name} has batch dimensions, {tuple(part.batch_shape)}"
        if chosen or (part.ard_num_dims or 1) > 1:
            return f"{name} is of several or chosen inputs (ard_num_dims, active_dims): expected one for all of it"
        if isinstance(part, ProductKernel):
            trends = [type(factor).__name__ for factor in part.kernels if not _is_stationary(factor)]
            if trends:
                return f"{trends[0]} is a factor of a product"
    return None


def parts_of(kernel: Kernel) -> Iterator[Kernel]:
    """A kernel and all of its parts."""
    yield kernel
    for child in children_of(kernel):
        yield from parts_of(child)


def children_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that a kernel is made of, unless it has a form of its own."""
    match kernel:
        case HasMarkovForm():
            return ()
        case ScaleKernel():
            return (kernel.base_kernel,)
        case MultitaskKernel():
            return (kernel.data_covar_module, kernel.task_covar_module)
        case LCMKernel():
            return tuple(kernel.covar_module_list)
    return tuple(getattr(kernel, "kernels", ()))


def _is_as_its_base(kernel: Kernel) -> bool:
    """Whether a kernel computes what the kernel of GPyTorch computes that it derives from."""
    known = next(kind for kind in type(kernel).__mro__ if kind in form_of.registry)
    return bool(type(kernel).forward is getattr(known, "forward", None))


def _is_stationary(kernel: Kernel) -> bool:
    """Whether a kernel with a form is stationary."""
    if isinstance(kernel, HasMarkovForm):
        return kernel.markov_form().stationary
    return not any(isinstance(part, LinearKernel) for part in parts_of(kernel))


def _of_batch(parameter: Tensor) -> Tensor:
    """A parameter ``(*batch, 1, 1)`` of a kernel of one input, ``(*batch,)``."""
    return parameter[..., 0, 0]


@singledispatch
def form_of(kernel: Kernel) -> MarkovKernel:
    """A kernel as a state space, without looking whether all of its parts can be one; see :func:`markov_form`."""
    if isinstance(kernel, HasMarkovForm):
        return kernel.markov_form()
    raise ValueError(f"kernel: {type(kernel).__name__} has no markov_form")


@form_of.register
def _(kernel: MaternKernel) -> MarkovKernel:
    return forms.Matern(_of_batch(kernel.lengthscale), round(kernel.nu - 0.5))


@form_of.register
def _(kernel: ConstantKernel) -> MarkovKernel:
    return forms.Constant() * kernel.constant[..., 0]


@form_of.register
def _(kernel: LinearKernel) -> MarkovKernel:
    return forms.Linear() * _of_batch(kernel.variance)


@form_of.register
def _(kernel: CosineKernel) -> MarkovKernel:
    return forms.Cosine(2.0 * _of_batch(kernel.period_length))


@form_of.register
def _(kernel: PeriodicKernel) -> MarkovKernel:
    return forms.Periodic(
        _of_batch(kernel.period_length), _of_batch(kernel.lengthscale).sqrt()
    )  # GPyTorch's is a square


@form_of.register
def _(kernel: ScaleKernel) -> MarkovKernel:
    return form_of(kernel.base_kernel) * kernel.outputscale


@form_of.register
def _(kernel: AdditiveKernel) -> MarkovKernel:
    return reduce(add, map(form_of, kernel.kernels))


@form_of.register
def _(kernel: ProductKernel) -> MarkovKernel:
    return reduce(mul, map(form_of, kernel.kernels))
