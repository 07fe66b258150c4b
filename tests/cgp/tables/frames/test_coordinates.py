"""Inputs of a table as numbers and as text."""

import numpy as np
import pytest

from cgp.tables.frames.coordinates import Axis, Coordinate


def test_lags_of_times_are_told_in_the_largest_unit_that_they_have():
    axis = Axis((), (Coordinate("time"),))
    lags = np.array([2.0, -3.0 / 24.0, 30.0 / 1440.0, 45.0 / 86400.0, 0.0])
    assert axis.described(lags) == ["+2 d", "-3 h", "+30 min", "+45 s", ""]


@pytest.mark.parametrize("coordinates", [(), (Coordinate("number"),)])
def test_lags_of_other_inputs_have_no_unit(coordinates):
    assert Axis((), coordinates).described(np.array([0.5, 0.0, -2.0])) == ["+0.5", "", "-2"]
