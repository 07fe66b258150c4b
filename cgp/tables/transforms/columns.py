"""The transforms of all columns of a table, and a posterior of transformed columns in the user's units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.special import factorial
from scipy.stats import norm

from cgp.comparisons import normal_errors, student_reach, student_scores
from cgp.regression.posterior import Marginals, Posterior

from .kinds import Transform, Unchanged

__all__ = ["TransformedPosterior", "Transforms", "ValueScores"]

Array = NDArray[Any]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # exact to 1e-9 for logarithms of deviation 2
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_WIDEST = 2.0  # deviations of a mixture that one of its members has at most in the moments of its values
_LEVELS = (np.arange(400) + 0.5) / 400  # of the quantiles that the CRPS is a mean over
_DRAWS, _MOST_DRAWN = 4000, 5_000_000  # of sums, and values that are held
_ORDERS = 12  # of Hermite polynomials, each with its coefficient
_POLYNOMIALS = np.polynomial.hermite_e.hermevander(_NODES, _ORDERS) / np.sqrt(factorial(np.arange(_ORDERS + 1)))


class ValueScores(NamedTuple):
    """Scores of values under their predictive distributions, of one shape, in the user's units.

    Attributes:
        errors: standardised, in which the distribution is normal.
        nll: negative log-densities in nats.
        crps: continuous ranked probability scores.
    """

    errors: Array
    nll: Array
    crps: Array

    @classmethod
    def of(cls, errors: Array, sd: Array, freedom: Array | float = np.inf) -> Self:
        """Scores of errors of Gaussians, or of Student's t, with these standard deviations."""
        freedom = np.broadcast_to(freedom, np.shape(errors))
        scale = sd * np.sqrt(1.0 - 2.0 / freedom)
        return cls(normal_errors(errors / scale, freedom), *student_scores(errors, scale, freedom))

    def in_units(self, unit: Array) -> ValueScores:
        """The scores of values that are divided by units."""
        return ValueScores(self.errors, self.nll - np.log(unit), self.crps / unit)


@dataclass(frozen=True)
class Transforms:
    """One transform for each of P columns.

    Values have the columns last, unless ``outputs`` says which column each place of the last axis is of.

    Attributes:
        kinds: the transforms.
        names: of the columns.
    """

    kinds: tuple[Transform, ...]
    names: tuple[Any, ...]

    def __str__(self) -> str:
        """Those that change their column, by its name, with three digits."""
        return ", ".join(f"{self.names[p]}: {self.told(p)}" for p in self.changed) or "none"

    def told(self, column: int) -> str:
        """The transform of a column with three digits."""
        digits = re.compile(r"\d+\.\d+(e[-+]\d+)?")
        return digits.sub(lambda match: f"{float(match[0]):.3g}", str(self.kinds[column]))

    @classmethod
    def none(cls, names: Sequence[Any]) -> Self:
        """Columns as they are."""
        return cls((Unchanged(),) * len(names), tuple(names))

    @property
    def changed(self) -> list[int]:
        """The columns that are transformed."""
        return [column for column, kind in enumerate(self.kinds) if kind != Unchanged()]

    @property
    def atoms(self) -> Array:
        """The lower end of each column where it has a probability of its own, else NaN, ``(P,)``."""
        return np.array([kind.ends[0] if kind.has_atom else np.nan for kind in self.kinds])

    def forward(self, values: Array, outputs: Array | None = None) -> Array:
        """Transformed values.

        Args:
            values: ``(..., t)``.
            outputs: the column of each place, ``(t,)``; None is all columns in order.

        Returns:
            ``(..., t)``, NaN where they are.

        Raises:
            ValueError: if there is a value that a transform does not take.
        """
        result = self._applied("forward", values, outputs)
        wrong = np.argwhere(~np.isfinite(result) & np.isfinite(values))
        if len(wrong):
            column = int(wrong[0][-1] if outputs is None else outputs[wrong[0][-1]])
            raise ValueError(
                f"column {self.names[column]!r}: expected values that {self.kinds[column]} takes, got "
                f"{values[tuple(wrong[0])]:g}: a shift or a margin above 0 takes the ends themselves"
            )
        return result

    def inverse(self, values: Array, outputs: Array | None = None) -> Array:
        """The values of transformed ones ``(..., t)``."""
        return self._applied("inverse", values, outputs)

    def undone(self, posterior: Posterior) -> Posterior | TransformedPosterior:
        """The posterior of values from that of their transforms."""
        return TransformedPosterior(posterior, self) if self.changed else posterior

    def content(self) -> list[dict[str, Any]]:
        """The transforms as values for JSON."""
        return [kind.content() for kind in self.kinds]

    def moments(self, mean: Array, sd: Array, outputs: Array | None = None) -> Marginals:
        r"""Means and standard deviations of values whose transforms are Gaussian, by Gauss–Hermite quadrature.

        .. math:: \int T^{-1}(\mu + s x)\, N(x; 0, 1)\, dx

        Of many members none is taken for wider than two deviations of all: in a logarithm one draw of parameters in
        fifty would settle the moments alone, far beyond every interval.

        Args:
            mean: of the transforms, ``(S, ..., t)`` for the S members of a mixture.
            sd: likewise.
            outputs: the column of each place, ``(t,)``; None is all columns in order.

        Returns:
            ``(..., t)`` each.
        """
        centre = self.inverse(mean.mean(0), outputs)
        is_curved = np.isin(np.arange(mean.shape[-1]) if outputs is None else outputs, self.changed)
        sd = np.where(is_curved, _narrowed(mean, sd), sd)
        first, second = np.zeros((2, *centre.shape))
        for node, share in zip(_NODES, _SHARES, strict=True):
            away = self.inverse(mean + node * sd, outputs) - centre
            first += share * away.mean(0)
            second += share * np.square(away).mean(0)
        return Marginals(centre + first, np.sqrt((second - first**2).clip(min=0.0)))

    def scores(self, truth: Array, mean: Array, sd: Array, freedom: Array | float = np.inf) -> ValueScores:
        """Scores of values whose transforms are Gaussian, or have Student's t.

        The CRPS is that of 400 quantiles in columns that are transformed, and exact in the others. The NLL of an atom
        is that of its probability, and its error 0 where it is more likely than not.

        Args:
            truth: ``(n, P)``, NaN for values without a score.
            mean: of their transforms, ``(n, P)``.
            sd: likewise.
            freedom: degrees of freedom, ``(n, P)``, infinite for Gaussians.

        Returns:
            ``(n, P)`` each.
        """
        freedom = np.broadcast_to(freedom, mean.shape)
        errors, nll, crps = ValueScores.of(self.forward(truth) - mean, sd, freedom)
        for p in self.changed:
            nll[:, p] -= self.kinds[p].log_slope(truth[:, p].clip(*self.kinds[p].ends))
            if self.kinds[p].has_atom:
                at = truth[:, p] <= self.kinds[p].ends[0]
                errors[at, p], nll[at, p] = np.minimum(errors[at, p], 0.0), -norm.logcdf(errors[at, p])
            crps[:, p] = _quantile_score(self.kinds[p], mean[:, p], sd[:, p], freedom[:, p], truth[:, p])
        return ValueScores(errors, nll, crps)

    def _applied(self, function: str, values: Array, outputs: Array | None) -> Array:
        result = np.array(values, dtype=np.float64)
        for p in self.changed:
            places: Any = p if outputs is None else outputs == p
            result[..., places] = getattr(self.kinds[p], function)(result[..., places])
        return result


@dataclass(frozen=True)
class TransformedPosterior:
    """What observations say of columns, in the user's units, by a posterior of their transforms.

    Attributes:
        latent: of the transforms.
        transforms: of all its columns, some of which change them.
    """

    latent: Posterior
    transforms: Transforms

    def marginals(self, X: Array) -> Marginals:
        """Mean and standard deviation of readings of every column at inputs ``(t, d)``, ``(t, P)`` each."""
        scaling = self.latent.units.outputs
        means, variances = self.latent.members(X, include_noise=True)
        return self.transforms.moments(scaling.undo(means), np.sqrt(variances) * scaling.unit)

    def draw_at(self, X: Array, outputs: Array, count: int, random_state: Any, *, include_noise: bool) -> Array:
        """Joint draws of readings at inputs ``(t, d)``, each of one column ``(t,)``, ``(count, t)``."""
        draws = self.latent.draw_at(X, outputs, count, random_state, include_noise=include_noise)
        return self.transforms.inverse(draws, np.asarray(outputs))

    def totals(
        self, X: Array, outputs: Array, weights: Array, sums: Array, *, include_noise: bool
    ) -> tuple[Array, Array]:
        r"""Weighted sums of readings at inputs, each of one column, with their variances.

        .. math:: E\Big[\sum_i w_i y_i\Big] = \sum_i w_i c_{0i}, \qquad
            V = \sum_{ij} w_i w_j \sum_{k \ge 1} c_{ki} c_{kj} R_{ij}^k, \qquad
            c_{ki} = \int T^{-1}(\mu_i + s_i x)\, \frac{\mathrm{He}_k(x)}{\sqrt{k!}}\, N(x; 0, 1)\, dx

        R are the correlations of the transforms: what Mehler's formula makes of them is exact. Of orders above 12 the
        sum of squares is taken for one coefficient.

        Args:
            X: inputs, ``(t, d)``.
            outputs: column at each input, ``(t,)``.
            weights: ``(t,)``.
            sums: index of the sum that each belongs to, ``(t,)``; each of 0 … A-1 occurs.
            include_noise: False for the sum of what readings are expected to be given the functions beneath, which has
                no noise.

        Returns:
            Means and variances, ``(A,)`` each.
        """
        places, number = np.unique(X, axis=0, return_inverse=True)
        scaling, cells = self.latent.units.outputs, (slice(None), number.reshape(-1), outputs)
        means, variances = self.latent.members(places, include_noise=True)
        deviations = np.sqrt(variances)[cells]
        sd = deviations * scaling.chosen(outputs).unit
        centres, coefficients = self._expansion(scaling.undo(means)[cells], sd, outputs)
        functions = coefficients * weights, deviations
        variances = self.latent.expansion_variances(X, outputs, functions, sums, include_noise=include_noise)
        means = np.stack([np.bincount(sums, weights * each) for each in centres])
        return means.mean(0), variances.mean(0) + means.var(0)

    def summed_draws(self, X: Array, outputs: Array, weights: Array, sums: Array) -> Array:
        """Joint draws of weighted sums of readings, as in :meth:`totals`, ``(S, A)``."""
        shares = coo_array((weights, (sums, np.arange(len(X)))), shape=(int(sums.max()) + 1, len(X))).tocsr()
        source, each = np.random.RandomState(0), int(np.clip(_MOST_DRAWN // len(X), 1, _DRAWS))
        parts = [
            (shares @ self.draw_at(X, outputs, each, source, include_noise=True).T).T for _ in range(-(-_DRAWS // each))
        ]
        return np.concatenate(parts)

    def _expansion(self, mean: Array, sd: Array, outputs: Array) -> tuple[Array, Array]:
        """Means of readings whose transforms have moments ``(S, t)``, and Hermite coefficients, ``(S, K, t)``."""
        curved = np.isin(outputs, self.transforms.changed)
        centres, coefficients = mean.copy(), np.zeros((len(mean), _ORDERS + 1, mean.shape[1]))
        coefficients[:, 0] = sd
        mean, sd, outputs = mean[:, curved], _narrowed(mean, sd)[:, curved], outputs[curved]
        origin, all_orders = self.transforms.inverse(mean, outputs), np.zeros((_ORDERS + 1, *mean.shape))
        square = np.zeros_like(mean)
        for values, node, share in zip(_POLYNOMIALS, _NODES, _SHARES, strict=True):
            away = self.transforms.inverse(mean + node * sd, outputs) - origin
            all_orders += share * values[:, None, None] * away
            square += share * np.square(away)
        rest = np.sqrt((square - np.square(all_orders).sum(0)).clip(min=0.0))
        centres[:, curved] = origin + all_orders[0]
        coefficients[:, :, curved] = np.stack([*all_orders[1:], rest], axis=1)
        return centres, coefficients


def _narrowed(mean: Array, sd: Array) -> Array:
    """Deviations of the members of a mixture ``(S, ...)``, none beyond twice that of all; of four members none is."""
    return np.minimum(sd, _WIDEST * np.sqrt(np.square(sd).mean(0) + mean.var(0)))


def _quantile_score(kind: Transform, mean: Array, sd: Array, freedom: Array, truth: Array) -> Array:
    """The CRPS as twice the mean of the quantiles' scores."""
    score = np.zeros_like(truth)
    for level in _LEVELS:
        error = truth - kind.inverse(mean + student_reach(norm.ppf(level), freedom) * sd)
        score += np.maximum(level * error, (level - 1.0) * error)
    return score * (2.0 / len(_LEVELS))
