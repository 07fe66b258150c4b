"""The map of one process of a regression: affine in the inputs, with coordinates of its own."""

from __future__ import annotations

import math

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor, nn

from cgp.kernels import AffineMap

from .positive import PositiveModule, positive_property
from .relative_map import RelativeMap
from .triangular_map import TriangularMap

__all__ = ["ProcessMap"]

_LOG_WIDTH = math.sqrt(3.0)
_FIRST_COORDINATE = 0.5


class ProcessMap(PositiveModule):
    r"""Maps the inputs of one process into a canonical space with room for what tells the processes apart.

    .. math:: x \mapsto (x W_p^\top + b_p,\; c_p), \qquad b_0 = 0,\; c_0 = 0

    The coordinates c do not depend on x. With the squared exponential the covariance of two processes becomes
    :math:`e^{-\frac12\|c_p-c_r\|^2}` times that of their maps: c says how strongly they are correlated, b how far one
    is shifted against the other. The gauge is fixed: the first process has neither b nor c, process p uses the first
    min(p, e) coordinates and, while there are enough, the last of them is positive; a free W of the first process is a
    :class:`TriangularMap`.

    Priors, for inputs and outputs of unit variance: scales of the map log-normal about :math:`d^{-1/2}` with log-sd
    :math:`\sqrt3` (of a later process with a diagonal map: those of the first times a ratio, see
    :class:`RelativeMap`); positive coordinates log-normal about 1/2 with log-sd 1, so that no two processes are taken
    for one; all else standard normal (entries of a free map divided by the root of d).

    Args:
        input_dim: d.
        canonical_dim: s, dimensions of the mapped inputs; at most d, and d for a diagonal map.
        process: p, the number of the process.
        kind: "free", "diagonal" or "orthogonal", as of :class:`cgp.kernels.AffineMap`.
        embedding_dim: e, number of coordinates; P - 1 lets all correlations of P processes differ.
        shift: whether processes beyond the first have b.
        first: the map of the first process, to which a diagonal one is relative; None makes it absolute.

    Example:
        >>> ProcessMap(3, 3, process=1, kind="diagonal", embedding_dim=2)(torch.zeros(1, 3))
        tensor([[0.0000, 0.0000, 0.0000, 0.5000, 0.0000]], grad_fn=<...>)

    Source:
        Affine maps: CGPT equations (13)-(16). Coordinates: Dai, Álvarez & Lawrence (2017), Efficient modeling of
        latent information in supervised learning using Gaussian processes.
    """

    height = positive_property("height", "The positive coordinate of a process p with 0 < p <= e, ``(*batch, 1)``.")

    def __init__(
        self,
        input_dim: int,
        canonical_dim: int,
        *,
        process: int,
        kind: str = "diagonal",
        embedding_dim: int = 0,
        shift: bool = True,
        first: ProcessMap | None = None,
    ) -> None:
        super().__init__()
        self.out_features = canonical_dim + embedding_dim
        self.embedding_dim, self.process = embedding_dim, process
        if kind == "free" and process == 0:
            self.linear: Module = TriangularMap(input_dim, canonical_dim)
        elif kind == "diagonal" and first is not None:
            self.linear = RelativeMap(first.linear, bias=shift)
        else:
            self.linear = AffineMap(input_dim, canonical_dim, kind=kind, bias=shift and process > 0)
        self._register_map_priors(input_dim)
        used = min(process, embedding_dim)
        anchored = 0 < process <= embedding_dim  # the last coordinate in use is positive
        if used - anchored > 0:
            self.register_parameter("coordinates", nn.Parameter(torch.zeros(used - anchored)))
            self.register_prior("coordinates_prior", NormalPrior(*_pair(0.0, 1.0)), "coordinates")
        if anchored:
            self.register_positive("height", 1)
            self.register_prior("height_prior", LogNormalPrior(*_pair(math.log(_FIRST_COORDINATE), 1.0)), "height")
            self.height = torch.full((1,), _FIRST_COORDINATE)

    @property
    def embedding(self) -> Tensor:
        """c, ``(*batch, e)``."""
        parts = [getattr(self, name) for name in ("coordinates", "height") if self._has(name)]
        if not parts:
            return self.weight.new_zeros(self.embedding_dim)
        known = torch.cat(parts, dim=-1)
        return nn.functional.pad(known, (0, self.embedding_dim - known.shape[-1]))

    @property
    def weight(self) -> Tensor:
        """W, ``(*batch, s, d)``."""
        return self.linear.weight

    @property
    def stretch(self) -> Tensor:
        """The positive scale of each mapped dimension, ``(*batch, s)``; 1 for a free map beyond the first process."""
        for name in ("scales", "diagonal"):
            if hasattr(self.linear, f"raw_{name}"):
                return getattr(self.linear, name)
        return torch.ones_like(self.weight[..., 0])

    def rescale(self, factor: float) -> None:
        """Divide every lengthscale.

        Args:
            factor: by how much, positive.
        """
        for name in ("scales", "diagonal"):
            if hasattr(self.linear, f"raw_{name}"):
                setattr(self.linear, name, getattr(self.linear, name).detach() * factor)
        if hasattr(self.linear, "raw_weight"):
            self.linear.weight = self.linear.weight.detach() * factor

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs into the canonical space.

        Args:
            x: ``(*batch, n, d)``.

        Returns:
            ``(*batch, n, s + e)``.
        """
        mapped = self.linear(x)
        embedding = self.embedding.unsqueeze(-2)
        batch = torch.broadcast_shapes(mapped.shape[:-2], embedding.shape[:-2])
        embedding = embedding.expand(*batch, mapped.shape[-2], self.embedding_dim)
        return torch.cat([mapped.expand(*batch, *mapped.shape[-2:]), embedding], dim=-1)

    def _has(self, name: str) -> bool:
        # A parameter that Pyro has drawn is a plain attribute.
        return hasattr(self, "raw_height" if name == "height" else name)

    def _register_map_priors(self, input_dim: int) -> None:
        """Log-parameters and priors of the linear part."""
        centre = -0.5 * math.log(input_dim)
        scales = {"raw_scales": "scales", "raw_diagonal": "diagonal"}
        for raw, name in scales.items():
            if hasattr(self.linear, raw):
                value = getattr(self.linear, name).detach()
                constraint = Positive(transform=torch.exp, inv_transform=torch.log)
                self.linear.register_constraint(raw, constraint, replace=True)
                setattr(self.linear, name, value)
                self.linear.register_prior(f"{name}_prior", LogNormalPrior(*_pair(centre, _LOG_WIDTH)), name)
        if isinstance(self.linear, RelativeMap):
            return
        normal = {
            "raw_weight": ("weight", input_dim**-0.5),
            "entries": ("entries", input_dim**-0.5),
            "bias": ("bias", 1),
        }
        for attribute, (name, sd) in normal.items():
            if getattr(self.linear, attribute, None) is not None and getattr(self.linear, attribute).numel():
                self.linear.register_prior(f"{name}_prior", NormalPrior(*_pair(0.0, float(sd))), name)


def _pair(*values: float) -> list[Tensor]:
    return [torch.tensor(value, dtype=torch.float64) for value in values]
