r"""Elliptical slices on the surface where totals of functions of Gaussian values hold.

Given the readings, the transforms x of what is missing are Gaussian, and a total is known of their inverses,
:math:`\sum_i w_i T^{-1}(x_i) = t`. With the totals' linear parts at the mode, s of covariance V,

.. math:: x = r + \operatorname{Cov}[x, s]\, V^{-1} u, \qquad r \perp u, \qquad
    p(r \mid t) \propto p(r)\, p(u_r) \Big/ \Big|\det \frac{\partial t}{\partial u}\Big|

where r is drawn given the linear parts, and :math:`u_r` is what the totals leave it, by Newton's method. So r has a
Gaussian prior and a likelihood that is nearly constant: elliptical slices leave the density exactly as it is.

Source:
    Murray, Adams & MacKay (2010), Elliptical slice sampling, figure 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from cgp.regression.solvers.summed import SummedReadings
from cgp.regression.sums import GivenSums, Sums

from .transforms.columns import Transforms

__all__ = ["Curve", "CurvedTotals", "sliced_draws"]

Array = NDArray[Any]

_WARM_UP, _MOST = 10, 300  # steps of each chain that are forgotten, at least and at most
_LEFT, _ALIKE = 1e-3, 0.6  # of the start's variance after them; correlation of draws that are kept, at most about
_AT_ONCE = 2**21  # values of all cells that are drawn together
_NEWTON, _STEP, _EXACT, _CLOSE = 80, 1.0, 1e-14, 1e-11  # steps, their length, and errors of totals
_SHRINKS = 60
_NEARER = (0.5, 0.2, 0.0)  # of a draw's distance from the mean, where chains start instead
_FLATTEST = 1e-3  # slope of a linear part, of the column's largest


class Curve(NamedTuple):
    """Values of transforms in units of the models.

    Attributes:
        transforms: of the columns.
        outputs: the column of each of t terms, ``(t,)``.
        centre: of the transforms, ``(t,)``.
        unit: of the transforms, ``(t,)``.
    """

    transforms: Transforms
    outputs: Array
    centre: Array
    unit: Array

    def values(self, x: Array) -> Array:
        """In the user's units, ``(..., t)``."""
        return self.transforms.inverse(self.centre + self.unit * x, self.outputs)

    def slopes(self, x: Array) -> Array:
        """Of the values, 0 where they are at an end, ``(..., t)``."""
        z, slopes = self.centre + self.unit * x, np.empty_like(x)
        for p in np.unique(self.outputs):
            kind, at = self.transforms.kinds[p], self.outputs == p
            y = kind.undone(z[..., at])
            inside = (y >= kind.ends[0]) & (y <= kind.ends[1])
            with np.errstate(divide="ignore", over="ignore"):
                slope = np.exp(-kind.log_slope(np.clip(y, *kind.ends)))
            slopes[..., at] = np.where(inside, slope, 0.0)
        return slopes * self.unit


class CurvedTotals(NamedTuple):
    """Totals of what is missing, in units in which a reading is about 1.

    Attributes:
        given: as sums, places in units of the models.
        curve: values of the terms.
    """

    given: GivenSums
    curve: Curve

    def matrix(self, weights: Array) -> csr_array:
        """Weights of the terms ``(t,)`` by sums, ``(M, t)``."""
        numbers = self.given.sums.numpy()
        return coo_array((weights, (numbers, np.arange(len(numbers)))), (len(self.given.values), len(numbers))).tocsr()

    @property
    def weights(self) -> csr_array:
        """Those of the totals."""
        return self.matrix(self.given.weights.numpy())

    def linear(self, x: Array) -> Sums:
        """Their linear parts at transforms ``(t,)``."""
        slopes = self.curve.slopes(x)
        largest = slopes.max() or 1.0  # where all are at their ends, as rain that is expected nowhere
        weights = self.given.weights.numpy() * np.maximum(slopes, _FLATTEST * largest)
        numbers = self.given.sums.numpy()
        values = self.given.values.numpy() - self.weights @ self.curve.values(x)
        values += np.bincount(numbers, weights * x, len(values))
        of_readings = np.ones(len(values), dtype=bool)
        of_readings[numbers[self.given.readings.numpy() < 0]] = False
        given = self.given
        return Sums(given.places.numpy(), weights, numbers, values, given.noise.numpy(), of_readings, given.names)


class _Surface(NamedTuple):
    r"""Where the totals hold, of a member of the mixture.

    Attributes:
        known: M totals.
        response: of transforms at the terms to the linear parts, ``(t, M)``.
        error: linear parts less their mean given the readings, ``(M,)``.
        precision: inverse of their covariance, ``(M, M)``.
        linear: weights of the linear parts, ``(M, t)``.
        values: of the linear parts, ``(M,)``.
    """

    known: CurvedTotals
    response: Array
    error: Array
    precision: Array
    linear: csr_array
    values: Array

    @property
    def size(self) -> float:
        """Of the largest total, in units of a reading."""
        return 1.0 + float(np.abs(self.known.given.values.numpy()).max())

    def reached(self, r: Array) -> tuple[Array, Array]:
        """The u and the log-likelihood of r ``(C, t)``, -inf where Newton's method does not get there."""
        given, weights, u = self.known.given, self.known.weights, np.zeros((len(r), len(self.values)))
        noise = given.noise.numpy()
        errors = np.where(noise > 0.0, self.values - (self.linear @ r.T).T, 0.0)  # of totals that have some
        noisy = noise[:, None] * self.precision
        far, slopes = np.full(len(r), np.inf), np.ones((len(r), len(noise), len(noise)))
        open_ = np.arange(len(r))  # others are there
        for _ in range(_NEWTON):
            x = r[open_] + u[open_] @ self.response.T
            reached = errors[open_] + u[open_] @ noisy.T + (weights @ self.known.curve.values(x).T).T
            missed = given.values.numpy() - reached
            slopes[open_] = self._summed(self.known.curve.slopes(x)) + noisy
            far[open_] = np.abs(missed).max(axis=1)
            on = (far[open_] > _EXACT * self.size) & np.isfinite(slopes[open_]).all(axis=(1, 2))
            missed, open_ = missed[on], open_[on]
            if not len(open_):
                break
            step = np.linalg.solve(slopes[open_] + 1e-12 * np.eye(len(noise)), missed[..., None])[..., 0]
            length = np.abs(step @ self.response.T).max(axis=1)
            u[open_] += step * np.minimum(1.0, _STEP / np.maximum(length, _EXACT))[:, None]
        away = self.error + u
        density = -0.5 * np.einsum("cm,ml,cl->c", away, self.precision, away)
        with np.errstate(divide="ignore"):
            density -= np.linalg.slogdet(slopes)[1]
        return u, np.where((far <= _CLOSE * self.size) & np.isfinite(density), density, -np.inf)

    def _summed(self, slopes: Array) -> Array:
        """How totals follow u at slopes of the values ``(C, t)``, ``(C, M, M)``."""
        given, M = self.known.given, len(self.values)
        weighted = given.weights.numpy()[:, None] * self.response
        order, numbers = np.argsort(given.sums.numpy(), kind="stable"), given.sums.numpy()
        present, first = np.unique(numbers[order], return_index=True)
        result = np.zeros((len(slopes), M, M))
        part = max(1, _AT_ONCE // max(1, weighted.size))
        for low in range(0, len(slopes), part):
            terms = slopes[low : low + part, order, None] * weighted[order]
            result[low : low + part, present] = np.add.reduceat(terms, first, axis=1)
        return result


def sliced_draws(
    known: CurvedTotals,
    member: SummedReadings,
    root: Array | None,
    count: int,
    kept: int,
    source: np.random.RandomState,
) -> Array:
    """Draws given totals: of each chain, after as many steps as forget its start, and as many apart.

    Args:
        known: the totals.
        member: readings given their linear parts, the terms of the totals first.
        root: A, with AᵀA their covariance, ``(k, t)``; None is to draw them along the chain.
        count: number of chains.
        kept: draws of each.
        source: of randomness.

    Returns:
        ``(count * kept, t)``.

    Raises:
        ValueError: if no values of the columns have the totals.
    """
    response, terms = member.response(), known.weights.shape[1]
    slopes, mean = response.slopes.numpy(), member.moments().mean.double().numpy()
    precision = np.linalg.inv(response.covariance.numpy())
    linear = known.matrix(member.posterior.sums.terms.weights)
    values = member.posterior.sums.values.numpy() + linear @ member.mean[:terms].double().numpy()
    surface = _Surface(known, slopes[:terms], response.error.numpy(), precision, linear, values)
    generator = torch.Generator().manual_seed(int(source.randint(2**31 - 1)))

    part = int(np.clip(_AT_ONCE // (count * member.posterior.points.mean.numel()), 1, _WARM_UP + kept + 1))

    def fresh() -> Iterator[Array]:
        while root is not None:
            yield source.normal(size=(count, len(root))) @ root
        while True:
            yield from np.split(member.draw(count * part, generator).double().numpy() - mean, part)

    others = fresh()
    draws: list[Array] = []
    r, u, level = _starts(surface, mean, next(others))
    left, steps = np.ones(count), 0
    while steps < _MOST and (steps < _WARM_UP or left.mean() > _LEFT):
        r, u, level, cosine = _slice(surface, mean, r, u, level, next(others), source)
        left, steps = left * cosine**2, steps + 1
    a_step = 0.5 * np.log(left.mean()) / steps  # of a step, the logarithm of what is left
    apart = int(np.clip(np.log(_ALIKE) / a_step + 0.5, 1, _MOST // _WARM_UP))
    for _ in range(kept):
        for _ in range(apart):
            r, u, level, _ = _slice(surface, mean, r, u, level, next(others), source)
        draws.append(mean + r + u @ slopes.T)
    if not np.isfinite(level).all():
        raise ValueError("totals: expected totals that values of their columns can have, found none that do")
    return np.concatenate(draws)


def _starts(surface: _Surface, mean: Array, r: Array) -> tuple[Array, Array, Array]:
    """Where chains start: at draws r ``(C, t)``, nearer to the mean where the totals are not reached, or at another's.

    Totals hardly move a value that is at its end at the mode: where a draw has it elsewhere they may be out of reach.

    Returns:
        r, with u and likelihood there, ``(C,)``.
    """
    terms = surface.response.shape[0]
    u, level = surface.reached((mean + r)[:, :terms])
    for share in _NEARER:
        if np.isfinite(level).all():
            break
        lost = np.flatnonzero(~np.isfinite(level))
        nearer = share * r[lost]
        found, density = surface.reached((mean + nearer)[:, :terms])
        reached = np.isfinite(density)
        at = lost[reached]
        r[at], u[at], level[at] = nearer[reached], found[reached], density[reached]
    if (lost := ~np.isfinite(level)).any() and not lost.all():
        like = np.resize(np.flatnonzero(~lost), lost.sum())
        r[lost], u[lost], level[lost] = r[like], u[like], level[like]
    return r, u, level


def _slice(
    surface: _Surface, mean: Array, r: Array, u: Array, level: Array, other: Array, source: np.random.RandomState
) -> tuple[Array, Array, Array, Array]:
    """A step of every chain along the ellipse through r and another draw of its prior.

    Returns:
        r, with u and likelihood there, and the share of the former r in it, ``(C,)``.
    """
    count, terms = len(r), surface.response.shape[0]
    with np.errstate(divide="ignore"):
        least = level + np.log(source.uniform(size=count))
    angle = source.uniform(0.0, 2.0 * np.pi, count)
    low, high, open_ = angle - 2.0 * np.pi, angle.copy(), np.arange(count)
    u, level, turned = u.copy(), level.copy(), np.zeros(count)
    for _ in range(_SHRINKS):
        cosine, sine = np.cos(angle[open_, None]), np.sin(angle[open_, None])
        reached, density = surface.reached(mean[:terms] + cosine * r[open_, :terms] + sine * other[open_, :terms])
        taken = density > least[open_]
        done, open_ = open_[taken], open_[~taken]
        u[done], level[done], turned[done] = reached[taken], density[taken], angle[done]
        if not len(open_):
            break
        low[open_] = np.where(angle[open_] < 0.0, angle[open_], low[open_])
        high[open_] = np.where(angle[open_] < 0.0, high[open_], angle[open_])
        angle[open_] = source.uniform(low[open_], high[open_])
    cosine = np.cos(turned)
    return cosine[:, None] * r + np.sin(turned)[:, None] * other, u, level, cosine
