r"""Totals of transformed columns: joint draws that have them, by elliptical slices on the surface where they hold.

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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from sklearn.utils import check_random_state

from cgp.regression import Posterior
from cgp.regression.posterior import Marginals
from cgp.regression.solvers.model import first_member
from cgp.regression.solvers.summed import SummedReadings, SummedSeriesRegression
from cgp.regression.sums import GivenSums, Sums

from .transforms.columns import TransformedPosterior, Transforms

__all__ = ["ConstrainedPosterior", "constrained", "split_sums"]

Array = NDArray[Any]

_CHAINS, _OF_A_MEMBER, _WARM_UP = 50, 4, 10  # chains, and steps of each that are forgotten
_DRAWS, _FEWEST_DRAWS, _MOST_DRAWN = 1000, 200, 5_000_000  # for moments; values that are held
_AT_ONCE = 2**23  # values of all cells that are drawn together
_LINEARISED, _NEAR = 4, 0.1  # times, and standard deviations by which the mode may still move
_NEWTON, _STEP, _EXACT, _CLOSE = 80, 1.0, 1e-14, 1e-11  # steps, their length, and errors of totals
_SHRINKS = 60
_FLATTEST = 1e-3  # slope of a linear part, of the column's largest
_AT_AN_END = 1e-9  # of a total's size


class _Curve(NamedTuple):
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


class _Known(NamedTuple):
    """Totals of what is missing, in units in which a reading is about 1.

    Attributes:
        given: as sums, places in units of the models.
        curve: values of the terms.
    """

    given: GivenSums
    curve: _Curve

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
        weights = self.given.weights.numpy() * np.maximum(slopes, _FLATTEST * slopes.max())
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

    known: _Known
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
        far = np.full(len(r), np.inf)
        for _ in range(_NEWTON):
            x = r + u @ self.response.T
            missed = given.values.numpy() - errors - u @ noisy.T - (weights @ self.known.curve.values(x).T).T
            slopes = (
                np.stack([weights @ (each[:, None] * self.response) for each in self.known.curve.slopes(x)]) + noisy
            )
            far = np.abs(missed).max(axis=1)
            if (far <= _EXACT * self.size).all() or not np.isfinite(slopes).all():
                break
            step = np.linalg.solve(slopes + 1e-12 * np.eye(len(noise)), missed[..., None])[..., 0]
            length = np.abs(step @ self.response.T).max(axis=1)
            u = u + step * np.minimum(1.0, _STEP / np.maximum(length, _EXACT))[:, None]
        away = self.error + u
        density = -0.5 * np.einsum("cm,ml,cl->c", away, self.precision, away)
        with np.errstate(divide="ignore"):
            density -= np.linalg.slogdet(slopes)[1]
        return u, np.where((far <= _CLOSE * self.size) & np.isfinite(density), density, -np.inf)


@dataclass(frozen=True)
class ConstrainedPosterior(TransformedPosterior):
    """As :class:`.TransformedPosterior`, given totals of the columns too; moments are those of a thousand draws.

    Attributes:
        latent: of the transforms, given the linear parts of the totals at the mode.
        transforms: of all columns.
        known: the totals.
    """

    known: _Known

    def marginals(self, X: Array) -> Marginals:
        """As :meth:`.TransformedPosterior.marginals`."""
        values = self.transforms.inverse(self._drawn_at(X))
        return Marginals(values.mean(axis=0), values.std(axis=0))

    def gaussian(self, X: Array) -> Marginals:
        """Means and standard deviations of the transforms at inputs ``(t, d)``, ``(t, P)`` each."""
        draws = self._drawn_at(X)
        return Marginals(draws.mean(axis=0), draws.std(axis=0))

    def draw_at(self, X: Array, outputs: Array, count: int, random_state: Any, *, include_noise: bool) -> Array:
        """As :meth:`.TransformedPosterior.draw_at`, of readings only."""
        _check_noise(include_noise)
        return self.transforms.inverse(self._draws(X, np.asarray(outputs), count, 1, random_state), np.asarray(outputs))

    def totals(
        self, X: Array, outputs: Array, weights: Array, sums: Array, *, include_noise: bool
    ) -> tuple[Array, Array]:
        """As :meth:`.TransformedPosterior.totals`, of readings only; the moments are those of the draws."""
        _check_noise(include_noise)
        places, number = np.unique(X, axis=0, return_inverse=True)
        count = int(sums.max()) + 1
        totals = np.zeros((len(self._drawn_at(places)), count))
        for p in np.unique(outputs):
            mine = outputs == p
            values = self.transforms.inverse(self._drawn_at(places)[..., p], np.full(len(places), p))
            shares = coo_array((weights[mine], (sums[mine], number.reshape(-1)[mine])), shape=(count, len(places)))
            totals += (shares.tocsr() @ values.T).T
        mean, variance = totals.mean(axis=0), totals.var(axis=0)
        return mean, np.where(variance > _AT_AN_END**2 * (1.0 + mean**2), variance, 0.0)

    def _drawn_at(self, X: Array) -> Array:
        """Draws of the transforms of readings of every column at inputs ``(t, d)``, ``(S, t, P)``, kept for them."""
        pool: dict[bytes, int] = self._pool.setdefault("rows", {})
        keys = [row.tobytes() for row in np.ascontiguousarray(X)]
        if not all(key in pool for key in keys):
            P = self.latent.num_outputs
            count = int(np.clip(_MOST_DRAWN // (len(X) * P), _FEWEST_DRAWS, _DRAWS))
            members = sum(model.batch().numel() for model in self.latent.models)
            chains = min(max(_CHAINS, _OF_A_MEMBER * members), count)
            draws = self._draws(np.repeat(X, P, axis=0), np.tile(np.arange(P), len(X)), chains, -(-count // chains), 0)
            self._pool.update(rows={key: row for row, key in enumerate(keys)}, draws=draws.reshape(-1, len(X), P))
            pool = self._pool["rows"]
        found = [pool[key] for key in keys]
        draws = self._pool["draws"]
        return draws if found == list(range(draws.shape[1])) else draws[:, found]

    @cached_property
    def _pool(self) -> dict[str, Any]:
        return {}

    def _draws(self, X: Array, outputs: Array, chains: int, kept: int, random_state: Any) -> Array:
        """Draws of the transforms of readings, each of one column, ``(chains * kept, t)``."""
        rows = np.column_stack([self.latent.units.inputs.apply(X), self.latent.units.numbers[outputs]])
        terms = self.known.given.places
        every = torch.cat([terms, torch.as_tensor(rows, dtype=terms.dtype)])
        source = check_random_state(random_state)
        parts = []
        pairs = zip(self.latent.models, self.latent.conditions, strict=True)
        members = [each for model, condition in pairs for each in model.readings(every, condition)]
        counts = source.multinomial(chains, np.full(len(members), 1.0 / len(members)))
        for member, count in zip(members, counts, strict=True):
            if count:
                parts.append(_chains(self.known, member, int(count), kept, source)[:, len(terms) :])
        scaling = self.latent.units.outputs.chosen(outputs)
        return scaling.undo(np.concatenate(parts)[source.permutation(chains * kept)])


def _chains(known: _Known, member: SummedReadings, count: int, kept: int, source: np.random.RandomState) -> Array:
    """Draws of a member at rows, the terms of the totals first, ``(count * kept, t)``."""
    response, terms = member.response(), known.weights.shape[1]
    slopes, mean = response.slopes.numpy(), member.moments().mean.double().numpy()
    precision = np.linalg.inv(response.covariance.numpy())
    linear = known.matrix(member.posterior.sums.terms.weights)
    values = member.posterior.sums.values.numpy() + linear @ member.mean[:terms].double().numpy()
    surface = _Surface(known, slopes[:terms], response.error.numpy(), precision, linear, values)
    generator = torch.Generator().manual_seed(int(source.randint(2**31 - 1)))

    steps = _WARM_UP + kept
    part = int(np.clip(_AT_ONCE // (count * member.posterior.points.mean.numel()), 1, steps + 1))

    def fresh() -> Iterator[Array]:
        while True:
            yield from np.split(member.draw(count * part, generator).double().numpy() - mean, part)

    others = fresh()
    r, draws = next(others), []
    u, level = surface.reached((mean + r)[:, :terms])
    for step in range(steps):
        r, u, level = _slice(surface, mean, r, u, level, next(others), source)
        if step >= _WARM_UP:
            draws.append(mean + r + u @ slopes.T)
    if not np.isfinite(level).all():
        raise ValueError("totals: expected totals that values of their columns can have, found none that do")
    return np.concatenate(draws)


def _slice(
    surface: _Surface, mean: Array, r: Array, u: Array, level: Array, other: Array, source: np.random.RandomState
) -> tuple[Array, Array, Array]:
    """A step of every chain along the ellipse through r and another draw of its prior, with u and likelihood there."""
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
    return np.cos(turned)[:, None] * r + np.sin(turned)[:, None] * other, u, level


def constrained(latent: Posterior, transforms: Transforms, sums: Sums) -> ConstrainedPosterior:
    """A posterior given totals too.

    Args:
        latent: of the transforms, of series, given readings.
        transforms: of its columns.
        sums: in the user's units, by columns.

    Returns:
        Another posterior.

    Raises:
        ValueError: if a total contradicts what is known of it, or values at the ends of a column.
    """
    known = _known(latent, transforms, sums)
    terms, size = known.given.places, len(known.given.sums)
    x = np.mean([model.moments(terms, noisy=True).mean.reshape(-1, size).mean(0) for model in latent.models], axis=0)
    for _ in range(_LINEARISED):
        linear = known.linear(x)
        models = [SummedSeriesRegression.beside(model, linear) for model in latent.models]
        conditions = [model.condition() for model in models]
        pairs = zip(models, conditions, strict=True)
        means = [model.moments(terms, each, noisy=True).mean.reshape(-1, size).mean(0) for model, each in pairs]
        step = np.mean([mean.numpy() for mean in means], axis=0) - x
        x = x + np.clip(step, -_STEP, _STEP)
        if np.abs(step).max(initial=0.0) < _NEAR:
            break
    given = Posterior(models, latent.units, latent.observed, conditions)
    return ConstrainedPosterior(given, transforms, known)


def _known(latent: Posterior, transforms: Transforms, sums: Sums) -> _Known:
    """The totals of what is missing."""
    units, (model, *_) = latent.units, latent.models
    rows, targets = first_member(model)
    columns = np.argsort(units.numbers)[rows[:, -1].long().numpy()]
    scaling = units.outputs.chosen(columns)
    values = transforms.inverse(scaling.undo(targets.double().numpy()), columns)
    spread = np.array([_spread(values[columns == p]) for p in range(len(units.numbers))])
    size = np.bincount(sums.sums, np.abs(sums.weights) * spread[sums.outputs], len(sums.values))
    places = np.column_stack([units.inputs.apply(sums.places[:, :-1]), units.numbers[sums.outputs]])
    scaled = sums._replace(places=places, weights=sums.weights / size[sums.sums])
    scaled = scaled._replace(values=sums.values / size, noise=sums.noise / size**2)
    given = scaled.given(rows, torch.as_tensor(values))
    outputs = np.argsort(units.numbers)[given.places[:, -1].long().numpy()]
    _check_ends(given, np.array([transforms.kinds[p].ends for p in outputs]).reshape(-1, 2))
    which = units.outputs.chosen(outputs)
    return _Known(given, _Curve(transforms, outputs, which.undo(np.zeros(len(outputs))), which.unit))


def _check_ends(given: GivenSums, ends: Array) -> None:
    """Refuse totals that leave no room between the ends ``(t, 2)`` of what is missing."""
    weights, sums, values = (each.numpy() for each in (given.weights, given.sums, given.values))
    ends = np.where(weights[:, None] == 0.0, 0.0, ends)
    for sign, each in ((1.0, ends[:, 0]), (-1.0, ends[:, 1])):
        extreme = np.bincount(sums, weights * each, len(values))
        room = sign * (values - extreme) > _AT_AN_END * np.bincount(sums, np.abs(weights * values[sums]), len(values))
        usual = np.bincount(sums, weights < 0.0, len(values)) == 0
        closed = np.flatnonzero(usual & ~room & (given.noise.numpy() == 0.0))
        if len(closed):
            raise ValueError(
                f"totals: expected what is missing of {given.names[closed[0]]} to be between the ends of its column, "
                f"got a total at or beyond {each[sums == closed[0]][0]:g} for every value: correct it, or fill these "
                "values with the end and leave the total out"
            )


def _spread(values: Array) -> float:
    return float(np.std(values)) or 1.0 if len(values) else 1.0


def _check_noise(include_noise: bool) -> None:
    if not include_noise:
        raise ValueError("include_noise: expected True where totals of transformed columns are known, got False")


def split_sums(sums: Sums | None, transforms: Transforms) -> tuple[Sums | None, Sums | None]:
    """Sums of columns that are not transformed, for a fit; and all, if some are of columns that are."""
    if sums is None or not np.isin(sums.outputs, transforms.changed).any():
        return sums, None
    curved = np.isin(sums.outputs, transforms.changed)
    of_process = np.flatnonzero(curved & ~sums.of_readings[sums.sums])
    if len(of_process):
        raise ValueError(
            f"totals: expected of='readings' for {sums.names[sums.sums[of_process[0]]]}, whose column is transformed, "
            "got 'process': the function beneath is of its transform"
        )
    return sums.without(transforms.changed), sums
