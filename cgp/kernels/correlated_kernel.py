"""Correlated Gaussian processes: many processes, each a scaled and mapped view of one canonical process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from gpytorch import Module
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor, nn

from cgp.operators.missing import check_numbers
from cgp.spelling import meant

from .affine_map import MAP_KINDS, AffineMap
from .base_kernels import base_kernel_from
from .canonical_kernel import CanonicalKernel, CanonicalPoints, process_numbers, rows_of

__all__ = ["PROCESS_NAMES", "CorrelatedKernel", "CrossKernel", "HadamardCorrelatedKernel", "ProcessKernel", "select"]

PROCESS_NAMES = {"query": 0, "key": 1, "latent": 2}


class _Maps(Module, nn.ModuleList):
    """A module list into which GPyTorch descends when it makes a module random, unlike torch's."""

    def __init__(self, modules: Iterable[nn.Module] = ()) -> None:
        super().__init__()
        self.extend(modules)


class CorrelatedKernel(CanonicalKernel):
    r"""The joint covariance of P processes that are views of one canonical process.

    .. math:: \operatorname{Cov}[z_p(x), z_r(x')] = \sigma_p \sigma_r\, \kappa(x W_p^\top + b_p,\; x' W_r^\top + b_r)

    This is one positive semi-definite kernel over (process, input) pairs. Called on inputs, it gives the covariance of
    all P processes at each of them in GPyTorch's multitask layout (row i·P + p is process p at input i), for a
    ``MultitaskMultivariateNormal``. Where each process is observed at other inputs, use :meth:`joint`, or
    :class:`HadamardCorrelatedKernel` in an ``ExactGP``. Processes are 0 … P-1, or the words query (0), key (1), latent
    (2).

    Args:
        base_kernel: κ: "rbf", "matern12", "matern32", "matern52", "rq" (lengthscale 1), or any GPyTorch kernel that is
            positive semi-definite in the canonical space; it need not be stationary.
        num_processes: number P of processes.
        input_dim: d, dimensions of the inputs; None if ``input_maps`` are modules.
        canonical_dim: s, dimensions of the canonical space; None means d.
        input_maps: the kind of :class:`AffineMap` ("free", "diagonal"), or P modules with
            ``out_features``. Maps made here are initially equal except for small random biases, so that the
            processes are initially strongly correlated.
        bias: whether maps made here have biases.
        batch_shape: one kernel for each batch member.
        active_dims: the input dimensions that are used.
        scale_prior: prior of the scales.
        scale_constraint: constraint of the scales, positive by default.

    Raises:
        ValueError: if a size, a map or the base kernel does not fit; see :func:`check_positive_semidefinite`.

    Note:
        CGPT equations (13)-(16).

    Example:
        >>> kernel = CorrelatedKernel("rbf", 2, 3)
        >>> x = torch.randn(5, 3)
        >>> kernel(x).shape, kernel.cross("query", "key")(x, x[:4]).shape, kernel.process(1)(x).shape
        (torch.Size([10, 10]), torch.Size([5, 4]), torch.Size([5, 5]))
    """

    def __init__(
        self,
        base_kernel: Kernel | str,
        num_processes: int,
        input_dim: int | None = None,
        *,
        canonical_dim: int | None = None,
        input_maps: str | Sequence[nn.Module] = "free",
        bias: bool = True,
        batch_shape: torch.Size = torch.Size(),
        active_dims: Sequence[int] | None = None,
        scale_prior: Prior | None = None,
        scale_constraint: Interval | None = None,
    ) -> None:
        if num_processes < 1:
            raise ValueError(f"num_processes: expected at least 1, got {num_processes}")
        if isinstance(input_maps, str):
            input_maps = _equal_maps(num_processes, input_dim, canonical_dim, input_maps, bias, torch.Size(batch_shape))
        dim = _canonical_dim(input_maps, num_processes)
        shapes = [getattr(input_map, "batch_shape", torch.Size()) for input_map in input_maps]
        super().__init__(batch_shape=torch.broadcast_shapes(torch.Size(batch_shape), *shapes), active_dims=active_dims)
        self.num_processes = num_processes
        self.input_maps = _Maps(input_maps)
        self.covar_module = base_kernel_from(base_kernel, dim)
        self.register_parameter("raw_scales", nn.Parameter(torch.zeros(*self._batch_shape, num_processes)))
        self.register_constraint("raw_scales", Positive() if scale_constraint is None else scale_constraint)
        self.scales = torch.ones(())
        if scale_prior is not None:
            self.register_prior("scale_prior", scale_prior, "scales")

    @property
    def canonical_dim(self) -> int:
        """s, dimensions of the canonical space."""
        return int(self.input_maps[0].out_features)  # type: ignore[arg-type]

    @property
    def scales(self) -> Tensor:
        """σ, the positive scale (a standard deviation) of each process, ``(*batch, P)``."""
        return self.raw_scales_constraint.transform(self.raw_scales)

    @scales.setter
    def scales(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_scales)
        self.initialize(raw_scales=self.raw_scales_constraint.inverse_transform(value))

    def index(self, process: int | str) -> int:
        """The number 0 … P-1 of a process, given by number or word; another is a ValueError."""
        number = PROCESS_NAMES.get(process, -1) if isinstance(process, str) else process
        if not 0 <= number < self.num_processes:
            names = tuple(PROCESS_NAMES)[: self.num_processes]
            raise ValueError(f"process: expected 0 to {self.num_processes - 1} or one of {names}, got {process!r}")
        return number

    def process_points(self, process: int | str, x: Tensor) -> CanonicalPoints:
        """The canonical points of one process at its inputs ``(*batch, n, d)``."""
        number = self.index(process)
        inputs = self.input_maps[number](check_numbers(x, "x"))
        scale = self.scales[..., number, None, None]
        batch = torch.broadcast_shapes(scale.shape[:-2], inputs.shape[:-2])
        return CanonicalPoints(inputs, scale.expand(*batch, inputs.shape[-2], 1))

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of every process at the same inputs, process fastest: n·P points."""
        every = [self.process_points(number, x) for number in range(self.num_processes)]
        stacked = [torch.stack(torch.broadcast_tensors(*fields), dim=-2) for fields in zip(*every, strict=True)]
        return CanonicalPoints(*(field.flatten(-3, -2) for field in stacked))  # of (*batch, n, P, s) and (…, P, 1)

    def cross(self, left: int | str, right: int | str) -> CrossKernel:
        """The covariance between two processes, of the rows and of the columns, sharing this kernel's parameters."""
        return CrossKernel(self, self.index(left), self.index(right))

    def process(self, process: int | str) -> ProcessKernel:
        """The kernel of one process, sharing this kernel's parameters."""
        return ProcessKernel(self, self.index(process))

    def joint(self, inputs: Sequence[Tensor], other: Sequence[Tensor] | None = None) -> LinearOperator:
        """The covariance of all processes, each at its own inputs.

        Args:
            inputs: one ``(*batch, n_p, d)`` for each process; n_p may be 0.
            other: likewise for the columns; None means the same.

        Returns:
            ``(*batch, n_1 + … + n_P, m_1 + … + m_P)``, in blocks by process.

        Raises:
            ValueError: if there is not one set of inputs for each process.

        Example:
            >>> kernel = CorrelatedKernel("rbf", 2, 3)
            >>> kernel.joint([torch.randn(5, 3), torch.randn(4, 3)]).shape
            torch.Size([9, 9])
        """
        left = self._stacked(inputs)
        right = None if other is None else self._stacked(other)
        return to_linear_operator(self.gram(left, right))

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """The number of processes."""
        return self.num_processes

    def _stacked(self, inputs: Sequence[Tensor]) -> CanonicalPoints:
        if len(inputs) != self.num_processes:
            raise ValueError(
                f"inputs: expected one tensor for each of {self.num_processes} processes, got {len(inputs)}"
            )
        every = [self.process_points(number, x) for number, x in enumerate(inputs)]
        batch = torch.broadcast_shapes(*(points.loadings.shape[:-2] for points in every))
        fields = ([field.expand(*batch, *field.shape[-2:]) for field in each] for each in zip(*every, strict=True))
        return CanonicalPoints(*(torch.cat(each, dim=-2) for each in fields))


class ProcessKernel(CanonicalKernel):
    r"""The covariance of one process, :math:`\sigma_p^2\,\kappa(xW_p^\top + b_p,\; x'W_p^\top + b_p)`.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.
        number: index of the process.
    """

    def __init__(self, correlated: CorrelatedKernel, number: int) -> None:
        super().__init__(active_dims=correlated.active_dims)
        self.correlated = correlated
        self.number = number

    @property
    def base_kernel(self) -> Kernel:
        """The canonical covariance."""
        return self.correlated.base_kernel

    @property
    def canonical_dim(self) -> int:
        """s, dimensions of the canonical space."""
        return self.correlated.canonical_dim

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of the process."""
        return self.correlated.process_points(self.number, x)


class CrossKernel(Module):
    r"""The covariance between two processes, :math:`\sigma_p\sigma_r\,\kappa(xW_p^\top + b_p,\; x'W_r^\top + b_r)`.

    It is not a covariance function, as k(x, x') differs from k(x', x), and therefore no GPyTorch ``Kernel``. The result
    is evaluated at once: a lazy kernel matrix is transposed by swapping the inputs, but not the processes.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.
        left: process of the rows.
        right: process of the columns.
    """

    def __init__(self, correlated: CorrelatedKernel, left: int, right: int) -> None:
        super().__init__()
        self.correlated = correlated
        self.left, self.right = left, right

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> LinearOperator:
        """The covariance of one process at ``x1`` ``(*batch, n, d)`` with the other at ``x2``; None means ``x1``."""
        kernel = self.correlated
        left, right = (select(x, kernel.active_dims) for x in (x1, x1 if x2 is None else x2))
        points = kernel.process_points(self.left, left), kernel.process_points(self.right, right)
        return to_linear_operator(kernel.gram(*points))


def select(x: Tensor, active_dims: Tensor | None) -> Tensor:
    """The features ``(*batch, n, d)`` that a kernel uses."""
    return x if active_dims is None else x.index_select(-1, active_dims)


def _equal_maps(
    number: int, input_dim: int | None, canonical_dim: int | None, kind: str, bias: bool, batch_shape: torch.Size
) -> list[nn.Module]:
    """Maps that differ in their biases only: equal maps would make the joint covariance singular."""
    if kind not in MAP_KINDS:
        raise ValueError(f"input_maps: expected modules or one of {MAP_KINDS}, got {kind!r}{meant([kind], MAP_KINDS)}")
    if input_dim is None:
        raise ValueError("input_dim: expected a size, got None: it is needed unless input_maps are modules")
    maps = [AffineMap(input_dim, canonical_dim, kind=kind, bias=bias, batch_shape=batch_shape) for _ in range(number)]
    for later in maps[1:]:
        if kind == "free":
            later.weight = maps[0].weight.detach()
        if later.bias is not None:
            nn.init.normal_(later.bias, std=0.1)
    return list(maps)


def _canonical_dim(input_maps: Sequence[nn.Module], num_processes: int) -> int:
    """The output size that the maps share."""
    if len(input_maps) != num_processes:
        raise ValueError(f"input_maps: expected one for each of {num_processes} processes, got {len(input_maps)}")
    sizes = {getattr(input_map, "out_features", None) for input_map in input_maps}
    size = sizes.pop()
    if sizes or not isinstance(size, int):
        raise ValueError(f"input_maps: expected modules with one common out_features, got {sizes | {size}}")
    return size


class HadamardCorrelatedKernel(CanonicalKernel):
    r"""The covariance of (input, process) rows, the number of the process in the last column.

    .. math:: k((x, p), (x', r)) = \sigma_p \sigma_r\, \kappa(xW_p^\top + b_p,\; x'W_r^\top + b_r)

    For an ``ExactGP`` whose processes are observed at different inputs. Because the process is part of the input,
    slices and transposes of the lazy kernel matrix are right.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.

    Raises:
        TypeError: if it is another kernel.

    Example:
        >>> kernel = HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 1))
        >>> kernel(torch.tensor([[0.3, 0.0], [0.5, 1.0], [0.9, 1.0]])).shape
        torch.Size([3, 3])
    """

    def __init__(self, correlated: CorrelatedKernel) -> None:
        if not isinstance(correlated, CorrelatedKernel):
            raise TypeError(
                f"correlated: expected a CorrelatedKernel, got {type(correlated).__name__} "
                "(CorrelatedKernel(base_kernel, num_processes, input_dim) makes one of it)"
            )
        super().__init__()
        self.correlated = correlated

    @property
    def base_kernel(self) -> Kernel:
        """The canonical covariance."""
        return self.correlated.base_kernel

    @property
    def canonical_dim(self) -> int:
        """s, dimensions of the canonical space."""
        return self.correlated.canonical_dim

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of rows ``(*batch, n, d + 1)``, the last column 0 … P-1."""
        dims, (first, *_) = self.correlated.active_dims, self.correlated.input_maps
        width = getattr(first, "in_features", None) if dims is None else None  # of the features, where the map says it
        numbers = process_numbers(x, self.correlated.num_processes, input_dim=width)
        features = select(check_numbers(x, "x")[..., :-1], dims)
        every = [mapped(features) for mapped in self.correlated.input_maps]
        stacked = torch.stack(torch.broadcast_tensors(*every), dim=-2)  # (*batch, n, P, s)
        chosen = numbers.expand(stacked.shape[:-2])[..., None, None]  # the kernel may have batch dimensions of its own
        inputs = torch.take_along_dim(stacked, chosen, dim=-2).squeeze(-2)
        return CanonicalPoints(inputs, rows_of(self.correlated.scales.unsqueeze(-1), numbers))
