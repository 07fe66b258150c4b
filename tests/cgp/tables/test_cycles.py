"""Cycles of tables that are too short to be searched for any are said, where they are visible."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer
from cgp.regression import MAP
from cgp.tables.cycles import warn_of_cycles


def said(inputs, values, *, is_time=False):
    """What is warned of."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn_of_cycles(inputs[:, None], values.reshape(len(inputs), -1), is_time=is_time)
    return [str(each.message) for each in caught]


def sines(t, *periods):
    return sum(np.sin(2 * np.pi * t / period) for period in periods) + 0.1 * np.random.default_rng(0).normal(
        size=len(t)
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_says_a_cycle_that_it_does_not_look_for():
    """Unless a structure or a kernel was asked for."""
    series = pd.Series(sines(np.arange(400), 24), index=pd.date_range("2024-01-01", periods=400, freq="h"), name="a")
    options = {"inference": MAP(max_steps=2), "random_state": 0}
    with pytest.warns(UserWarning, match=re.escape("structure=MultiScale(periods=['1D']) names it")):
        CorrelatedGPImputer(**options).fit(series)
    CorrelatedGPImputer(structure="independent", **options).fit(series)  # where another warning is an error
    CorrelatedGPImputer(kernel="matern32", **options).fit(series)


def test_cycles_are_said_in_units_of_the_input():
    hours = np.arange(600.0)
    (message,) = said(hours, sines(hours, 12.42, 33.0))
    assert "cycles of 12.4 and 33 are visible" in message or "cycles of 33 and 12.4 are visible" in message
    (message,) = said(hours / 24, sines(hours, 12.42), is_time=True)
    assert "a cycle of 12.4 h is visible" in message
    assert "periods=['12.4h']" in message


def test_a_year_that_a_fit_tries_is_not_said():
    months = np.arange(360.0) * 365.2425 / 12
    assert said(months, sines(months, 365.2425), is_time=True) == []
    (message,) = said(months, sines(months, 365.2425), is_time=False)
    assert "a cycle of 365 is visible" in message


def test_long_tables_and_places_are_not_said():
    t = np.arange(2400.0)
    assert said(t, sines(t, 24)) == []
    warn_of_cycles(np.column_stack([t, t])[:400], sines(t, 24)[:400, None], is_time=False)


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_have_no_cycles(seed):
    walks = np.random.default_rng(seed).normal(size=(20, 600, 3)).cumsum(1)
    assert [said(np.arange(600.0), walk) for walk in walks] == [[]] * 20
