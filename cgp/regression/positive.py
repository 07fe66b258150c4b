"""Modules with positive parameters, of which samples can be loaded."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from torch import Tensor, nn

__all__ = ["PositiveModule", "positive_property"]


def positive_property(name: str, doc: str) -> property:
    """A positive parameter under its own name, kept as its logarithm in ``raw_NAME``.

    Args:
        name: of the parameter, registered by :meth:`PositiveModule.register_positive`.
        doc: what it is.

    Returns:
        To be assigned in the class's body.
    """

    def value(module: PositiveModule) -> Tensor:
        return getattr(module, f"raw_{name}_constraint").transform(getattr(module, f"raw_{name}"))

    def assign(module: PositiveModule, value: Tensor) -> None:
        value = torch.as_tensor(value).to(getattr(module, f"raw_{name}"))
        module.initialize(**{f"raw_{name}": getattr(module, f"raw_{name}_constraint").inverse_transform(value)})

    return property(value, assign, doc=doc)


class PositiveModule(Module):
    """A module that keeps its positive parameters as logarithms and knows the batch shape of loaded samples.

    Example:
        >>> class Scaled(PositiveModule):
        ...     scale = positive_property("scale", "The scale.")
        ...
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_positive("scale", 2)
        >>> Scaled().scale
        tensor([1., 1.], grad_fn=<...>)
    """

    def __init__(self) -> None:
        super().__init__()
        self._batch_shape = torch.Size()

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the parameters: empty, or the number of samples that were loaded."""
        return self._batch_shape

    def register_positive(self, name: str, size: int) -> None:
        """Add a parameter, of ones.

        Args:
            name: of a :func:`positive_property`.
            size: of the parameter.
        """
        self.register_parameter(f"raw_{name}", nn.Parameter(torch.zeros(size)))
        self.register_constraint(f"raw_{name}", Positive(transform=torch.exp, inv_transform=torch.log))

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: Any, prefix: str) -> None:
        """Take in samples of the parameters; see :meth:`gpytorch.Module.pyro_load_from_samples`.

        Args:
            samples_dict: samples by name of prior.
            memo: priors already seen.
            prefix: name of this module.
        """
        self._batch_shape = next(iter(samples_dict.values())).shape[:1] + self._batch_shape
        super().local_load_samples(samples_dict, memo, prefix)
