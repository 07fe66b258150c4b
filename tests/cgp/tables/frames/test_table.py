"""Tables as numbers: codes, and rows that are far from all others."""

import numpy as np
import pandas as pd
import pytest

from cgp.tables.frames.table import read_table


def test_codes_are_known_in_single_precision():
    """-999.9 in float32 is not the number that is written: in a column of float32, or one that was."""
    column = pd.Series([1.0, -999.9, 3.0], dtype=np.float32)
    for each in (column, column.astype(np.float64), column.to_numpy()[:, None], pd.Series([1.0, -999.9, 3.0])):
        assert read_table(each, None, -999.9)[0].missing.sum() == 1


@pytest.mark.parametrize("stray", [1e9, -1e4])
def test_a_stray_input_is_refused(stray):
    index = np.array([*np.arange(20.0), stray, *np.arange(21.0, 40.0)])
    table = pd.DataFrame({"a": np.ones(40)}, index=index)
    with pytest.raises(ValueError, match=rf"as far from all others as {stray!r} \(row 20\) is from 0\.0 to 39\.0"):
        read_table(table, None)
    with pytest.raises(ValueError, match=r"inputs: expected no row as far"):
        read_table(table.reset_index(), ("index",))


def test_a_clock_that_starts_anew_is_refused_and_holes_are_not():
    times = pd.date_range("2024-01-01", periods=48, freq="h")
    table = pd.DataFrame({"a": np.ones(48)}, index=times)
    with pytest.raises(ValueError, match=r"1970-01-01 .* is from 2024-01-01 .* to 2024-01-02"):
        read_table(table.set_axis([*times[:-1], pd.Timestamp(0)]), None)
    read_table(table.set_axis([*times[:24], *times[24:] + pd.Timedelta("5000D")]), None)
    read_table(table.set_axis(2.0 ** np.arange(48)), None)
    read_table(table.set_axis([0.0] * 47 + [1.0]), None)


def test_a_column_of_periods_is_refused_as_times():
    table = pd.DataFrame({"a": np.ones(4), "month": pd.period_range("2024-01", periods=4, freq="M")})
    with pytest.raises(ValueError, match="column 'month': expected numbers, got times"):
        read_table(table, None)


def test_decimal_commas_are_not_advised_to_become_gaps():
    for texts, advice in ((["0,615", "1,5"], r"str\.replace\(',', '\.'\)"), (["0.6", "broken"], "makes texts gaps")):
        with pytest.raises(ValueError, match=f"column 'flow': expected numbers, got .*{advice}"):
            read_table(pd.DataFrame({"flow": texts}), None)


def test_units_in_the_first_row_are_told_from_other_texts():
    with pytest.raises(ValueError, match=r"column 'level': expected numbers, got 'cm' in the first row only: .*unit"):
        read_table(pd.DataFrame({"level": ["cm", "1.5", "2.0"]}), None)
    with pytest.raises(ValueError, match=r"got '01/02/2023'; dates become times by pandas.to_datetime, .*dayfirst"):
        read_table(pd.DataFrame({"level": [1.0, 2.0]}, ["01/02/2023", "02/02/2023"]), None)
