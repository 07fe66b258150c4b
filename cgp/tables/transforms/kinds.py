"""Increasing functions of a column, each with its inverse and its slope."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import boxcox as box_cox
from scipy.special import expit, inv_boxcox, logit

from cgp.regression.covariances.structure import Named

__all__ = ["BoxCox", "Logit", "Rectified", "Transform", "Unchanged", "YeoJohnson"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Transform(Named):
    r"""An increasing function of the values of a column, in which they are taken to be Gaussian.

    .. math:: z = T(y), \qquad \log p(y) = \log N(T(y); \mu, v) + \log T'(y)

    One of your own is a frozen dataclass with a ``name``, and :meth:`curve`, :meth:`undone` and :meth:`log_slope`
    between its ``lower`` and ``upper`` ends. Readings beyond them, which come after a fit only, are on the tangent.

    Example:
        >>> square_root = BoxCox(power=0.5)
        >>> round(float(square_root.inverse(square_root.forward(np.array([9.0])))[0]), 9)
        9.0
    """

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value that a filled one has."""
        return -math.inf, math.inf

    @property
    def has_atom(self) -> bool:
        """Whether the lower end has a probability of its own."""
        return False

    def curve(self, y: Array) -> Array:
        """T(y), of any shape, between the ends."""
        raise NotImplementedError

    def undone(self, z: Array) -> Array:
        """The value whose T is z, of any shape."""
        raise NotImplementedError

    def log_slope(self, y: Array) -> Array:
        """The logarithm of T'(y), of any shape, between the ends."""
        raise NotImplementedError

    def moved(self, slope: float, shift: float) -> Transform | None:
        """The transform that a column of slope y + shift has where y has this one, so that both are linear in z."""
        return None

    def forward(self, y: Array) -> Array:
        """T(y), and its tangent beyond the ends; not finite where T has none."""
        inside = y.clip(*self.ends)
        beyond = y - inside
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.curve(inside) + np.where(beyond == 0.0, 0.0, np.exp(self.log_slope(inside)) * beyond)

    def inverse(self, z: Array) -> Array:
        """The value whose T is z, never beyond the ends."""
        return self.undone(z).clip(*self.ends)


@dataclass(frozen=True)
class Unchanged(Transform):
    """The values as they are."""

    name = "none"

    def moved(self, slope: float, shift: float) -> Transform | None:
        """The same."""
        return self

    def curve(self, y: Array) -> Array:
        """The values."""
        return y

    def undone(self, z: Array) -> Array:
        """The values."""
        return z

    def log_slope(self, y: Array) -> Array:
        """0."""
        return np.zeros_like(y)


@dataclass(frozen=True, kw_only=True)
class Rectified(Unchanged):
    r"""Values that are recorded as a lower end where they are below it, as no rain: a rectified Gaussian.

    .. math:: y = \max(z, \text{lower}), \qquad P(y = \text{lower}) = \Phi\Big(\frac{\text{lower} - \mu}{s}\Big)

    Predictions are rectified. In a fit a recorded end says that z is at most there, by expectation propagation, and
    parameters are learned twice more; with few observations (samples of the parameters), more than fifty columns or
    known sums it is taken for the value.

    Args:
        lower: the end.

    Source:
        Tobin (1958), Estimation of relationships for limited dependent variables.
    """

    name = "rectified"
    lower: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("lower", self.lower, math.isfinite(self.lower), "a finite number")

    def __str__(self) -> str:
        """Its end in words."""
        return f"rectified at {self.lower:g}"

    @property
    def ends(self) -> tuple[float, float]:
        """The lower one only."""
        return self.lower, math.inf

    def moved(self, slope: float, shift: float) -> Transform | None:
        """That of another end."""
        return replace(self, lower=slope * self.lower + shift) if slope > 0.0 else None

    @property
    def has_atom(self) -> bool:
        """It has."""
        return True


@dataclass(frozen=True, kw_only=True)
class BoxCox(Transform):
    r"""A power of the distance to a lower end, or its logarithm; no filled value is below that end.

    .. math:: T(y) = \frac{(y - \text{lower} + \text{shift})^\lambda - 1}{\lambda}

    Args:
        power: λ, at least 0, which is the logarithm.
        shift: at least 0; above 0 the slope is finite at the lower end.
        lower: lowest value that there can be.

    Source:
        Box & Cox (1964), An analysis of transformations, equation 2.
    """

    name = "box-cox"
    power: float = 0.0
    shift: float = 0.0
    lower: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("power", self.power, self.power >= 0.0, "a number of at least 0")
        _check("shift", self.shift, self.shift >= 0.0, "a number of at least 0")
        _check("lower", self.lower, math.isfinite(self.lower), "a finite number")

    def __str__(self) -> str:
        """A logarithm or a power as such, with its end where that does not say it."""
        moved = self.shift - self.lower
        shifted = f"x {'+' if moved > 0.0 else '-'} {abs(moved)!r}" if moved else "x"
        end = f", never below {self.lower:g}" if self.shift or self.power else ""
        root = f"({shifted})^{self.power:g}" if moved else f"x^{self.power:g}"
        return f"{root if self.power else f'log({shifted})'}{end}"

    @property
    def ends(self) -> tuple[float, float]:
        """The lower one only."""
        return self.lower, math.inf

    def moved(self, slope: float, shift: float) -> Transform | None:
        """The same power, of another end."""
        lower = slope * self.lower + shift
        return replace(self, shift=slope * self.shift, lower=lower) if slope > 0.0 else None

    def curve(self, y: Array) -> Array:
        """The power."""
        return np.asarray(box_cox(y - self.lower + self.shift, self.power))

    def undone(self, z: Array) -> Array:
        """Its root."""
        least = -math.inf if self.power == 0.0 else -1.0 / self.power
        return np.asarray(inv_boxcox(np.maximum(z, least), self.power)) - self.shift + self.lower

    def log_slope(self, y: Array) -> Array:
        """(λ - 1) times the logarithm."""
        return np.asarray((self.power - 1.0) * np.log(y - self.lower + self.shift))


@dataclass(frozen=True, kw_only=True)
class YeoJohnson(Transform):
    r"""Powers to either side of a centre, for columns of either sign.

    .. math:: T(y) = \begin{cases}((u + 1)^\lambda - 1) / \lambda & u \ge 0\\
        -((1 - u)^{2-\lambda} - 1) / (2 - \lambda) & u < 0\end{cases}, \qquad u = \frac{y - \text{centre}}{\text{unit}}

    Args:
        power: λ from 0 to 2; below 1 for a column with a long upper tail.
        centre: of the column.
        unit: of the column, above 0.

    Source:
        Yeo & Johnson (2000), A new family of power transformations to improve normality or symmetry, equation 2.1.
    """

    name = "yeo-johnson"
    power: float = 1.0
    centre: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("power", self.power, 0.0 <= self.power <= 2.0, "a number from 0 to 2")
        _check("centre", self.centre, math.isfinite(self.centre), "a finite number")
        _check("unit", self.unit, self.unit > 0.0, "a number above 0")

    def moved(self, slope: float, shift: float) -> Transform | None:
        """Of another centre and unit, and with the sides exchanged where it falls."""
        power = self.power if slope > 0.0 else 2.0 - self.power
        return replace(self, power=power, centre=slope * self.centre + shift, unit=abs(slope) * self.unit)

    def curve(self, y: Array) -> Array:
        """Powers of the distance from the centre."""
        u = (y - self.centre) / self.unit
        return self._sided(u, box_cox(1.0 + np.abs(u), self.power), box_cox(1.0 + np.abs(u), 2.0 - self.power))

    def undone(self, z: Array) -> Array:
        """Their roots."""
        roots = (inv_boxcox(np.abs(z), power) - 1.0 for power in (self.power, 2.0 - self.power))
        return self._sided(z, *roots) * self.unit + self.centre

    def log_slope(self, y: Array) -> Array:
        """That of the power of its side."""
        u = (y - self.centre) / self.unit
        return np.asarray(np.sign(u) * (self.power - 1.0) * np.log1p(np.abs(u)) - math.log(self.unit))

    def _sided(self, sign: Array, above: Any, below: Any) -> Array:
        return np.where(sign >= 0.0, above, -below)


@dataclass(frozen=True, kw_only=True)
class Logit(Transform):
    r"""The logit of the place between two ends, which no filled value is beyond.

    .. math:: T(y) = \log\frac{p}{1 - p}, \qquad
        p = \frac{y - \text{lower} + m}{\text{upper} - \text{lower} + 2 m}, \quad
        m = \text{margin} (\text{upper} - \text{lower})

    Args:
        lower: lowest value that there can be.
        upper: highest value.
        margin: at least 0; above 0 the slope is finite at the ends.
    """

    name = "logit"
    lower: float = 0.0
    upper: float = 1.0
    margin: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("lower", self.lower, -math.inf < self.lower < self.upper < math.inf, f"one below upper ({self.upper})")
        _check("margin", self.margin, self.margin >= 0.0, "a number of at least 0")

    @property
    def ends(self) -> tuple[float, float]:
        """Both."""
        return self.lower, self.upper

    def moved(self, slope: float, shift: float) -> Transform | None:
        """Between other ends."""
        lower, upper = sorted(slope * end + shift for end in self.ends)
        return replace(self, lower=lower, upper=upper)

    def curve(self, y: Array) -> Array:
        """The logit."""
        return np.asarray(logit(self._share(y)))

    def undone(self, z: Array) -> Array:
        """The logistic function."""
        return np.asarray((expit(z) * (1.0 + 2.0 * self.margin) - self.margin) * self._range + self.lower)

    def log_slope(self, y: Array) -> Array:
        """That of the logit, less the logarithm of the range."""
        share = self._share(y)
        return np.asarray(-np.log(share) - np.log1p(-share) - math.log(self._range * (1.0 + 2.0 * self.margin)))

    @property
    def _range(self) -> float:
        return self.upper - self.lower

    def _share(self, y: Array) -> Array:
        return ((y - self.lower) / self._range + self.margin) / (1.0 + 2.0 * self.margin)


def _check(name: str, value: Any, fits: bool, expected: str) -> None:
    if not fits or not math.isfinite(value):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
