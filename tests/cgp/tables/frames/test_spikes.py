"""Single values that neither their neighbours nor other columns lead to expect."""

import warnings

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer
from cgp.commands.terminal import in_flags
from cgp.tables.frames.spikes import spikes_of, warn_of_spikes
from cgp.tables.frames.table import read_table


def river(rows=120):
    """Flow and level of a river, with a week without flow."""
    rng = np.random.default_rng(0)
    flow = np.exp(np.convolve(rng.normal(size=rows + 8), np.ones(9) / 6, "valid")).round(3)
    table = pd.DataFrame({"flow": flow, "level": (0.5 * flow**0.5).round(3)}, pd.date_range("2021-01-01", periods=rows))
    table.iloc[60:67, 0] = np.nan
    return table


def test_one_spike_of_a_logger_is_named_with_what_was_expected():
    table = river()
    table.iloc[40, 0] = 80.0
    said = r"80 in 'flow' at 2021-02-10 \((\d\.\d+) expected\): far from .* missing_values=80, or NaN in its place"
    with pytest.warns(UserWarning, match=said) as record:
        imputer = CorrelatedGPImputer(random_state=0).fit(table)
    (text,) = (str(each.message) for each in record)
    assert "--missing 80, or an empty field in its place, makes it a gap" in in_flags(text)
    assert "80 in 'flow' at 2021-02-10" in imputer.summary()
    (expected,) = imputer._filled.spikes.values()
    assert abs(expected - river().iloc[40, 0]) < 4.0


def test_a_table_without_spikes_is_not_warned_of():
    imputer = CorrelatedGPImputer(random_state=0).fit(river())
    assert "far from" not in imputer.summary()


def test_jumps_and_heavy_tails_are_no_spikes():
    """A level that changes once has two large errors, and Student's t has many: few are far beyond all others."""
    rng = np.random.default_rng(1)
    rows = np.arange(400.0)
    jump = np.where(rows < 200, 0.0, 30.0) + 0.1 * rng.normal(size=400)
    errors = rng.normal(size=(400, 1))
    errors[199:201] = [[-25.0], [25.0]]
    assert spikes_of(errors, jump[:, None], rows) == []
    heavy = rng.standard_t(3, size=(400, 200))
    assert len(spikes_of(heavy, heavy, rows)) <= 12


def test_a_neighbour_that_a_spike_spoils_is_none():
    rows = np.arange(50.0)
    values = np.random.default_rng(2).normal(size=(50, 2))
    errors = values.copy()
    values[20, 0], errors[19:22, 0] = 40.0, [-9.0, 20.0, -9.0]
    errors[20, 1] = -15.0  # as predicted from the spike
    values[[30, 35], 1], errors[[30, 35], 1] = [50.0, 40.0], [50.0, 40.0]
    shuffled = np.random.default_rng(3).permutation(50)
    assert spikes_of(errors, values, rows) == [(20, 0), (30, 1), (35, 1)]
    back = spikes_of(errors[shuffled], values[shuffled], rows[shuffled])
    assert [(shuffled[row], column) for row, column in back] == [(20, 0), (30, 1), (35, 1)]


def test_a_value_that_is_not_the_only_one_is_no_code():
    table = read_table(pd.DataFrame({"a": [1.0, 9.0, 1.0, 2.0], "b": [9.0, 1.0, 1.0, 1.0]}), None)[0]
    with pytest.warns(UserWarning, match=r"if it is wrong, NaN in its place makes it a gap"):
        warn_of_spikes({(1, 0): 1.0}, table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_spikes({}, table)
