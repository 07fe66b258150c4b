"""Gaussian inducing variables with a unit prior, whose divergence does not depend on the kernel."""

from __future__ import annotations

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor, nn

from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.sgpa import whitened_divergence
from cgp.operators import LazyMultivariateNormal, shared_covariance
from cgp.operators.missing import check_numbers

__all__ = ["InducingVariables", "as_points", "positive_triangle", "single_normal"]


def as_points(x: Tensor, name: str, width: int | None = None) -> Tensor:
    """Inputs as rows of finite numbers, ``(*batch, n, D)``: a vector is a column; ValueError if D is not the width."""
    points = x[:, None] if x.dim() == 1 else x
    if width is not None and points.shape[-1] != width:
        raise ValueError(f"{name}: expected points (*batch, n, {width}), got shape {tuple(x.shape)}")
    return check_numbers(points, name)


def positive_triangle(raw: Tensor) -> Tensor:
    """Lower triangle, ``(*batch, m, m)``, with a positive diagonal by softplus; entries above it are ignored."""
    diagonal = nn.functional.softplus(raw.diagonal(dim1=-2, dim2=-1))
    return raw.tril(-1) + torch.diag_embed(diagonal)


def single_normal(posterior: ColumnGaussian) -> LazyMultivariateNormal:
    """GPyTorch's distribution of a posterior of one column, without the dimension of the columns."""

    def build() -> LinearOperator:
        return shared_covariance(posterior)[..., 0, :, :]

    return LazyMultivariateNormal(posterior.mean[..., 0], build, variance=posterior.column_variances[..., 0])


class InducingVariables(gpytorch.Module):
    r"""Variational distribution of whitened inducing variables, :math:`u \sim N(m, LL^\top)`, of prior :math:`N(0, I)`.

    .. math:: \mathrm{KL} = \tfrac12\big[\operatorname{tr}LL^\top + m^\top m - r - \log|LL^\top|\big]

    Args:
        num_inducing: number r of variables of each batch member.
        batch_shape: batch shape, such as heads and output dimensions.
        initial_scale: initial standard deviation.

    Raises:
        ValueError: if there is no variable.

    Example:
        >>> InducingVariables(3, torch.Size([2])).kl_divergence()
        tensor([0., 0.], grad_fn=<...>)
    """

    def __init__(
        self, num_inducing: int, batch_shape: torch.Size = torch.Size(), *, initial_scale: float = 1.0
    ) -> None:
        super().__init__()
        if num_inducing < 1:
            raise ValueError(f"num_inducing: expected at least 1, got {num_inducing}")
        shape = (*batch_shape, num_inducing)
        self.variational_mean = nn.Parameter(torch.zeros(shape))
        start = torch.tensor(float(initial_scale)).expm1().log()  # inverse softplus
        self.raw_root = nn.Parameter(torch.diag_embed(start.expand(shape)).clone())

    @property
    def root(self) -> Tensor:
        """L, lower triangular with a positive diagonal, ``(*batch_shape, r, r)``."""
        return positive_triangle(self.raw_root)

    def kl_divergence(self) -> Tensor:
        """Divergence from the prior, ``batch_shape``, in nats."""
        return whitened_divergence(self.variational_mean, self.root)
