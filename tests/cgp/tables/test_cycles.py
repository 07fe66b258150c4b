"""Cycles of tables that are too short to be searched for any are said, where they are visible."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

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
    (message,) = said(hours / 24, sines(hours, 24, 5.98), is_time=True)
    assert "periods=['6h', '1D']" in message  # a harmonic of the day


def test_a_year_that_a_fit_tries_is_not_said():
    months = np.arange(360.0) * 365.2425 / 12
    assert said(months, sines(months, 365.2425), is_time=True) == []
    (message,) = said(months, sines(months, 365.2425), is_time=False)
    assert "a cycle of 365 is visible" in message


def test_long_tables_and_places_are_not_said():
    t = np.arange(2400.0)
    assert said(t, sines(t, 24)) == []
    warn_of_cycles(np.column_stack([t, t])[:400], sines(t, 24)[:400, None], is_time=False)


def autocorrelated(rng, rows, columns, share):
    noise = rng.normal(size=(rows + 500, columns))
    return lfilter([1.0], [1.0, -share], noise, axis=0)[500:] * np.sqrt(1.0 - share**2)


def rain(rng, rows, columns, share):
    """Zeros on seven of ten days, and a long tail."""
    return np.expm1(2.0 * (autocorrelated(rng, rows, columns, share) - 0.5).clip(min=0.0))


def river(rng, rows, columns):
    """A reservoir of ten days that rain of the season runs through, rain, temperatures."""
    season, wet = np.cos(2 * np.pi * np.arange(rows) / 365.25), rain(rng, rows, 1, 0.5)[:, 0]
    flow = lfilter([0.1], [1.0, -0.9], wet * (1.0 + 0.6 * season)) * np.exp(0.05 * rng.normal(size=rows))
    warm = 9.0 * season + 2.0 * autocorrelated(rng, rows, 1, 0.75)[:, 0]
    return np.column_stack([flow, wet, warm, rain(rng, rows, 1, 0.5)])[:, :columns]


WITHOUT = {
    "white": lambda rng, *shape: rng.normal(size=shape),
    "heavy": lambda rng, *shape: rng.standard_t(2, size=shape),
    "red": lambda rng, *shape: autocorrelated(rng, *shape, 0.9),
    "walks": lambda rng, *shape: rng.normal(size=shape).cumsum(0),
    "rain": lambda rng, *shape: rain(rng, *shape, 0.0),
    "red rain": lambda rng, *shape: rain(rng, *shape, 0.9),
    "river": river,
    "hump": lambda rng, *shape: lfilter([1.0], [1.0, -1.2, 0.5], rng.normal(size=shape), axis=0),
}


def spoken(kind, rows, columns, trials):
    """How often a cycle is said of tables that have none, with gaps."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(trials):
        table = WITHOUT[kind](rng, rows, columns)
        for p, first in enumerate(rng.integers(0, rows - 10, columns)):
            table[first : first + 10, p] = np.nan
        count += bool(said(np.arange(float(rows)), table, is_time=True))
    return count


@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize(("rows", "columns"), [(210, 4), (548, 3)])
def test_tables_without_a_cycle_are_said_to_have_none(kind, rows, columns):
    assert spoken(kind, rows, columns, 30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize(("rows", "columns"), [(210, 4), (365, 4), (490, 4), (548, 3), (210, 1), (730, 1), (1900, 1)])
def test_a_cycle_is_said_of_one_table_in_a_hundred_without(kind, rows, columns):
    """The figures of docs/notes/regression.md: pytest -m slow -rA."""
    count = spoken(kind, rows, columns, 200)
    print(f"{kind}, {rows} rows, {columns} columns: {count} of 200")
    assert count <= 2


@pytest.mark.parametrize("rows", [210, 365, 490])
def test_a_day_is_said_of_hourly_readings_with_clouds(rows):
    """Of sunlight with zeros at night, whose strength changes from day to day, beside columns without a cycle."""
    rng, hours = np.random.default_rng(0), np.arange(float(rows) + 140.0)
    days = rng.uniform(0.3, 1.0, len(hours) // 24 + 1)[(hours // 24).astype(int)]
    sun = days * np.maximum(np.sin(2 * np.pi * (hours / 24 - 0.25)), 0.0) ** 1.5
    table = np.column_stack([sun, autocorrelated(rng, len(hours), 2, 0.9)])
    (message,) = said(hours / 24, table, is_time=True)
    assert re.search(r"cycles? of (.* and )?1 d", message)


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_have_no_cycles(seed):
    walks = np.random.default_rng(seed).normal(size=(20, 600, 3)).cumsum(1)
    assert [said(np.arange(600.0), walk) for walk in walks] == [[]] * 20
