"""Inducing variables on singular vectors, whose prior variances are the squared singular values."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor, nn

from .inducing_variables import InducingVariables

__all__ = ["EigenVariables"]


class EigenVariables(gpytorch.Module):
    r"""Variational distribution of kernel-eigen inducing variables, :math:`u_j \sim N(m_j, L_jL_j^\top)`.

    .. math:: f_j = A\Lambda^{-1}u_j, \qquad u_j \sim N(0, \Lambda^2) \text{ a priori}, \qquad
        \mathrm{KL} = \tfrac12\big[\operatorname{tr}\Lambda^{-2}S_j + m_j^\top\Lambda^{-2}m_j
        + \log|\Lambda^2| - \log|S_j| - r\big]

    Args:
        rank: r.
        num_outputs: J, independent variables that share the singular values.
        batch_shape: batch shape of the singular values, as heads.
        whiten: whether mean and root are parametrised in units of Λ.
        initial_scale: standard deviation to start from, in units of Λ.
        **factory: device and dtype of the parameters.

    Note:
        KEP-SVGP (17), proposition 3.1.

    Example:
        >>> EigenVariables(3, 2, torch.Size([4])).kl_divergence().shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        rank: int,
        num_outputs: int,
        batch_shape: torch.Size = torch.Size(),
        *,
        whiten: bool = True,
        initial_scale: float = 1.0,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.whiten = whiten
        self.log_singular_values = nn.Parameter(torch.zeros(*batch_shape, rank, **factory))
        shape = torch.Size((*batch_shape, num_outputs))
        self.variables = InducingVariables(rank, shape, initial_scale=initial_scale, **factory)

    @property
    def singular_values(self) -> Tensor:
        """The diagonal of Λ, positive, ``(*batch_shape, r)``."""
        return self.log_singular_values.exp()

    @property
    def mean(self) -> Tensor:
        r"""Mean of :math:`\Lambda^{-1}u`, ``(*batch_shape, J, r)``."""
        mean = self.variables.variational_mean
        return mean if self.whiten else mean / self.singular_values[..., None, :]

    @property
    def root(self) -> Tensor:
        r"""Cholesky factor of the covariance of :math:`\Lambda^{-1}u`, ``(*batch_shape, J, r, r)``."""
        root = self.variables.root
        return root if self.whiten else root / self.singular_values[..., None, :, None]

    def kl_divergence(self) -> Tensor:
        """Divergence from the prior.

        Returns:
            ``(*batch_shape, J)``, in nats.
        """
        prior_scale = None if self.whiten else self.singular_values[..., None, :]
        return self.variables.kl_divergence(prior_scale)
