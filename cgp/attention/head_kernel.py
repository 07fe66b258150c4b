"""A canonical covariance with a learned variance a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cgp.functional.covariances import Canonical
from cgp.functional.products import product
from cgp.functional.sparse_correlated import features

__all__ = ["HeadKernel"]

_SMALL = 256  # tokens up to which the whole covariance is formed


class HeadKernel(nn.Module):
    r"""A canonical covariance with a learned variance a head, :math:`a_h^2\kappa(z, z')`.

    Args:
        canonical: the canonical covariance.
        num_heads: h.
        initial_outputscale: :math:`a^2` to start from.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if the outputscale is not positive.
    """

    def __init__(
        self,
        canonical: Canonical,
        num_heads: int,
        *,
        initial_outputscale: float,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not initial_outputscale > 0:
            raise ValueError(f"initial_outputscale: expected a positive number, got {initial_outputscale!r}")
        self.canonical = canonical
        start = torch.full((num_heads,), float(initial_outputscale), device=device, dtype=dtype)
        self.log_outputscale = nn.Parameter(start.log())

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariance of two sets of points.

        Args:
            x1: ``(*batch, h, N, s)``.
            x2: ``(*batch, h, M, s)``; None stands for ``x1``.

        Returns:
            ``(*batch, h, N, M)``.
        """
        return self.log_outputscale.exp()[:, None, None] * self.canonical.gram(x1, x2)

    def attend(self, x1: Tensor, x2: Tensor | None, values: Tensor) -> Tensor:
        """Kernel attention; the variance multiplies what comes out, which is smaller than the Gram matrix.

        Args:
            x1: ``(*batch, h, N, s)``.
            x2: ``(*batch, h, M, s)``; None stands for ``x1``.
            values: ``(*batch, h, M, c)``.

        Returns:
            ``(*batch, h, N, c)``.
        """
        if x2 is None and x1.shape[-2] <= _SMALL:  # one set of points: half the products backwards
            attended = product(self.canonical.gram(x1), values)
        else:
            attended = self.canonical.attend(x1, x1 if x2 is None else x2, values)
        return self.log_outputscale.exp()[:, None, None] * attended

    def features(self, points: Tensor, whitening: Tensor, x: Tensor) -> Tensor:
        """Whitened features of points, ``whitening @ gram(points, x)``.

        Args:
            points: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.
            x: ``(*batch, h, N, s)``.

        Returns:
            ``(*batch, h, m, N)``.
        """
        return features(self.canonical, points, self.log_outputscale.exp()[:, None, None] * whitening, x)

    def diagonal(self, x: Tensor) -> Tensor:
        """Prior variance of each point.

        Args:
            x: ``(*batch, h, N, s)``.

        Returns:
            ``(*batch, h, N)``.
        """
        return self.log_outputscale.exp()[:, None] * self.canonical.diagonal(x)
