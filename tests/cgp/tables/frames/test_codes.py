"""What a user is told of a table's values."""

import warnings

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer
from cgp.commands.terminal import in_flags
from cgp.tables.frames.codes import (
    warn_of_few,
    warn_of_long_gaps,
    warn_of_repeats,
    warn_of_swapped_days,
    warn_of_uneven_errors,
)
from cgp.tables.frames.table import read_table


@pytest.mark.parametrize(("factor", "said"), [(4.0, "from 40 on as before"), (0.25, "before 40 as from then on")])
def test_a_column_that_is_quiet_and_then_loud_is_named(factor, said):
    errors = np.random.default_rng(0).normal(size=(80, 2))
    errors[40:, 1] *= factor
    errors[5, 1] = np.nan
    with pytest.warns(UserWarning, match=rf"errors of 'b' are \d\.\d times as large {said}") as record:
        warn_of_uneven_errors(errors, ["a", "b"], np.arange(80))
    assert len(record) == 1


def test_errors_of_one_size_are_not():
    """In 1,500 columns, with normal and with heavy tails, in few rows."""
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for draw in (rng.normal(size=(60, 500)), rng.standard_t(3, size=(60, 500)), rng.normal(size=(41, 500))):
            warn_of_uneven_errors(draw, range(500), np.arange(len(draw)))
        warn_of_uneven_errors(np.where(np.arange(30) < 15, 1.0, 9.0)[:, None], ["few"], np.arange(30))


def test_times_that_repeat_are_named():
    """The same readings and others, in the table and in rows that come later; not gaps, nor numbers that are inputs."""
    numbers = np.arange(6.0)[:, None]
    frame = pd.DataFrame({"a": numbers[:, 0], "b": np.nan}, index=pd.date_range("2024-01-01", periods=6))
    table, axis = read_table(frame, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeats(table, is_time=True)
        apart = pd.concat([frame, pd.DataFrame({"a": np.nan, "b": 1.0}, index=frame.index)])
        warn_of_repeats(read_table(apart, None)[0], is_time=True)
        warn_of_repeats(read_table(np.hstack([numbers // 2, numbers]), 0)[0], is_time=False)
        warn_of_repeats(table._replace(inputs=table.inputs + 6.0), [table], is_time=True)
    same = (
        r"table: 6 rows repeat a time, with the same values: they count as further readings, and sums count them twice"
    )
    with pytest.warns(UserWarning, match=same + r"; table\[~table.index.duplicated\(\)\] leaves them out"):
        warn_of_repeats(read_table(pd.concat([frame, frame]), None)[0], is_time=True)
    with pytest.warns(UserWarning, match=r"table: 1 row repeats a label of the index: it counts"):
        warn_of_repeats(read_table(pd.DataFrame({"a": [1.0, 2.0]}, index=[3, 3]), None)[0], is_time=False)
    later = read_table(frame.iloc[4:] + 1.0, None, axis=axis)[0]
    with pytest.warns(UserWarning, match=r"rows: 2 rows repeat a time: they .*; rows\[~rows.index.isin"):
        warn_of_repeats(later, [table._replace(inputs=table.inputs - 90.0), table], is_time=True)


def test_a_time_that_comes_twice_as_clocks_are_set_back_is_a_reading():
    """In the night of 29 October; not a day before, nor in a zone, in which every hour has a time of its own."""
    hours = pd.date_range("2023-10-28", periods=40, freq="h")
    for night, zone, said in ((26, None, "clocks are set back: both are readings"), (2, None, "count it twice")):
        times = hours.insert(night + 1, hours[night]).tz_localize(zone)
        table = read_table(pd.DataFrame({"a": np.arange(41.0)}, index=times), None)[0]
        with pytest.warns(UserWarning, match=f"table: 1 row repeats a time.*{said}"):
            warn_of_repeats(table, is_time=True)
    times = hours.insert(27, hours[26]).tz_localize("UTC")
    with pytest.warns(UserWarning, match="count it twice"):
        warn_of_repeats(read_table(pd.DataFrame({"a": np.arange(41.0)}, index=times), None)[0], is_time=True)


def test_columns_of_few_values_and_more_gaps_are_named():
    """Below ten values, as the docstring of fit says; one value has a warning of its own."""
    values = np.full((40, 4), np.nan)
    for column, count in enumerate((1, 5, 9, 10)):
        values[:count, column] = np.arange(count)
    with pytest.warns(UserWarning, match="table: 'b' has 5 values and 35 gaps, 'c' has 9 values and 31 gaps: most of"):
        warn_of_few(values, list("abcd"))
    warn_of_few(values[:18, 2:], list("cd"))  # neither: a warning is an error in these tests


def test_a_gap_longer_than_all_that_a_series_shows_is_named():
    """In the order of time; not where values are as many, below ten of them, or where sums are known besides."""
    rows = np.random.default_rng(0).permutation(60)
    values = np.where(rows[:, None] < np.array([20, 30, 5, 20]), 1.0, np.nan) * rows[:, None]
    table = read_table(pd.DataFrame(values, index=rows.astype(float), columns=list("abcd")), None)[0]
    with pytest.warns(UserWarning, match="table: 'a' has 20 values and a gap of 40 rows: how far a column moves"):
        warn_of_long_gaps(table, [3])
    warn_of_long_gaps(table._replace(values=values[:, 1:2], names=["b"]))  # a warning is an error in these tests
    series = np.where(np.arange(60) < 20, np.sin(np.arange(60.0)), np.nan)
    with pytest.warns(UserWarning, match="'x' has 20 values and a gap of 40 rows"):
        CorrelatedGPImputer(random_state=0).fit(pd.DataFrame({"x": series}))


def test_errors_that_no_interval_is_too_narrow_for_are_not_named():
    """As of straight lines without noise, whose rounding grows."""
    errors = 0.02 * np.random.default_rng(0).normal(size=(80, 1))
    errors[40:] *= 6.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_uneven_errors(errors, ["line"], np.arange(80))


@pytest.mark.parametrize(
    ("shift", "is_changed", "said"), [(0.0, False, True), (-9.0, False, False), (0.0, True, False)]
)
def test_errors_that_grow_with_a_positive_column_name_its_logarithm(shift, is_changed, said):
    """As of flow that recedes from spring on; not of values below 0, nor where there is a transform."""
    level = np.exp(np.linspace(3.0, 0.5, 160))[:, None]
    errors = level / level.mean() * np.random.default_rng(0).normal(size=(160, 1))
    values = np.where(is_changed, np.nan, level + shift)
    with pytest.warns(UserWarning, match="errors of 'G2' are") as record:
        warn_of_uneven_errors(errors, ["G2"], np.arange(160), values=values, is_auto=True)
    first = "(they grow with its values: transforms={'G2': 'log'}, or fit each part)"
    assert (first in str(record[0].message)) is said
    assert ("--transforms G2=log, or fit each part" in in_flags(str(record[0].message))) is said


def swapped(times):
    """Times whose day and month have changed places where the day may be a month."""
    return pd.DatetimeIndex([t.replace(month=t.day, day=t.month) if t.day <= 12 else t for t in times])


@pytest.mark.parametrize(
    ("start", "rows", "step", "said"),
    [
        ("2021-01-01", 120, "D", r"2\d\d rows are absent, and otherwise 0 rows"),
        ("2021-03-01", 2000, "h", r"\d+ rows are absent, and otherwise 0 rows"),
        ("2021-01-01", 36, "MS", r"\d+ rows are absent, and otherwise 0 rows"),
    ],
)
def test_days_that_were_taken_for_months_are_warned_of(start, rows, step, said):
    times = pd.date_range(start, periods=rows, freq=step, tz="UTC")
    with pytest.warns(UserWarning, match=f"day and month seem to have changed places .*{said}") as record:
        warn_of_swapped_days(swapped(times.tz_localize(None))[::-1].tz_localize("UTC"))
    assert in_flags(str(record[0].message)).endswith("; --dayfirst, --monthfirst or --time-format tells")


def test_dates_in_their_places_are_not_warned_of():
    """Regular ones, with a winter that is missing, first twelve days of months, and random ones."""
    days = pd.date_range("2021-01-01", periods=700, freq="D")
    random = days[np.sort(np.random.default_rng(0).choice(700, 60, replace=False))]
    gone = days[(days.month > 3) & (days.month < 11)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for times in (days, gone, random, days[days.day <= 12], days[::28], days[days.day == 1], days[:1], days[:0]):
            warn_of_swapped_days(times)
            warn_of_swapped_days(times + pd.to_timedelta(np.arange(len(times)) % 7, unit="min"))


def test_a_fit_to_swapped_dates_says_so():
    days = pd.date_range("2021-01-01", periods=60, freq="D")
    frame = pd.DataFrame({"a": np.sin(np.arange(60.0))}, swapped(days)).sort_index()
    frame.iloc[5] = np.nan
    with pytest.warns(UserWarning, match="seem to have changed places"):
        CorrelatedGPImputer(structure="independent", random_state=0).fit(frame)
