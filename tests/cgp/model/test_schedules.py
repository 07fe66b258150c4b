"""Schedules at their ends, in between and beyond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgp.model.schedules import cosine, linear, warm_up


@given(num_steps=st.integers(0, 1000), start=st.floats(-2, 2), end=st.floats(-2, 2))
def test_annealing_runs_from_start_to_end_and_stays(num_steps, start, end):
    for schedule in (linear, cosine):
        if num_steps:
            assert schedule(0, num_steps, start, end) == pytest.approx(start)
        assert schedule(num_steps, num_steps, start, end) == pytest.approx(end)
        assert schedule(num_steps + 7, num_steps, start, end) == pytest.approx(end)
        between = [schedule(t, num_steps, start, end) for t in range(num_steps + 1)]
        assert between == sorted(between, reverse=end < start) or abs(end - start) < 1e-9


def test_half_way():
    assert linear(5, 10, 0.5, 1.0) == pytest.approx(0.75)
    assert cosine(5, 10) == pytest.approx(0.5)
    assert (warm_up(4, 5), warm_up(5, 5)) == (0.0, 1.0)


@pytest.mark.parametrize("schedule", [linear, cosine, warm_up])
def test_negative_steps_are_refused(schedule):
    with pytest.raises(ValueError, match="expected non-negative numbers, got -1 and 3"):
        schedule(-1, 3)
