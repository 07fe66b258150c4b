"""Gaussian inducing variables with independent prior components, whose divergence depends on themselves alone."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor, nn

from cgp.functional.sparse_gp import whitened_divergence

__all__ = ["InducingVariables", "positive_triangle"]


def positive_triangle(raw: Tensor) -> Tensor:
    """A lower triangle with a positive diagonal: the strict lower part as it is, the diagonal by softplus.

    Args:
        raw: ``(*batch, m, m)``; what is above the diagonal is not read.

    Returns:
        ``(*batch, m, m)``.

    Example:
        >>> positive_triangle(torch.zeros(2, 2))
        tensor([[0.6931, 0.0000],
                [0.0000, 0.6931]])
    """
    diagonal = nn.functional.softplus(raw.diagonal(dim1=-2, dim2=-1))
    return raw.tril(-1) + torch.diag_embed(diagonal)


class InducingVariables(gpytorch.Module):
    r"""Variational distribution of inducing variables, :math:`u \sim N(m, LL^\top)`, of prior :math:`N(0, \Lambda^2)`.

    .. math:: \mathrm{KL} = \tfrac12\big[\operatorname{tr}\Lambda^{-2}LL^\top + m^\top\Lambda^{-2}m - r
        + \log|\Lambda^2| - \log|LL^\top|\big]

    Args:
        num_inducing: number of variables of each batch member.
        batch_shape: batch shape, as heads and output dimensions.
        initial_scale: standard deviation to start from, in units of the prior's.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if a size is not positive, or the scale is not.

    Example:
        >>> InducingVariables(3, torch.Size([2]), initial_scale=1.0).kl_divergence()
        tensor([0., 0.], grad_fn=<...>)
    """

    def __init__(
        self,
        num_inducing: int,
        batch_shape: torch.Size = torch.Size(),
        *,
        initial_scale: float = 1.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_inducing < 1 or not initial_scale > 0:
            raise ValueError(
                "num_inducing, initial_scale: expected at least 1 and a positive number, "
                f"got {num_inducing} and {initial_scale}"
            )
        self.batch_shape, self.num_inducing = batch_shape, num_inducing
        shape = (*batch_shape, num_inducing)
        self.variational_mean = nn.Parameter(torch.zeros(shape, device=device, dtype=dtype))
        start = torch.tensor(float(initial_scale), device=device, dtype=dtype).expm1().log()  # softplus backwards
        self.raw_root = nn.Parameter(torch.diag_embed(start.expand(shape)).clone())

    @property
    def root(self) -> Tensor:
        """L, lower triangular with a positive diagonal, ``(*batch_shape, r, r)``."""
        return positive_triangle(self.raw_root)

    def kl_divergence(self, prior_scale: Tensor | None = None) -> Tensor:
        """Divergence from the prior.

        Args:
            prior_scale: the diagonal of Λ, broadcastable to ``(*batch_shape, r)``; None is one.

        Returns:
            ``batch_shape``, in nats.
        """
        if prior_scale is None:
            return whitened_divergence(self.variational_mean, self.root)
        return whitened_divergence(self.variational_mean / prior_scale, self.root / prior_scale[..., None])
