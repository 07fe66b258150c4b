"""A canonical covariance with one variance per head."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from cgp.functional.kernel_attention import kernel_attention
from cgp.functional.kernels import Canonical
from cgp.functional.linalg import product

__all__ = ["HeadKernel"]

_SMALL = 256  # tokens up to which the whole covariance is formed


class HeadKernel(NamedTuple):
    r"""A canonical covariance with one variance per head, :math:`a_h^2\kappa(z, z')`.

    Attributes:
        canonical: the canonical covariance.
        outputscale: :math:`a^2`, ``(h,)``.
    """

    canonical: Canonical
    outputscale: Tensor

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariance ``(*batch, h, N, M)`` of points ``(*batch, h, N, s)`` and ``(*batch, h, M, s)``."""
        return self.outputscale[:, None, None] * self.canonical.gram(x1, x2)

    def attend(self, x1: Tensor, x2: Tensor | None, values: Tensor) -> Tensor:
        """Kernel attention ``gram(x1, x2) @ values`` of values ``(*batch, h, M, c)``."""
        values = self.outputscale[:, None, None] * values  # smaller than the covariance
        if x2 is None and x1.shape[-2] <= _SMALL:  # one set of points: half the products backwards
            return product(self.canonical.gram(x1), values)
        return kernel_attention(self.canonical, x1, x1 if x2 is None else x2, values)

    def features(self, points: Tensor, whitening: Tensor, x: Tensor) -> Tensor:
        """Features ``whitening @ gram(points, x)`` for points ``(h, m, s)`` that the batch shares."""
        return product(self.outputscale[:, None, None] * whitening, self.canonical.gram(points, x))

    def diagonal(self, x: Tensor) -> Tensor:
        """Prior variance of each point, ``(*batch, h, N)``."""
        return self.outputscale[:, None] * self.canonical.diagonal(x)
