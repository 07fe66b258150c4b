"""Result of :func:`cgp.assess_gaps`: the recommended imputer, tables, a sentence, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm, t
from sklearn.base import clone

from cgp.comparisons import LEVEL, Difference, aligned, critical_value
from cgp.extras import needs_extra
from cgp.spelling import counted, first_of, listed
from cgp.tables.conformal import Conformal, check_level, interval_scores
from cgp.tables.filled import titled
from cgp.tables.frames.table import read_table
from cgp.tables.masking import HiddenBlocks

from .baselines import UncertainImputer
from .scores import Strata, mean_over_blocks
from .trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FEWEST_BLOCKS", "LEAST_GAIN", "GapReport"]

LEAST_GAIN = 0.02
"""Smallest gain in NLL that a less simple method is worth, in nats a value."""

_ONE_ERROR = float(norm.sf(1.0))
_LEAD = 2.0  # standard errors from which a lead is named although it is not shown
_NAMED = 0.9  # of a squared error, below which a lower one is named although it may be chance
_UNTOLD = "not told apart"

_PANELS, _COLUMNS = 4, 12  # in their own units: of a picture or sentence, and of the text
_DEVIATIONS = "in standard deviations"
_MEANING = (
    "NLL: minus the log probability density of hidden values: it counts fills and intervals. Where it",
    "is 0.1 lower (its units are called nats), values were 1.1 times as probable. A name in quotes,",
    "such as 'shared', is a structure: how columns are related.",
    "CRPS: distance from the whole distribution, in standard deviations of a column. Squared error: 1",
    "is that of filling a column's mean. Less is better. Coverage is of 95 % intervals; like all but",
    "distances it is weighed as the table's missing values are.",
)

FEWEST_BLOCKS = 10
"""Hidden blocks below which nothing is claimed."""


@dataclass(frozen=True, repr=False)
class GapReport:
    """Scores of imputers on values that were hidden in the pattern of a table's gaps.

    Attributes:
        methods: the imputers that were compared, by name, the simplest first.
        trials: of each method errors, standard deviations, scores by block, and seconds of a fit.
        failures: methods that failed, with their errors.
        hidden: the blocks.
        strata: the class of every block, and what each class weighs: its part of the table's missing values.
        has_gaps: whether the table has gaps; else the lengths were made up.
        default: the method that is recommended unless the blocks favour another one.
        table: the table that was assessed.
        options: how it is read: ``inputs`` and ``missing_values``.
        totals: of its columns.
    """

    methods: Mapping[str, Any]
    trials: Mapping[str, Trial]
    failures: Mapping[str, str]
    hidden: HiddenBlocks
    strata: Strata
    has_gaps: bool
    default: str
    table: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    totals: Any = None

    def __repr__(self) -> str:
        """One line: what is recommended, and by how many blocks."""
        return f"GapReport({self.method}, {counted(self.strata.num_blocks, 'hidden block')})"

    def __str__(self) -> str:
        """The sentence and the tables."""
        return f"{self.sentence}\n\n{self.to_text()}"

    @property
    def method(self) -> str:
        """The name of the recommended method.

        It is the default unless the blocks favour another one: a simpler method whose NLL, and one standard error, are
        at most .02 nats above the default's, or a less simple one that is claimed to be ahead of it. Of these it is the
        simplest whose NLL is as close to the best of them. Fewer than ten blocks favour none.
        """
        names, default = list(self.trials), self.default
        if self.strata.num_blocks < FEWEST_BLOCKS:
            return default
        simpler = [name for name in names[: names.index(default)] if self._is_enough(name, default)]
        later = [name for name in names[names.index(default) + 1 :] if self.is_ahead(name, default)]
        possible = [*simpler, default, *later]
        best = min(possible, key=self.nll)
        return next(name for name in possible if name == best or self._is_enough(name, best))

    @property
    def sentence(self) -> str:
        """The recommended method, how near its fills are and whether its intervals hold, why, and how to know more."""
        limits = " ".join(self._limits())
        return "\n".join([*self._advice(), *filter(None, [limits])])

    def nll(self, method: str, label: str | None = None) -> float:
        """A method's mean NLL of hidden values in nats, with values in units of their column's standard deviation.

        Args:
            method: name of the method.
            label: a class of gaps; None is all, weighed as the table's missing values are.

        Returns:
            The mean over blocks.
        """
        return self._strata(label).mean(self.trials[method].scores.nll)

    def difference(self, method: str, other: str, label: str | None = None) -> Difference:
        """Paired difference in NLL to another method, block by block, with its standard error.

        Args:
            method: name of the method.
            other: name of the other method.
            label: a class of gaps; None is all.

        Returns:
            In nats a value, negative where the method is better; the error is infinite where no class has two blocks.
        """
        return self._difference(method, other, label)[0]

    def is_ahead(self, method: str, other: str, label: str | None = None) -> bool:
        """Whether a method is claimed to be better than another one.

        Its NLL is lower by more than .02 nats, and by more standard errors than the best of as many comparisons is by
        chance (:func:`cgp.comparisons.critical_value`): of all pairs of methods in either direction, over all gaps and
        in each class of them. There are at least ten blocks.

        Args:
            method: name of the method.
            other: name of the other method.
            label: a class of gaps; None is all.

        Returns:
            True for a claim.
        """
        return self._is_claimed(*self._difference(method, other, label), label, LEAST_GAIN)

    def best(self) -> Any:
        """The recommended imputer, fitted to the whole table.

        Returns:
            A new one, with ``std_``, and ``interval(level, method="conformal")`` from the hidden blocks.
        """
        return self.fitted(self.method)

    def fitted(self, method: str) -> Any:
        """The imputer of a method, fitted to the whole table.

        Args:
            method: name of the method.

        Returns:
            As :meth:`best` does.

        Raises:
            ValueError: if there is no such method.
        """
        self._check(method)
        imputer, spread = clone(self.methods[method]), self.trials[method].spread
        if spread is not None:
            imputer = UncertainImputer(imputer, spread.sd, **self.options)
        known = {} if self.totals is None else {"totals": self.totals}
        return self.calibrated(imputer.fit(self.table, **known), method)

    def calibrated(self, imputer: Any, method: str | None = None) -> Any:
        """Give a fitted imputer the conformal intervals of a method.

        Args:
            imputer: fitted to the table that was assessed, or to one like it.
            method: the name under which it was compared; None is the recommended one.

        Returns:
            The imputer, which has ``conformal_`` now.

        Raises:
            ValueError: if there is no such method.
        """
        imputer.conformal_ = self.conformal(method)
        return imputer

    def conformal(self, method: str | None = None) -> Conformal:
        """Errors of hidden values divided by their predictive standard deviations, for conformal intervals.

        Args:
            method: name of a method; None is the recommended one.

        Returns:
            The errors by class of gaps.

        Raises:
            ValueError: if there is no such method.
        """
        method = self.method if method is None else method
        self._check(method)
        trial = self.trials[method]
        return Conformal(np.abs(trial.standardised), self.hidden.blocks, self.hidden.labels)

    def intervals(self, level: float = 0.95, method: str | None = None) -> dict[str, dict[str, float]]:
        """Coverage and width of intervals by class of gap: the method's own, and conformal ones.

        Every block is predicted with the conformal factor of the others in its class.

        Args:
            level: between 0 and 1.
            method: name of a method; None is the recommended one.

        Returns:
            For each class "blocks", "coverage" and "width" of the Gaussian interval, "conformal_coverage" and
            "conformal_width", infinite where there are too few blocks; widths in standard deviations of the column.

        Raises:
            ValueError: if there is no such method or level.
        """
        check_level(level)
        errors = self.conformal(method)
        sd = self.trials[self.method if method is None else method].sd
        return {label: interval_scores(sd, errors, label, level) for label in self.strata.weights}

    def to_text(self) -> str:
        """The scores: a row per method, then NLL by class of gap, then intervals of the recommended method."""
        near, less = self._distances, f"NLL less {self.method}'s"
        titles = map(_first_line, near)
        rows = [["method", "NLL", *titles, "CRPS", "squared error", "coverage", "seconds", less]]
        for name, trial in self.trials.items():
            nll, *scores = (f"{self.strata.mean(values):.4f}" for values in trial.scores)
            change = "" if name == self.method else str(self.difference(name, self.method))
            apart = [f"{of[name][0]:.3g}" for of in near.values()]
            rows.append([name, nll, *apart, *scores, f"{trial.seconds:.1f}", change])
        classes = list(self.strata.weights)
        by_class = [["NLL", *map(_described, classes)], ["blocks", *(str(self._strata(c).num_blocks) for c in classes)]]
        by_class += [[name, *(f"{self.nll(name, label):.4f}" for label in classes)] for name in self.trials]
        tables = [by_class, self._interval_rows(), *self._distance_rows()]
        if len(self._parts) > _PANELS:
            meant = "In standard deviations: mean distance of fills from hidden values, in those of their columns."
        else:
            meant = "Below a column's name: mean distance of fills from its hidden values, in its unit."
        lines = [line for each in tables for line in ("", *aligned(each))]
        return "\n".join([*aligned(rows), "", *_MEANING, meant, *lines])

    def to_html(self) -> str:
        """The sentence and the tables as a fragment of HTML."""
        return f"<section><p>{escape(self.sentence)}</p><pre>{escape(self.to_text())}</pre></section>"

    _repr_html_ = to_html

    def plot(self, what: str = "distance") -> Figure:
        """Draw how near the fills of every method are, and whether its intervals are as wide as they should be.

        "distance" is the mean distance from the hidden values, a panel for each column in its own unit (of more than
        four columns one panel, in standard deviations of the columns), and the share of hidden values inside 95 %
        intervals beside a line at 95 %. "NLL" is the score that counts both, a panel for each class of gaps; a circle
        is a method that was ahead of the recommended one by two standard errors, of too few blocks to be sure. The
        recommended method is orange, and a dashed line; bars are two standard errors to either side, from 0 on
        where these reach below it, as no distance does.

        Args:
            what: "distance" or "NLL".

        Returns:
            A figure.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if it is neither.
        """
        with needs_extra("plot", "GapReport.plot"):
            from cgp import plotting

        if what not in ("distance", "NLL"):
            raise ValueError(f"what: expected 'distance' or 'NLL', got {what!r}")
        if what == "NLL":
            panels = {
                f"{_described(label, chr(10))}\n{counted(self._strata(label).num_blocks, 'block')}": {
                    name: self._strata(label).difference(trial.scores.nll)[0] for name, trial in self.trials.items()
                }
                for label in self.strata.weights
            }
            return plotting.method_scores(panels, xlabel="NLL in nats", chosen=self.method, ahead=self._leader())[
                0
            ].figure
        inside: dict[str, tuple[float, float]] = {name: self._coverage(name)[0] for name in self.trials}
        label = "mean distance of fills from hidden values, in the unit of each column"
        axes = plotting.method_scores(self._distances, xlabel=label, chosen=self.method, inside=inside, least=0.0)
        return axes[0].figure

    @cached_property
    def _parts(self) -> dict[str, tuple[Any, float]]:
        """By column that has hidden values, which they are, and its unit."""
        if not len(self.hidden.columns):
            return {}
        table, _ = read_table(self.table, self.options.get("inputs"), self.options.get("missing_values", np.nan))
        columns, titles = self.hidden.columns, titled(table.names, self.table)
        return {title: (columns == p, table.units[p]) for p, title in enumerate(titles) if (columns == p).any()}

    @cached_property
    def _distances(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Mean distances from hidden values: of each column in its unit, or of many in their standard deviations."""
        parts = {_DEVIATIONS: (self.hidden.columns >= 0, 1.0)} if len(self._parts) > _PANELS else self._parts
        return {
            f"{title}\n{counted(len(np.unique(self.hidden.blocks[which])), 'block')}": self._over_blocks(
                which, {name: unit * np.abs(trial.errors) for name, trial in self.trials.items()}
            )
            for title, (which, unit) in parts.items()
        }

    @property
    def _beside(self) -> str:
        """The simplest method besides the recommended one, or the default."""
        first = next(iter(self.trials))
        return first if first != self.method else self.default

    def _pairs(self, most: int) -> list[list[str]]:
        """Of each of the first columns the mean distances of the recommended method and of that beside it."""
        names = self.method, self._beside
        return [
            [title, *(f"{unit * float(np.abs(self.trials[name].errors[which]).mean()):.3g}" for name in names)]
            for title, (which, unit) in [*self._parts.items()][:most]
        ]

    def _distance_rows(self) -> list[list[list[str]]]:
        """A table of distances in the units of columns, if the first one has none."""
        if len(self._parts) <= _PANELS:
            return []
        left = len(self._parts) - _COLUMNS
        rows = self._pairs(_COLUMNS) + [[f"and {left} more", "", ""]] * (left > 0)
        return [[["mean distance, in units", self.method, self._beside], *rows]]

    def _coverage(self, method: str) -> tuple[Difference, float]:
        """The share of hidden values in a method's 95 % intervals, its error, and degrees of freedom."""
        return self.strata.difference(self.trials[method].scores.coverage)

    def _over_blocks(self, which: Any, scores: dict[str, Any]) -> dict[str, tuple[float, float]]:
        """Of each method the mean of scores of some of the hidden values, with its standard error."""
        return {name: mean_over_blocks(values[which], self.hidden.blocks[which]) for name, values in scores.items()}

    def _interval_rows(self) -> list[list[str]]:
        rows = [[f"95 % intervals of {self.method}", "coverage", "width", "conformal coverage", "width"]]
        for label, scores in self.intervals().items():
            values = [scores[name] for name in ("coverage", "width", "conformal_coverage", "conformal_width")]
            said = [f"{value:.3f}" for value in values]
            if not np.isfinite(scores["conformal_width"]):  # which contain everything
                said[2:] = ["too few blocks", ""]
            rows.append([_described(label), *said])
        return rows

    def _advice(self) -> list[str]:
        """The method, why, and what to do to know more, a line for each."""
        if self.strata.num_blocks < FEWEST_BLOCKS:
            few = self._are_few(self.strata.num_blocks, "")
            return [f"Use {self.method}, the default: {few} to compare by ({FEWEST_BLOCKS} are needed). {self._more}."]
        method, names = self.method, list(self.trials)
        simpler, leader = names[: names.index(method)], self._leader()
        leads = [name for name in simpler if not self.is_ahead(method, name) and self._leads(method, name)]
        reasons = ". ".join(map(_capital, self._reasons(simpler, leads, leader)))
        verdict = f"{_capital(method)} is enough." if reasons and not simpler else f"Use {method}."
        parts = [f"{reasons}."] if reasons else []
        if leads or leader is not None:
            parts.append(f"{self._more}: {self._fewest()}.")
        return [" ".join([verdict, *self._nearness()]), *filter(None, [" ".join(parts)]), *self._of_values(leader)]

    def _nearness(self) -> list[str]:
        """How near the fills of the recommended method are, those of another one, and whether its intervals hold."""
        if not self._parts:
            return []
        pairs = [f"{title} {own} against {other}" for title, own, other in self._pairs(_PANELS)]
        more = f" and {len(self._parts) - _PANELS} more" if len(self._parts) > _PANELS else ""
        near = f"Mean distance of its fills against that of {self._beside}: {', '.join(pairs)}{more}."
        return [*[near] * (self._beside != self.method), self._held()]

    def _held(self) -> str:
        """What the 95 % intervals of the recommended method hold, and whether that is clearly too little."""
        (share, error), degrees = self._coverage(self.method)
        is_narrow = share + float(t.isf(LEVEL / 2, degrees)) * error < 1.0 - LEVEL
        scores, weights = self.intervals(), self.strata.weights
        wider = sum(weights[label] * each["conformal_coverage"] for label, each in scores.items())
        is_finite = all(np.isfinite(each["conformal_width"]) for each in scores.values())
        narrow = f": too narrow{f' (conformal ones {100 * wider:.0f} %)' * is_finite}" if is_narrow else ""
        about = f" ± {max(100 * error, 1.0):.0f}" if np.isfinite(error) else ""
        return f"Its 95 % intervals hold {100 * share:.0f}{about} % of hidden values{narrow}."

    def _reasons(self, simpler: list[str], leads: list[str], leader: str | None) -> list[str]:
        """What speaks for the recommended method, and how it differs from others."""
        method, names = self.method, list(self.trials)
        ahead = [name for name in simpler if self.is_ahead(method, name)]
        lower = [name for name in names if name not in (*ahead, *leads, leader) and self.nll(name) < self.nll(method)]
        lower = lower if method == self.default else []
        level = sorted({*simpler, *lower} - {*ahead, *leads}, key=lambda name: abs(self.difference(name, method).mean))
        parts = []
        if self.default in names[names.index(method) + 1 :]:
            loss = self.difference(method, self.default)
            less = f" less that of {self.default} is {loss} nats a value"
            parts.append(f"its NLL{less if any(loss) else f' is that of {self.default}'}")
        if ahead:
            parts.append(f"it is ahead of {_others(ahead, simpler)} {self._by(method, ahead)}{self._where(ahead)}")
        if leads:
            parts.append(f"it may be ahead of {_others(leads, simpler)} {self._by(method, leads)}")
        if leader is not None:
            parts.append(f"{leader} may be ahead of it {self._by(leader, [method])}")
        if level:
            told = (f"{name} ({self.difference(name, method).mean:+.2f})" for name in level)
            kept = ": the default is kept" if lower else ""
            parts.append(f"{_UNTOLD}, nearest first: {first_of(told, 3)}{kept}")
        return parts

    def _leader(self) -> str | None:
        """The method of the lowest NLL, if its lead over the recommended one is not shown, but may be seen."""
        best = min(self.trials, key=self.nll)
        return best if self._leads(best, self.method) else None

    def _leads(self, method: str, other: str) -> bool:
        """Whether a method was ahead of another one by two standard errors, whatever else was compared."""
        return (-self.difference(method, other)).exceeds(LEAST_GAIN, _LEAD)

    def _by(self, method: str, others: list[str]) -> str:
        """The least lead over others."""
        gain = min((-self.difference(method, name) for name in others), key=lambda each: each.mean)
        return f"by {gain.mean:.3f} ± {gain.error:.3f} nats a value{' or more' * (len(others) > 1)}"

    @property
    def _more(self) -> str:
        """What hides more blocks."""
        return f"To be sure, hide more by maskings={2 * (int(self.hidden.maskings.max()) + 1)}"

    def _fewest(self) -> str:
        """The class of gaps that leaves differences most uncertain: much of what is missing, and few hidden blocks."""
        counts, weights = {label: self._strata(label).num_blocks for label in self.strata.weights}, self.strata.weights
        least = max(counts, key=lambda label: weights[label] ** 2 / counts[label])
        return self._are_few(
            counts[least], f" for {_described(least)}, {100 * weights[least]:.0f} % of what is missing,"
        )

    @staticmethod
    def _are_few(count: int, which: str) -> str:
        return f"{counted(count, 'hidden block')}{which} {'is' if count == 1 else 'are'} too few"

    def _of_values(self, leader: str | None) -> list[str]:
        """The method of the lowest squared error, if it is below that of the recommended one clearly, or by a tenth."""
        errors = {name: trial.scores.squared_error for name, trial in self.trials.items()}
        best, method = min(errors, key=lambda name: self.strata.mean(errors[name])), self.method
        first, second = (self.strata.mean(errors[name]) for name in (best, method))
        is_shown = self._is_claimed(*self.strata.difference(errors[best] - errors[method]), None, 0.0)
        if best == method or (not is_shown and first > _NAMED * second):
            return []
        shown = "" if is_shown or best == leader else f" ({_UNTOLD})"
        which = f"{best}, too" if best == leader else best
        return [f"For values alone, {which}: squared error {first:.3f} against {second:.3f}{shown}."]

    def _where(self, others: list[str]) -> str:
        """The lengths of gap at which the recommended method is ahead of others, unless it is ahead at all."""
        classes = list(self.strata.weights)
        shown = [label for label in classes if any(self.is_ahead(self.method, name, label) for name in others)]
        return f", shown at {listed(map(_described, shown))}" if shown and len(classes) > 1 else ""

    def _is_enough(self, method: str, other: str) -> bool:
        """Whether a method is worse than another one by next to nothing."""
        difference, degrees = self._difference(method, other, None)
        return difference.mean + float(t.isf(_ONE_ERROR, degrees)) * difference.error <= LEAST_GAIN

    def _limits(self) -> list[str]:
        """Limits of the comparison."""
        parts = []
        if not self.has_gaps:
            parts.append("The table has no gaps: single values and runs of a few lengths were hidden.")
        if self.totals is not None:
            parts.append("Blocks of columns with totals were hidden with their totals known.")
        if self.failures:
            parts.append(f"Failed: {'; '.join(f'{name} ({why})' for name, why in self.failures.items())}.")
        return parts

    def _strata(self, label: str | None) -> Strata:
        if label is None:
            return self.strata
        if label not in self.strata.weights:
            raise ValueError(f"label: expected one of {list(self.strata.weights)}, got {label!r}")
        return self.strata.only(label)

    def _difference(self, method: str, other: str, label: str | None) -> tuple[Difference, float]:
        for name in (method, other):
            self._check(name)
        first, second = self.trials[method].scores.nll, self.trials[other].scores.nll
        return self._strata(label).difference(first - second)

    def _is_claimed(self, difference: Difference, degrees: float, label: str | None, least: float) -> bool:
        """Whether a difference of scores of enough blocks is below 0 by more than by chance."""
        return self._strata(label).num_blocks >= FEWEST_BLOCKS and self._is_beyond(difference, degrees, least)

    def _is_beyond(self, difference: Difference, degrees: float, least: float) -> bool:
        """Whether a difference of scores is below 0 by more than it is by chance for the best of all comparisons."""
        places = 1 + len(self.strata.weights) if len(self.strata.weights) > 1 else 1
        comparisons = places * math.perm(len(self.trials), 2)
        return (-difference).exceeds(least, critical_value(comparisons, degrees))

    def _check(self, method: str) -> None:
        if method not in self.trials:
            raise ValueError(f"method: expected one of {list(self.trials)}, got {method!r}")


def _first_line(title: str) -> str:
    """A column's name and unit."""
    return title.partition("\n")[0]


def _capital(name: str) -> str:
    """A name at the beginning of a sentence."""
    return f"{name[0].upper()}{name[1:]}"


def _others(names: list[str], simpler: list[str]) -> str:
    """Some of the methods that are simpler than the recommended one."""
    return "all simpler methods" if len(names) > 1 and names == simpler else listed(names)


def _described(label: str, between: str = " ") -> str:
    """A class of gaps in words, with that before its end."""
    length, _, edge = label.partition(" ")
    return f"gaps of {length} row{'' if length == '1' else 's'}{edge and between + edge}"
