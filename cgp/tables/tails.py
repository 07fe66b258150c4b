"""How far values in gaps are from their predictions: scale and tails by class of gap, or what few looks leave open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from cgp.comparisons import LEVEL, Difference, student_reach
from cgp.regression.posterior import Posterior

from .conformal import conformal_factor, gap_labels
from .frames.gaps import longest_runs, ordered_rows, runs_of
from .frames.table import Table
from .masking import HiddenBlocks

__all__ = ["Few", "ScaledPosterior", "Tail", "Tails", "few_looks", "learned_tails", "tail_passes"]

Array = NDArray[np.float64]

_MASKINGS, _SHARE = 4, 0.1
_FEWEST, _MOST = 500, 20_000  # values of a table below which nothing is learned, and that are enough
_FREEDOMS = (3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0, np.inf)
_SCALES = np.geomspace(0.1, 3.0, 69)
_LEAST_GAIN, _CLEAR = 0.02, 2.0  # nats a value, and standard errors
_FEWEST_BLOCKS, _HALFWAY = 10, 50  # of a class: with fewer nothing is learned, and so many are believed by half
_SEEN = 1.05  # values that parameters have seen are so much nearer to their predictions than others
_ROUNDING = 1e-9
_LEAST_LOOKS, _MANY_LOOKS = 2.0, 30.0  # degrees of freedom that a law has at least, and that are as good as infinite
_LEAST_FREEDOM = min(_FREEDOMS)  # with a variance that is known itself
_GAUSSIAN = float(norm.isf(LEVEL / 2))


class Tail(NamedTuple):
    """Student's t of errors that are divided by their predictive standard deviations.

    Attributes:
        scale: of the distribution.
        freedom: its degrees of freedom, above 2; infinite for a Gaussian.
    """

    scale: float = 1.0
    freedom: float = np.inf

    @property
    def deviation(self) -> float:
        r"""Its standard deviation :math:`s\sqrt{\nu / (\nu - 2)}`."""
        return self.scale / float(np.sqrt(1.0 - 2.0 / self.freedom))

    @property
    def reach(self) -> float:
        """Where its interval of 95 % ends."""
        return self.scale * _reach(self.freedom)

    def log_density(self, errors: Array) -> Array:
        """Of errors, of any shape."""
        z = errors / self.scale
        return np.asarray(
            (norm.logpdf(z) if np.isinf(self.freedom) else t.logpdf(z, self.freedom)) - np.log(self.scale)
        )

    @classmethod
    def of(cls, errors: Array, blocks: NDArray[np.int64]) -> Self:
        r"""The most likely one that covers hidden blocks if its gain is clear, else one that is not narrower.

        Without a clear gain the interval of the law at 95 % reaches at least as far as that of the Gaussian, and by B
        blocks part of the way to the quantile q of their errors, a twentieth more as parameters have seen them:

        .. math:: 1.96\,\max\Big(1, \frac{1.05\, q}{1.96}\Big)^{B / (B + 50)}

        Args:
            errors: ``(m,)``, divided by their standard deviations.
            blocks: the block of each, ``(m,)``.

        Returns:
            The distribution, the Gaussian where there are fewer than ten blocks.
        """
        numbers = np.unique(blocks, return_inverse=True)[1]
        count, sizes = int(numbers.max()) + 1, np.abs(errors)
        if count < _FEWEST_BLOCKS:
            return cls()
        best = cls._likeliest(errors, conformal_factor(sizes, blocks, 1.0 - LEVEL))
        gain = Difference.of_groups(best.log_density(errors) - cls().log_density(errors), numbers)
        if gain.exceeds(_LEAST_GAIN, _CLEAR):
            return best
        quantile = conformal_factor(sizes, blocks, (1.0 - LEVEL) * count / (count + 1.0))  # of the blocks themselves
        wider = max(_SEEN * quantile / _GAUSSIAN, 1.0) ** (count / (count + _HALFWAY))
        return cls._likeliest(errors, wider * _GAUSSIAN)

    @classmethod
    def of_looks(cls, looks: float) -> Self:
        r"""The law of errors whose deviation is known from so many independent ones.

        Its interval of 95 % is that of Student's t with as many degrees of freedom, two at least; below three the scale
        is larger instead, so that there is a variance.

        Args:
            looks: how many.

        Returns:
            The distribution, the Gaussian from 30 on.

        Example:
            >>> [round(float(Tail.of_looks(looks).deviation), 2) for looks in (0.5, 3.0, 40.0)]
            [2.34, 1.73, 1.0]
        """
        looks = max(looks, _LEAST_LOOKS)
        if looks >= _MANY_LOOKS:
            return cls()
        freedom = max(looks, _LEAST_FREEDOM)
        return cls(float(t.isf(LEVEL / 2, looks) / t.isf(LEVEL / 2, freedom)), freedom)

    @classmethod
    def _likeliest(cls, errors: Array, least: float) -> Self:
        """The most likely law whose 95 % interval reaches at least so far, the Gaussian if there is none."""
        laws = [cls(), *(cls(float(scale), freedom) for freedom in _FREEDOMS for scale in _SCALES)]
        wide = [law for law in laws if law.reach >= least * (1.0 - _ROUNDING)]
        return max(wide, key=lambda law: float(law.log_density(errors).mean()), default=cls())


@lru_cache
def _reach(freedom: float) -> float:
    """Where the 95 % interval of Student's t ends, of scale 1."""
    return float(student_reach(_GAUSSIAN, freedom)) * Tail(1.0, freedom).deviation


class Few(NamedTuple):
    """What a series shows of errors in gaps of more rows than it has values.

    Attributes:
        column: its position.
        values: how many it has.
        looks: how many independent errors they stand for, as in its longest gap.
    """

    column: int
    values: int
    looks: float


class Tails(NamedTuple):
    """The distributions of errors in gaps, by class of gap; the Gaussian in classes that are not named.

    Attributes:
        laws: by class.
        few: of series with gaps of more rows than they have values, whose law is that of so many looks if it is wider.
    """

    laws: Mapping[str, Tail]
    few: tuple[Few, ...] = ()

    def scaled(self, posterior: Posterior, table: Table) -> Posterior:
        """The posterior with the deviations of a table's gaps."""
        factors = self._at(table, "deviation")
        return posterior if (factors == 1.0).all() else ScaledPosterior(posterior, table.inputs, factors)

    def freedoms(self, table: Table) -> Array:
        """Degrees of freedom of the values of a table, ``(n, P)``."""
        return self._at(table, "freedom")

    def _at(self, table: Table, name: str) -> Array:
        values = np.full(table.missing.shape, getattr(Tail(), name))
        if not (self.laws or self.few):
            return values
        labels, order = gap_labels(table.inputs, table.missing), ordered_rows(table.inputs)
        for label, law in self.laws.items():
            values[labels == label] = getattr(law, name)
        for column, most, looks in self.few:
            runs, law = runs_of(table.missing[order, column : column + 1]), Tail.of_looks(looks)
            for start, stop in zip(runs.starts, runs.stops, strict=True):
                rows = order[start:stop]
                if stop - start > most and law.reach > self.laws.get(labels[rows[0], column], Tail()).reach:
                    values[rows, column] = getattr(law, name)
        return values


def few_looks(posterior: Posterior, table: Table) -> tuple[Few, ...]:
    r"""Series with gaps of more rows than they have values, and what these show of errors in such gaps.

    Errors that move together, as those of a level do, are few independent ones: the n values of a series stand for as
    many as a part of the gap with n rows has by the posterior, which is sure of its parameters:

    .. math:: \nu = \frac{n \sum_g \operatorname{Var}(y_g)}{\operatorname{Var}\big(\sum_g y_g\big)}

    Where other columns say day by day what is missing they are many, however long the gap is.

    Args:
        posterior: fitted to the table.
        table: its inputs, and the values that were fitted to.

    Returns:
        Of each such column its looks, as in its longest gap, where they are below 30; none of what is no series.
    """
    if table.inputs.shape[1] != 1:
        return ()
    counts, order = (~table.missing).sum(axis=0), ordered_rows(table.inputs)
    longest = longest_runs(runs_of(table.missing[order])).items()
    gaps = {p: order[start:stop] for p, (start, stop) in longest if stop - start > counts[p] > 1}
    if not gaps:
        return ()
    rows, sizes = np.concatenate([*gaps.values()]), [len(gap) for gap in gaps.values()]
    outputs, sums = (np.repeat(each, sizes) for each in ([*gaps], np.arange(len(gaps))))
    inputs, places = np.unique(table.inputs[rows], axis=0, return_inverse=True)
    variances = np.square(posterior.marginals(inputs).sd[places.reshape(-1), outputs])
    of_sums = posterior.totals(table.inputs[rows], outputs, np.ones(len(rows)), sums)[1]
    looks = counts[[*gaps]] * np.bincount(sums, variances) / of_sums
    found = (Few(p, int(counts[p]), float(each)) for p, each in zip(gaps, looks, strict=True))
    return tuple(each for each in found if each.looks < _MANY_LOOKS)


def tail_passes(table: Table) -> float:
    """How often all rows are predicted to learn from a table, 0 if it is no series of values enough."""
    seen = int((~table.missing).sum())
    return _MASKINGS * min(_MOST / seen, 1.0) if table.inputs.shape[1] == 1 and seen >= _FEWEST else 0.0


def learned_tails(posterior: Posterior, table: Table, atoms: Array | None = None) -> Tails:
    """The distributions of the errors of values that are hidden in the pattern of a table's gaps, without a refit.

    Long tables are represented by the 20,000 values in their middle.

    Args:
        posterior: fitted to the table, a series.
        table: its inputs, and the values that were fitted to.
        atoms: lower ends of columns that have a probability of their own, NaN for others, ``(P,)``: the error of a
            value at one is drawn from the errors that it may have.

    Returns:
        By class of gap, of those with enough hidden blocks and a clear gain.
    """
    seen = ~table.missing
    if not tail_passes(table):
        return Tails({})
    order = ordered_rows(table.inputs)
    count = np.cumsum(seen[order].sum(axis=1))
    middle = order[np.abs(2 * count - count[-1]) <= _MOST]
    part = table._replace(inputs=table.inputs[middle], values=table.values[middle], left_out=table.left_out[middle])
    try:
        hidden = HiddenBlocks.of(part, _MASKINGS, _SHARE, 0)
    except ValueError:  # nothing can be hidden
        return Tails({})
    errors, ends = np.empty(len(hidden.rows)), np.full(seen.shape[1], np.nan) if atoms is None else atoms
    generator = np.random.default_rng(0)
    for masking in np.unique(hidden.maskings):
        cells, chosen = hidden.cells(masking, part.missing.shape), hidden.maskings[hidden.blocks] == masking
        kept, standardised = np.zeros_like(seen), np.empty(part.missing.shape)
        kept[middle] = ~part.missing & ~cells
        rows = cells.any(axis=1)
        mean, sd = posterior.given(kept).marginals(part.inputs[rows])
        standardised[rows] = (part.values[rows] - mean) / sd
        at = part.values <= ends
        standardised[at] = norm.ppf(generator.random(int(at.sum())) * norm.cdf(standardised[at]))
        errors[chosen] = standardised[hidden.rows[chosen], hidden.columns[chosen]]
    labels = hidden.labels[hidden.blocks]
    laws = {str(each): Tail.of(errors[labels == each], hidden.blocks[labels == each]) for each in np.unique(labels)}
    return Tails({label: law for label, law in laws.items() if law != Tail()})


class ScaledPosterior(Posterior):
    """A posterior whose deviations are multiplied by factors at the gaps of a table.

    Args:
        posterior: of P columns.
        inputs: of the table, ``(n, d)``.
        factors: ``(n, P)``.
    """

    def __init__(self, posterior: Posterior, inputs: Array, factors: Array) -> None:
        super().__init__(posterior.models, posterior.units, posterior.observed, posterior.conditions)
        self._gaps, self._factors = inputs, factors

    def members(self, X: Array, *, include_noise: bool) -> tuple[Array, Array]:
        """As :meth:`.Posterior.members`, each about the mean of all."""
        means, variances = super().members(X, include_noise=include_noise)
        factors, centre = self._factors_at(X), means.mean(0)
        return centre + factors * (means - centre), factors**2 * variances

    def draw_at(
        self, X: Array, outputs: Array, count: int, random_state: Any = 0, *, include_noise: bool = False
    ) -> Array:
        """As :meth:`.Posterior.draw_at`."""
        draws = super().draw_at(X, outputs, count, random_state, include_noise=include_noise)
        outputs = np.asarray(outputs)
        mean, factors = (values[np.arange(len(X)), outputs] for values in (self.marginals(X).mean, self._factors_at(X)))
        return np.asarray(mean + factors * (draws - mean))

    def totals(
        self, X: Array, outputs: Array, weights: Array, sums: Array, *, include_noise: bool = True
    ) -> tuple[Array, Array]:
        """As :meth:`.Posterior.totals`."""
        cells = np.arange(len(X)), outputs
        scaled = weights * self._factors_at(X)[cells]
        variances = super().totals(X, outputs, scaled, sums, include_noise=include_noise)[1]
        means = np.bincount(sums, weights * self.marginals(X).mean[cells])
        return np.asarray(means, dtype=np.float64), variances

    def expansion_variances(
        self, X: Array, outputs: Array, functions: tuple[Array, Array], sums: Array, *, include_noise: bool = True
    ) -> Array:
        """As :meth:`.Posterior.expansion_variances`: factors leave correlations as they are."""
        coefficients, deviations = functions
        plain = coefficients, deviations / self._factors_at(X)[np.arange(len(X)), outputs]
        return super().expansion_variances(X, outputs, plain, sums, include_noise=include_noise)

    def _factors_at(self, X: Array) -> Array:
        """The factors at inputs ``(t, d)``, 1 where there is no gap, ``(t, P)``."""
        both, number = np.unique(np.concatenate([self._gaps, X]), axis=0, return_inverse=True)
        found, number = np.ones((len(both), self.num_outputs)), number.reshape(-1)
        rows, columns = np.nonzero(self._factors != 1.0)
        found[number[rows], columns] = self._factors[rows, columns]
        return found[number[len(self._gaps) :]]
