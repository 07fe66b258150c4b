"""Modules whose parameters have normal priors, so that samples of them can be loaded, and pickled."""

from __future__ import annotations

from functools import partial

import torch
from gpytorch import Module
from gpytorch.priors import NormalPrior
from torch import Tensor, nn

__all__ = ["PriorModule", "make_priors_picklable"]


class PriorModule(Module):
    """A module whose parameters are unconstrained and have normal priors, so that samples of them can be loaded."""

    def register_normal(self, name: str, initial: Tensor, mean: float, sd: float) -> None:
        """Add a parameter with the normal prior ``NAME_prior``; an empty one is no parameter."""
        self.register_parameter(name, nn.Parameter(initial) if initial.numel() else None)
        if initial.numel():
            loc, scale = (torch.tensor(value, dtype=torch.float64) for value in (mean, sd))
            # The closures that GPyTorch would use cannot be pickled.
            self.register_prior(
                f"{name}_prior", NormalPrior(loc, scale), partial(_value, name=name), partial(_assign, name=name)
            )


def _value(module: Module, name: str) -> Tensor:
    return getattr(module, name)


def _assign(module: Module, value: Tensor, name: str) -> None:
    module.initialize(**{name: value})


def make_priors_picklable(kernel: Module) -> None:
    """Let GPyTorch's priors of a kernel, ``NAME_prior``, access the parameter NAME without unpicklable functions."""
    for module in kernel.modules():
        for key, (prior, *_) in getattr(module, "_priors", {}).items():
            name = key.removesuffix("_prior")
            if hasattr(module, name):
                module._priors[key] = (prior, partial(_value, name=name), partial(_assign, name=name))
