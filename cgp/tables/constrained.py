"""A posterior of transformed columns given totals of them too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from sklearn.utils import check_random_state

from cgp.regression import Posterior
from cgp.regression.posterior import Marginals
from cgp.regression.solvers.model import first_member
from cgp.regression.solvers.summed import SummedReadings, SummedSeriesRegression
from cgp.regression.sums import GivenSums, Sums
from cgp.warning import warn_user

from .slices import Curve, CurvedTotals, sliced_draws
from .transforms.columns import TransformedPosterior, Transforms

if TYPE_CHECKING:
    from .frames.table import Table

__all__ = ["ConstrainedPosterior", "check_ends", "constrained", "split_sums"]

Array = NDArray[Any]

_CHAINS, _OF_A_MEMBER = 50, 4  # chains, and of each member of a mixture at least
_DRAWS, _FEWEST_DRAWS, _MOST_DRAWN = 1000, 200, 5_000_000  # for moments; values that are held
_FEW = 1000  # rows that are drawn by a root of their covariance
_LINEARISED, _STEP, _NEAR = 4, 1.0, 0.1  # times, and deviations by which the mode moves, and may move still
_NAMED = 5  # totals in a warning
_AT_AN_END = 1e-9  # of a total's size
_ROUNDING = 1e-6  # of a total and its readings: what is left is at an end


@dataclass(frozen=True)
class ConstrainedPosterior(TransformedPosterior):
    """As :class:`.TransformedPosterior`, given totals of the columns too; moments are those of a thousand draws.

    Attributes:
        latent: of the transforms, given the linear parts of the totals at the mode.
        transforms: of all columns.
        known: the totals that leave more than one value.
        settled: places in units of the models, ``(k, d + 1)``, at which a total leaves the lower end only.
    """

    known: CurvedTotals
    settled: torch.Tensor

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
        totals = self.summed_draws(X, outputs, weights, sums)
        mean, variance = totals.mean(axis=0), totals.var(axis=0)
        return mean, np.where(variance > _AT_AN_END**2 * (1.0 + mean**2), variance, 0.0)

    def summed_draws(self, X: Array, outputs: Array, weights: Array, sums: Array) -> Array:
        """As :meth:`.TransformedPosterior.summed_draws`, of the draws that are kept."""
        places, number = np.unique(X, axis=0, return_inverse=True)
        count = int(sums.max()) + 1
        totals = np.zeros((len(self._drawn_at(places)), count))
        for p in np.unique(outputs):
            mine = outputs == p
            values = self.transforms.inverse(self._drawn_at(places)[..., p], np.full(len(places), p))
            shares = coo_array((weights[mine], (sums[mine], number.reshape(-1)[mine])), shape=(count, len(places)))
            totals += (shares.tocsr() @ values.T).T
        return totals

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
        places = torch.as_tensor(rows, dtype=terms.dtype)
        draws = self._free_draws(X, outputs, places, chains, kept, random_state)
        at_end = (places[:, None] == self.settled).all(dim=-1).any(dim=-1).numpy()
        ends = _ends(self.transforms, outputs[at_end])[:, 0]
        draws[:, at_end] = self.transforms.forward(ends, outputs[at_end])
        return draws

    def _free_draws(
        self, X: Array, outputs: Array, places: torch.Tensor, chains: int, kept: int, random_state: Any
    ) -> Array:
        """Draws given the totals that leave more than one value."""
        terms = self.known.given.places
        if not len(terms):
            return self.latent.draw_at(X, outputs, chains * kept, random_state, include_noise=True)
        every = torch.cat([terms, places])
        source = check_random_state(random_state)
        pairs = zip(self.latent.models, self.latent.conditions, strict=True)
        members = [each for model, condition in pairs for each in _members(model, condition, every)]
        counts = source.multinomial(chains, np.full(len(members), 1.0 / len(members)))
        parts = [
            sliced_draws(self.known, member, root, int(count), kept, source)[:, len(terms) :]
            for (member, root), count in zip(members, counts, strict=True)
            if count
        ]
        scaling = self.latent.units.outputs.chosen(outputs)
        return scaling.undo(np.concatenate(parts)[source.permutation(chains * kept)])


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
    settled = known.given.places[_settled(known.given, transforms, known.curve.outputs)].unique(dim=0)
    if len(settled):
        latent = _given_ends(latent, transforms, settled)
        known = _known(latent, transforms, sums)
    if not len(known.given.values):
        return ConstrainedPosterior(latent, transforms, known, settled)
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
    return ConstrainedPosterior(given, transforms, known, settled)


def _known(latent: Posterior, transforms: Transforms, sums: Sums) -> CurvedTotals:
    """The totals of what is missing."""
    units, (model, *_) = latent.units, latent.models
    rows, targets = first_member(model)
    columns = np.argsort(units.numbers)[rows[:, -1].long().numpy()]
    scaling = units.outputs.chosen(columns)
    values = transforms.inverse(scaling.undo(targets.double().numpy()), columns)
    places = np.column_stack([units.inputs.apply(sums.places[:, :-1]), units.numbers[sums.outputs]])
    given = _of_reading_size(sums, values, columns)._replace(places=places).given(rows, torch.as_tensor(values))
    outputs = np.argsort(units.numbers)[given.places[:, -1].long().numpy()]
    which = units.outputs.chosen(outputs)
    return CurvedTotals(given, Curve(transforms, outputs, which.undo(np.zeros(len(outputs))), which.unit))


def _members(
    model: SummedSeriesRegression, condition: Any, rows: torch.Tensor
) -> Iterator[tuple[SummedReadings, Array | None]]:
    """Readings at rows, and a root of their covariance where there are few."""
    places, number = torch.unique(rows, dim=0, return_inverse=True)
    if len(places) > _FEW:
        return zip(model.readings(rows, condition), repeat(None), strict=False)
    covariance = model.joint_readings(places, condition)[1]
    values, vectors = torch.linalg.eigh(covariance.reshape(-1, *covariance.shape[-2:]))
    roots = (values.clamp(min=0.0).sqrt().unsqueeze(-1) * vectors.mT)[..., number]
    return zip(model.readings(rows, condition), roots.double().numpy(), strict=True)


def check_ends(sums: Sums, table: Table, transforms: Transforms) -> None:
    """Refuse totals that leave no room between the ends of what is missing, before a fit.

    Args:
        sums: in the user's units, by columns.
        table: what is known.
        transforms: of its columns.

    Raises:
        ValueError: if there are some, unless what is missing is at an end that has a probability of its own.

    Warns:
        UserWarning: if it is: these values are filled with the end.
    """
    at, columns = np.nonzero(table.known)
    values, rows = table.values[at, columns], np.column_stack([table.inputs[at], columns])
    given = _of_reading_size(sums, values, columns).given(torch.as_tensor(rows), torch.as_tensor(values))
    outputs = given.places[:, -1].long().numpy()
    if not (settled := _settled(given, transforms, outputs)).any():
        return
    names = np.array(given.names, dtype=object)[np.unique(given.sums.numpy()[settled])]
    ends = " or ".join(f"{end:g}" for end in np.unique(_ends(transforms, outputs[settled])[:, 0]))
    warn_user(
        f"totals: nothing is left for {len(given.places[settled].unique(dim=0))} missing values of "
        f"{', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}, which are filled with {ends}"
    )


def _settled(given: GivenSums, transforms: Transforms, outputs: Array) -> NDArray[np.bool_]:
    """Which of t terms a total leaves their lower end only, which has a probability of its own, ``(t,)``."""
    weights, sums, values = (each.numpy() for each in (given.weights, given.sums, given.values))
    count, used = len(values), weights != 0.0
    ends = np.where(used[:, None], _ends(transforms, outputs), 0.0)
    lowest, highest = (np.bincount(sums, weights * each, count) for each in ends.T)
    little = _ROUNDING * given.sizes.numpy()
    exact = (np.bincount(sums, weights < 0.0, count) == 0) & (given.noise.numpy() == 0.0)
    others = np.bincount(sums, used & np.isnan(transforms.atoms[outputs]), count) > 0
    at_lowest = exact & ~others & (np.abs(values - lowest) <= little)
    closed = exact & ~at_lowest & ((values - lowest <= little) | (highest - values <= little))
    if closed.any():
        names = ", ".join(np.array(given.names, dtype=object)[closed])
        raise ValueError(
            f"totals: expected what is missing of {names} to be between the ends of its column, got totals at or "
            "beyond one of them for every value: correct them, or fill these values with the end and leave the "
            "totals out"
        )
    return used & at_lowest[sums]


def _given_ends(latent: Posterior, transforms: Transforms, places: torch.Tensor) -> Posterior:
    """A posterior given that readings at places ``(k, d + 1)`` in its units are at their lower end."""
    columns = np.argsort(latent.units.numbers)[places[:, -1].long().numpy()]
    ends = transforms.forward(_ends(transforms, columns)[:, 0], columns)
    (model, *_) = latent.models
    rows, targets = first_member(model)
    values = torch.as_tensor(latent.units.outputs.chosen(columns).apply(ends), dtype=targets.dtype)
    pairs = zip(latent.models, latent.conditions, strict=True)
    models, conditions = zip(*(each.extended(places.to(rows), values, known) for each, known in pairs), strict=True)
    observed = latent.observed.appended(torch.as_tensor(columns[:, None] == np.arange(latent.num_outputs)))
    return Posterior(list(models), latent.units, observed, list(conditions))


def _of_reading_size(sums: Sums, values: Array, columns: Array) -> Sums:
    """Sums divided by their weights times the deviations of readings ``(n,)`` of their columns."""
    used = np.unique(sums.outputs)
    spread = np.array([_spread(values[columns == p]) for p in used])[np.searchsorted(used, sums.outputs)]
    size = np.bincount(sums.sums, np.abs(sums.weights) * spread, len(sums.values))
    return sums._replace(weights=sums.weights / size[sums.sums], values=sums.values / size, noise=sums.noise / size**2)


def _ends(transforms: Transforms, outputs: Array) -> Array:
    """The lower and upper ends of columns, ``(t, 2)``."""
    return np.array([transforms.kinds[p].ends for p in outputs]).reshape(-1, 2)


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
