"""Known sums: what is left of them beside readings, which contradict, and their bins."""

import numpy as np
import pytest
import torch

from cgp.regression.observations import Observations
from cgp.regression.sums import Sums, bins_of


def sums_of(parts, values, *, noise=0.0, of_readings=True):
    """Of output 1 at inputs 0, 1, 2, ...; parts are ranges."""
    x = np.concatenate([np.array(part, dtype=float) for part in parts])
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    places = np.column_stack([x, np.ones(len(x))])
    options = np.full(len(parts), noise), np.full(len(parts), of_readings), tuple(f"sum {m}" for m in range(len(parts)))
    return Sums(places, np.ones(len(x)), numbers, np.array(values, dtype=float), *options)


ROWS = torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
TARGETS = torch.tensor([2.0, 3.0, 9.0], dtype=torch.float64)


def test_known_readings_are_subtracted():
    given = sums_of([range(4), range(2, 6)], [10.0, 7.0]).given(ROWS, TARGETS)
    assert given.values.tolist() == [5.0, 7.0]
    assert given.places[given.sums == 0, 0].tolist() == [2.0, 3.0]
    assert given.readings.tolist() == [0, 1, 0, 1, 2, 3]  # shared where they overlap
    at, sums, weights = given.known
    assert (at.tolist(), sums.tolist(), weights.tolist()) == ([0, 1], [0, 0], [1.0, 1.0])
    assert given.readings_at(ROWS + torch.tensor([2.0, 0.0])).tolist() == [0, 1, -1]


def test_sums_of_the_process_keep_their_places():
    given = sums_of([range(4)], [10.0], of_readings=False).given(ROWS, TARGETS)
    assert given.values.tolist() == [10.0]
    assert given.readings.tolist() == [-1] * 4


def test_sums_that_follow_from_others_are_left_out():
    parts = [range(2, 4), range(4, 6), range(2, 6), range(2)]
    given = sums_of(parts, [1.0, 2.0, 3.0, 5.0]).given(ROWS, TARGETS)
    assert given.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"sum 2 contradicts .* and sum 0, sum 1"):
        sums_of(parts, [1.0, 2.0, 4.0, 5.0]).given(ROWS, TARGETS)
    with pytest.raises(ValueError, match="sum 3 contradicts the readings that it covers, which"):
        sums_of(parts, [1.0, 2.0, 3.0, 6.0]).given(ROWS, TARGETS)
    assert len(sums_of(parts, [1.0, 2.0, 4.0, 6.0], noise=1.0).given(ROWS, TARGETS).values) == 4


def test_several_readings_at_a_place_of_a_sum_are_refused():
    with pytest.raises(ValueError, match="one reading at each place"):
        sums_of([range(4)], [10.0]).given(ROWS[[0, 0]], TARGETS[:2])


def test_standardised_sums_are_those_of_standardised_outputs():
    rng = np.random.default_rng(0)
    inputs, values = np.arange(12.0)[:, None], rng.normal(5.0, 3.0, size=(12, 2))
    full = values.copy()
    values[:, 1] = np.nan
    parts = [range(4), range(4, 8), range(8, 12)]
    known = sums_of(parts, [full[list(part), 1].sum() for part in parts])
    given = Observations(inputs, values, sums=known).standardised()
    number = given.units.numbers[1]
    expected = given.units.outputs.apply(full)[:, 1].reshape(3, 4).mean(1)
    np.testing.assert_allclose(given.sums.values, expected)
    assert set(given.sums.outputs) == {number}
    np.testing.assert_allclose(given.bins[0].means[:, number], expected)
    other = 1 - number
    np.testing.assert_allclose(given.bins[0].means[:, other], given.values[:, other].reshape(3, 4).mean(1))
    shown = np.corrcoef(full[:, 0].reshape(3, 4).mean(1), full[:, 1].reshape(3, 4).mean(1))[0, 1]
    np.testing.assert_allclose(float(given.correlation()[0, 1]), shown)


def test_bins_need_half_of_a_column_and_do_not_overlap():
    values = np.full((6, 2), np.nan)
    values[:4, 0] = [1.0, 3.0, 5.0, 7.0]
    bins = bins_of(np.arange(6.0)[:, None], values, sums_of([range(2), range(1, 3), range(3, 6)], [4.0, 1.0, 9.0]), 1)
    np.testing.assert_array_equal(bins.means, [[2.0, 2.0], [np.nan, 3.0]])
    assert bins.counts.tolist() == [2, 3]
