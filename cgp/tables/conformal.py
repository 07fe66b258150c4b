"""Intervals whose share of covered gaps is guaranteed, by length of gap."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.spelling import as_share
from cgp.warning import warn_user

from .frames.gaps import ordered_rows, runs_of

__all__ = ["Conformal", "blocks_needed", "check_level", "conformal_factor", "gap_labels", "interval_scores"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_level(level: Any) -> None:
    """Refuse what is no level of intervals: percents, text."""
    number = float(level) if isinstance(level, Real) else math.nan
    if not 0.0 < number < 1.0:
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}{as_share(number)}")


def blocks_needed(level: float) -> int:
    """Blocks below which no finite factor has that level: ``level / (1 - level)``, rounded up."""
    return math.ceil(level / (1.0 - level) - 1e-9)


def conformal_factor(scores: Array, blocks: Integers, level: float) -> float:
    r"""Factor of the standard deviations, so that a share of the values in further blocks is inside.

    .. math:: \inf\Big\{q : \sum_{b=1}^{B} \frac{1}{(B+1) N_b} \sum_{i=1}^{N_b} 1\{s_{bi} \le q\} \ge \text{level}\Big\}

    If B blocks and a further one are exchangeable, a value drawn at random from the further one is inside with at least
    that probability. Values of a block may depend on each other in any way.

    Args:
        scores: absolute errors divided by predictive standard deviations, ``(m,)``.
        blocks: the block of each, ``(m,)``.
        level: between 0 and 1.

    Returns:
        The factor, infinite below :func:`blocks_needed` blocks.

    Source:
        Lee, Barber & Willett (2023), Distribution-free inference with hierarchical data, section 3 (hierarchical
        conformal prediction); Dunn, Wasserman & Ramdas (2022), Distribution-free prediction sets for two-layer
        hierarchical models.

    Example:
        >>> conformal_factor(np.arange(1.0, 20.0), np.arange(19), 0.95)
        19.0
        >>> conformal_factor(np.arange(1.0, 19.0), np.arange(18), 0.95)
        inf
    """
    _, number, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    order = np.argsort(scores)
    mass = np.cumsum((1.0 / counts)[number][order]) / (len(counts) + 1)
    place = int(np.searchsorted(mass, level - 1e-12))
    return float(scores[order[place]]) if place < len(scores) else math.inf


class Conformal(NamedTuple):
    """Errors of hidden values divided by their predictive standard deviations.

    Attributes:
        scores: absolute values, ``(m,)``.
        blocks: the block of each, ``(m,)``.
        labels: the class of each block, ``(B,)``.
    """

    scores: Array
    blocks: Integers
    labels: NDArray[np.str_]

    def factor(self, label: str, level: float, *, without: int = -1) -> float:
        """The factor of a class of gaps; a block may be left out to be predicted by the others."""
        chosen = (self.labels[self.blocks] == label) & (self.blocks != without)
        return conformal_factor(self.scores[chosen], self.blocks[chosen], level)

    def factors(self, labels: NDArray[np.str_], level: float) -> Array:
        """The factors of values whose classes are given.

        Args:
            labels: of any shape; "" has the factor 1.
            level: between 0 and 1.

        Returns:
            In the shape of the labels.

        Warns:
            UserWarning: if a class has too few blocks: the factor is infinite.
        """
        result = np.ones(labels.shape)
        for label in sorted(set(labels.ravel().tolist()) - {""}):
            factor = self.factor(label, level)
            result[labels == label] = factor
            if math.isinf(factor):
                warn_user(
                    f"interval: gaps of length {label!r} have {int((self.labels == label).sum())} hidden blocks, and "
                    f"{blocks_needed(level)} are needed for a finite interval at level {level:g}; assess_gaps takes "
                    "more with maskings="
                )
        return result


def interval_scores(sd: Array, errors: Conformal, label: str, level: float) -> dict[str, float]:
    """Coverage and width of intervals of a class: the Gaussian ones, and conformal ones from all blocks but one.

    Args:
        sd: predictive standard deviations of the hidden values, ``(m,)``.
        errors: errors divided by them, ``(m,)``.
        label: the class.
        level: between 0 and 1.

    Returns:
        "blocks", "coverage", "width", "conformal_coverage" and "conformal_width", means over blocks; widths in the
        units of ``sd``.
    """
    blocks = np.flatnonzero(errors.labels == label)
    gaussian = float(norm.ppf(0.5 + level / 2))
    rows = []
    for block in blocks:
        values = errors.blocks == block
        factor = errors.factor(label, level, without=int(block))
        widths = [2 * each * float(sd[values].mean()) for each in (gaussian, factor)]
        inside = [float(np.mean(errors.scores[values] <= each)) for each in (gaussian, factor)]
        rows.append((inside[0], widths[0], inside[1], widths[1]))
    means = np.mean(rows, axis=0)
    names = ("coverage", "width", "conformal_coverage", "conformal_width")
    return {"blocks": float(len(blocks)), **{name: float(mean) for name, mean in zip(names, means, strict=True)}}


def gap_labels(inputs: Array, missing: NDArray[np.bool_]) -> NDArray[np.str_]:
    """The class of the gap that each missing value is in.

    Args:
        inputs: inputs of the rows, ``(n, d)``.
        missing: ``(n, P)``.

    Returns:
        ``(n, P)``, "" where nothing is missing.
    """
    order = ordered_rows(inputs)
    runs = runs_of(missing[order], ordered=inputs.shape[1] == 1)
    labels = runs.labels
    result = np.full(missing.shape, "", dtype=labels.dtype if len(labels) else "<U1")
    lengths = runs.lengths
    rows = np.repeat(runs.starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    result[order[rows], np.repeat(runs.columns, lengths)] = np.repeat(labels, lengths)
    return result
