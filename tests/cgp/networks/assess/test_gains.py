"""Lower bounds of gains: as Clopper and Pearson have them, as Student, and where a few answers are sure and wrong."""

import numpy as np
import pytest
from scipy.stats import beta, binom, t

from cgp.networks.assess.gains import harm_of_temperatures, harm_seen, least_mean, of_groups
from cgp.networks.tasks.metrics import log_losses


@pytest.mark.parametrize(("ones", "count"), [(0, 40), (3, 40), (39, 40), (40, 40), (280, 300)])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(ones, count):
    values = np.r_[np.ones(ones), np.zeros(count - ones)]
    exact = beta.ppf(0.05, ones, count - ones + 1) if ones else 0.0
    assert least_mean(values, 0.0, 0.05) == pytest.approx(exact, abs=0.006)


@pytest.mark.parametrize("count", [500, 5000])
def test_of_normal_numbers_it_is_nearly_students(count):
    values = np.random.default_rng(0).normal(0.3, 1.0, count)
    student = values.mean() - t.ppf(0.975, count - 1) * values.std(ddof=1) / count**0.5
    assert least_mean(values, -5.0, 0.025) == pytest.approx(student, abs=0.1 * (0.3 - student) + 10.0 / count)


@pytest.mark.parametrize(("rare", "count"), [(0.03, 30), (0.01, 60), (0.01, 100)])
def test_a_loss_that_few_draws_show_is_counted(rare, count):
    """Gains of .1 ± .3 that an event of probability p undoes exactly: their mean is 0, Student claims one too often."""
    rng, worst = np.random.default_rng(0), -0.1 * (1 - rare) / rare
    broken = student = 0
    for _ in range(150):
        values = np.where(rng.random(count) < rare, worst, rng.normal(0.1, 0.3, count))
        broken += least_mean(values, worst, 0.05) > 0
        student += values.mean() > 2 * values.std(ddof=1) / count**0.5
    assert broken <= binom.ppf(0.999, 150, 0.05)
    assert student > binom.ppf(0.999, 150, 0.05)


def test_no_answer_loses_more_by_a_temperature_above_one_than_the_bound():
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 30.0):
        logits = scale * rng.standard_t(2, (2000, 6))
        p, q = (np.exp(x - x.max(1, keepdims=True)) for x in (logits, logits / 3.0))
        p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
        labels = p.argmax(1)
        harms = log_losses(q, labels) - log_losses(p, labels)
        assert harms.max() <= harm_of_temperatures([3.0, 2.0], log_losses(p, labels), 6)
    assert harm_of_temperatures([3.0, 2.0], np.zeros(3), 6) == pytest.approx(2 / 3 * np.log(6))
    assert harm_of_temperatures([2.0, 0.5], np.array([1.0, 40.0]), 6) == 40.0
    assert harm_of_temperatures([0.5], np.array([1.0]), 6) == 30.0
    assert harm_seen(np.array([-3.0, 2.0])) == 3.0
    assert harm_seen(np.zeros(2)) == 1.0


def test_groups_have_the_mean_of_their_values():
    values, groups = np.array([1.0, 2.0, 6.0, -1.0]), np.array([0, 0, 0, 1])
    sums, largest = of_groups(values, groups)
    assert sums.mean() == values.mean()
    assert largest == 1.5
    alone, largest = of_groups(values, np.arange(4))
    np.testing.assert_array_equal(alone, values)
    assert largest == 1.0
