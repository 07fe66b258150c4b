"""Scores of hidden blocks, the spread of errors, and conformal factors, against what they are defined by."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm, ttest_rel

from cgp.tables.conformal import Conformal, blocks_needed, conformal_factor
from cgp.tables.referee.scores import BlockScores, Residuals, Spread, Strata
from cgp.tables.transforms.columns import ValueScores


def test_scores_of_a_block_are_means_over_its_values():
    errors, sd, blocks = np.array([0.3, -1.2, 2.0]), np.array([0.5, 1.0, 0.7]), np.array([1, 0, 1])
    scores = BlockScores.of(errors, ValueScores.of(errors, sd), blocks, 2)
    nll = -norm.logpdf(errors, scale=sd)
    crps = [
        quad(lambda x, s=s, e=e: (norm.cdf(x / s) - (x >= e)) ** 2, -20, 20, points=[e], limit=200)[0]
        for e, s in zip(errors, sd, strict=True)
    ]
    np.testing.assert_allclose(scores.nll, [nll[1], (nll[0] + nll[2]) / 2])
    np.testing.assert_allclose(scores.crps, [crps[1], (crps[0] + crps[2]) / 2], rtol=1e-6)
    np.testing.assert_allclose(scores.squared_error, [1.44, (0.09 + 4.0) / 2])
    np.testing.assert_allclose(scores.coverage, [1.0, 0.5])


def test_one_class_has_the_paired_test_of_the_books():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 15))
    strata = Strata.of(["1"] * 15, ["1"], {"1": 4.0})
    difference, degrees = strata.difference(first - second)
    assert degrees == pytest.approx(14)
    assert difference.mean / difference.error == pytest.approx(ttest_rel(first, second).statistic)


def test_classes_weigh_what_is_missing_in_them():
    """What has no blocks counts for the next shorter class; a single block has the variance of the others."""
    labels = ["1", "1", "1", "5–16"]
    strata = Strata.of(labels, ["1", "2–4", "5–16", "17–64"], {"1": 1.0, "2–4": 1.0, "17–64": 2.0})
    assert strata.weights == {"1": 0.5, "5–16": 0.5}
    values = np.array([0.0, 1.0, 2.0, 5.0])
    difference, degrees = strata.difference(values)
    assert difference.mean == pytest.approx(0.5 * 1.0 + 0.5 * 5.0)
    assert difference.error == pytest.approx(math.sqrt(0.25 * 1.0 / 3 + 0.25 * 1.0))
    assert degrees == pytest.approx(2.0)
    assert Strata.of(["1"], ["1"], {}).difference(np.array([3.0]))[0].error == math.inf


def test_the_spread_is_that_of_errors_at_the_same_distance():
    """Many blocks: by distance and column; a class of distance without errors is like the one below."""
    rng = np.random.default_rng(0)
    columns, distances = rng.integers(0, 2, 8000), rng.choice([1, 3, 20], 8000)
    sd = np.where(columns == 0, 1.0, 2.0) * distances
    spread = Spread.of(Residuals(sd * rng.normal(size=8000), columns, distances, np.arange(8000)), 2)
    np.testing.assert_allclose(spread.at(np.array([1, 3, 20]), np.zeros(3, int)), [1.0, 3.0, 20.0], rtol=0.05)
    np.testing.assert_allclose(spread.at(np.array([1, 3, 20]), np.ones(3, int)), [2.0, 6.0, 40.0], rtol=0.05)
    np.testing.assert_array_equal(
        spread.at(np.array([9, 900]), np.zeros(2, int)), spread.at(np.array([3, 20]), np.zeros(2, int))
    )


def test_few_blocks_have_the_spread_of_all_columns():
    residuals = Residuals(np.array([1.0, 1.0, 3.0]), np.array([0, 0, 1]), np.array([1, 1, 1]), np.array([0, 0, 1]))
    common = (1.0 + 9.0) / 2
    np.testing.assert_allclose(Spread.of(residuals, 3).sd[0] ** 2, [(1 + 3 * common) / 4, (9 + 3 * common) / 4, common])


@pytest.mark.parametrize(("level", "count"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_so_many_blocks_are_needed_for_a_finite_factor(level, count):
    assert blocks_needed(level) == count
    assert math.isfinite(conformal_factor(np.ones(count), np.arange(count), level))
    assert math.isinf(conformal_factor(np.ones(count - 1), np.arange(count - 1), level))


def drawn_block(rng, size):
    """Errors of one block: heavy tails, and all of a block large or small together."""
    return np.abs(rng.standard_t(3) * (1 + 0.3 * rng.normal(size=size)))


@pytest.mark.parametrize(("blocks", "level"), [(19, 0.95), (30, 0.8), (8, 0.8)])
def test_a_value_of_a_further_block_is_covered_as_often_as_promised(blocks, level):
    """Blocks of different lengths, whose values depend on each other; the Gaussian factor covers too few."""
    rng, trials, inside, gaussian = np.random.default_rng(0), 2000, 0.0, 0.0
    for _ in range(trials):
        sizes = rng.integers(1, 12, blocks + 1)
        parts = [drawn_block(rng, size) for size in sizes]
        scores, number = np.concatenate(parts[:-1]), np.repeat(np.arange(blocks), sizes[:-1])
        inside += np.mean(parts[-1] <= conformal_factor(scores, number, level))
        gaussian += np.mean(parts[-1] <= norm.ppf(0.5 + level / 2))
    assert inside >= binom.ppf(0.001, trials, level)
    assert inside <= trials * (level + 1 / (blocks + 1) + 0.03)
    assert gaussian < binom.ppf(0.001, trials, level)


def test_factors_are_those_of_the_class_of_the_gap():
    labels = np.array(["1"] * 19 + ["2–4"])
    errors = Conformal(np.append(np.arange(19.0), 3.0), np.arange(20), labels)
    with pytest.warns(UserWarning, match="'2–4' have 1 hidden blocks, and 19 are needed"):
        factors = errors.factors(np.array([["", "1"], ["2–4", "1"]]), 0.95)
    np.testing.assert_array_equal(factors, [[1.0, 18.0], [math.inf, 18.0]])
