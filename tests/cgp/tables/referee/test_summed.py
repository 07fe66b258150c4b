"""Totals in the comparison of methods: those of hidden blocks, and methods that take none."""

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer, assess_gaps
from cgp.regression import MAP
from cgp.regression.sums import Sums
from cgp.tables.frames.table import read_table
from cgp.tables.known import known_sums
from cgp.tables.masking import HiddenBlocks
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from cgp.tables.referee.summed import SummedImputer, with_hidden_blocks

DAYS = 120


def table():
    """A column with gaps of four days, and one that goes with it."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=DAYS))
    index = pd.date_range("2023-01-02", periods=DAYS, freq="D")
    full = pd.DataFrame({"rain": walk + rng.normal(size=DAYS), "flow": walk + rng.normal(size=DAYS)}, index=index)
    frame = full.copy()
    for first in (17, 51, 93):
        frame.iloc[first : first + 4, 0] = np.nan
    frame.iloc[70:73, 1] = np.nan
    return full, frame


def totals(full):
    """Of the three gaps of the first column."""
    rows = full.index[[17, 51, 93]]
    intervals = pd.IntervalIndex.from_arrays(rows, rows + pd.Timedelta(days=3), closed="both")
    return {"rain": pd.Series([full["rain"][span.left : span.right].sum() for span in intervals], index=intervals)}


def parts(share=0.2):
    full, frame = table()
    numbers, axis = read_table(frame, None)
    return full, numbers, known_sums(totals(full), numbers, axis), HiddenBlocks.of(numbers, 2, share, 0)


def test_hidden_blocks_of_columns_with_totals_have_theirs():
    _, numbers, known, hidden = parts()
    for masking in range(2):
        sums = with_hidden_blocks(known, numbers, hidden, masking)
        np.testing.assert_array_equal(sums.values[:3], known.values)
        mine = (hidden.maskings[hidden.blocks] == masking) & (hidden.columns == 0)
        further = sums.sums >= 3
        assert sums.outputs[further].tolist() == [0] * mine.sum()
        assert sorted(sums.places[further, 0]) == sorted(numbers.inputs[hidden.rows[mine], 0])
        for number, value in enumerate(sums.values[3:], 3):
            rows = np.isin(numbers.inputs[:, 0], sums.places[sums.sums == number, 0])
            assert 1 <= rows.sum() <= 4
            assert numbers.values[rows, 0].sum() == pytest.approx(value, rel=1e-12)


def test_values_move_as_little_as_totals_need():
    """Beside the normal equations of the constrained problem; the third total reaches a row that is not there."""
    values = np.array([[1.0, 2.0], [np.nan, 1.0], [np.nan, np.nan], [5.0, np.nan], [np.nan, 4.0]])
    inputs = [0, 1, 2, 1, 2, 3, 2, 3, 4, 9]
    columns = [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    weights, sums = np.array([1, 1, 1, 2, 1, 1, 1, 3, 1, 1.0]), np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    given = Sums(
        np.column_stack([inputs, columns]).astype(float),
        weights,
        sums,
        np.array([11.0, 17.0, 5.0, 100.0]),
        np.zeros(4),
        np.ones(4, dtype=bool),
        ("",) * 4,
    )
    lines = LinearInterpolation().fit_transform(values)
    found = SummedImputer(LinearInterpolation()).fit(values, totals=given).transform(values)
    W = np.zeros((3, 4))  # of the cells (1, 0), (2, 0), (2, 1), (3, 1)
    W[0, :2], W[1, :2], W[2, 2:] = [1, 1], [2, 1], [1, 3]
    unknown = ([1, 2, 2, 3], [0, 0, 1, 1])
    rest = np.array([11.0 - 1.0, 17.0 - 5.0, 5.0]) - W @ lines[unknown]
    system = np.block([[np.eye(4), W.T], [W, np.zeros((3, 3))]])
    moved = np.linalg.solve(system, np.concatenate([np.zeros(4), rest]))[:4]
    np.testing.assert_allclose(found[unknown], lines[unknown] + moved, atol=1e-12)
    others = np.ones_like(values, dtype=bool)
    others[unknown] = False
    np.testing.assert_array_equal(found[others], lines[others])


def test_every_method_has_the_totals_of_hidden_blocks():
    full, frame = table()
    inference = MAP(num_starts=1)
    imputer = CorrelatedGPImputer(structure="coregionalised", inference=inference, random_state=0)
    methods = {"lines": LinearInterpolation(), "ridge": LaggedRidge(), "the GP": imputer}
    without = assess_gaps(frame, methods=methods, maskings=2, share=0.2)
    report = assess_gaps(frame, methods=methods, maskings=2, share=0.2, totals=totals(full))
    assert not report.failures
    assert report.sentence.endswith("Blocks of columns with totals were hidden with their totals known.")
    hidden = report.hidden
    for name, trial in report.trials.items():
        for block in range(len(hidden.labels)):
            mine = (hidden.blocks == block) & (hidden.columns == 0)
            assert abs(trial.errors[mine].sum()) < 1e-6
        rain = hidden.columns == 0
        assert np.square(trial.errors[rain]).mean() < 0.9 * np.square(without.trials[name].errors[rain]).mean()
    for name in methods:
        filled = report.fitted(name).transform(frame)
        for span, total in totals(full)["rain"].items():
            assert filled["rain"][span.left : span.right].sum() == pytest.approx(total, rel=1e-6)
