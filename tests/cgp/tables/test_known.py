"""Totals of columns that are known: fits with them, what comes out, and what is refused."""

import copy

import numpy as np
import pandas as pd
import pytest

from cgp.regression import MAP, Windows
from cgp.tables import CorrelatedGPImputer, KnownTotals, adding_up
from cgp.tables import read_table as read_file
from cgp.tables.frames.table import read_table
from cgp.tables.known import known_sums, rounded, warn_of_beyond, warn_of_far

DAYS = 63
QUICK = {"structure": "coregionalised", "inference": MAP(num_starts=1), "random_state": 0}


def series(index=None):
    """Two columns that go together, of which the second has no values."""
    rng = np.random.default_rng(0)
    index = pd.date_range("2023-01-02", periods=DAYS, freq="D") if index is None else index
    level = np.cumsum(rng.normal(size=DAYS)) + 0.3 * np.arange(DAYS) + 20.0
    full = pd.DataFrame({"flow": level, "rain": 2.0 * level + rng.normal(size=DAYS)}, index=index)
    return full, full.assign(rain=np.nan)


def weekly(full, column="rain"):
    return full[column].groupby(full.index.to_period("W")).sum()


@pytest.fixture(scope="module")
def fitted():
    full, frame = series()
    totals = weekly(full)[:8]
    return CorrelatedGPImputer(**QUICK).fit(frame, totals={"rain": totals}), full, frame, totals


def by_week(frame, totals):
    return weekly(frame)[totals.index]


def test_fills_and_draws_have_the_totals_of_a_column_without_values(fitted):
    imputer, full, frame, totals = fitted
    filled = imputer.transform(frame)
    for each in (filled, *imputer.draws(3)):
        pd.testing.assert_series_equal(by_week(each, totals), totals, rtol=1e-10)
    error = (filled["rain"] - full["rain"])[:56]
    assert error.std() < 0.3 * full["rain"].std()
    assert imputer.regressor_.correlation_[0, 1] > 0.8
    assert (imputer.std_["rain"] > 0).all()


def test_the_aggregate_of_a_known_bin_has_no_error(fitted):
    imputer, _, _, totals = fitted
    found = imputer.aggregate("W")
    np.testing.assert_allclose(found.value["rain"][:8], totals, rtol=1e-10)
    assert found.std["rain"].tolist()[:8] == [0.0] * 8
    assert found.std["rain"].iloc[-1] > 0.0
    assert (imputer.aggregate("W", include_noise=False).std["rain"] > 0).all()


def test_it_is_written_and_read_with_its_totals(fitted, tmp_path):
    imputer, _, frame, _ = fitted
    imputer.save(tmp_path)
    other = CorrelatedGPImputer.load(tmp_path)
    pd.testing.assert_frame_equal(other.transform(frame), imputer.transform(frame))
    np.testing.assert_array_equal(other.aggregate("W").std, imputer.aggregate("W").std)


def test_later_readings_are_taken_from_the_totals(fitted):
    imputer, full, frame, totals = fitted
    known = full.assign(flow=frame["flow"].where(frame.index < "2023-01-05"))[2:5]
    other = copy.deepcopy(imputer)
    later = frame.index[-1] + pd.to_timedelta([1, 2], unit="D")
    other.update(pd.DataFrame({"flow": [20.0, 21.0], "rain": [np.nan, 41.0]}, index=later))
    both = frame.combine_first(known[["rain"]])
    pd.testing.assert_series_equal(by_week(imputer.transform(both), totals), totals, rtol=1e-10)
    wrong = frame.assign(rain=full["rain"] + 5.0)[:7]
    with pytest.raises(ValueError, match="'rain' 2023-01-02/2023-01-08 contradicts"):
        imputer.transform(wrong)


def test_the_order_of_columns_does_not_matter(fitted):
    imputer, _, frame, totals = fitted
    other = CorrelatedGPImputer(**QUICK)
    filled = other.fit_transform(frame[["rain", "flow"]], totals=totals.rename("rain"))
    pd.testing.assert_frame_equal(filled[["flow", "rain"]], imputer.transform(frame), rtol=1e-8)


def test_part_of_a_column_by_its_mean_with_noise():
    full, frame = series()
    frame = full.assign(rain=full["rain"].where((full.index < "2023-02-01") | (full.index >= "2023-02-15")))
    means = full["rain"].groupby(full.index.to_period("M")).mean()
    imputer = CorrelatedGPImputer(**QUICK)
    for noise, is_exact in ((0.0, True), (25.0, False)):
        filled = imputer.fit_transform(frame, totals={"rain": KnownTotals(means[1:2] + 3.0, mean=True, noise=noise)})
        assert (abs(filled["rain"]["2023-02"].mean() - means.iloc[1] - 3.0) < 1e-10) == is_exact


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (pd.PeriodIndex(["2023-01"], freq="M"), list(range(30))),
        (pd.IntervalIndex.from_tuples([(pd.Timestamp("2023-01-05"), pd.Timestamp("2023-01-07"))], "left"), [3, 4]),
        (pd.IntervalIndex.from_tuples([(pd.Timestamp("2023-01-05"), pd.Timestamp("2023-01-07"))], "right"), [4, 5]),
        (pd.IntervalIndex.from_tuples([(pd.Timestamp("2023-01-05"), pd.Timestamp("2023-01-07"))], "both"), [3, 4, 5]),
    ],
)
def test_intervals_have_their_rows(index, expected):
    _, frame = series(pd.date_range("2023-01-02", periods=DAYS, freq="D"))
    table, axis = read_table(frame, None)
    if isinstance(index, pd.PeriodIndex):  # the month begins before the table
        with pytest.raises(ValueError, match=r"every step of 'rain' 2023-01, got 28: rows that the table"):
            known_sums({"rain": pd.Series([1.0], index=index)}, *read_table(frame.drop(frame.index[[7, 8]]), None))
        table, axis = read_table(frame.asfreq("D").reindex(pd.date_range("2023-01-01", periods=70)), None)
        expected = list(range(31))
    sums = known_sums({"rain": pd.Series([1.0], index=index)}, table, axis)
    np.testing.assert_array_equal(sums.places, np.column_stack([table.inputs[expected, 0], np.ones(len(expected))]))


def places_of(index, totals):
    """The first and the last place of a total, and their number."""
    table, axis = read_table(pd.DataFrame({"rain": np.arange(len(index)) * 1.0}, index=index), None)
    sums = known_sums({"rain": totals}, table, axis)
    warn_of_beyond(sums, table)
    return [str(each) for each in axis.coordinates[0].labels(np.unique(sums.places[:, 0])[[0, -1]])], len(sums.places)


@pytest.mark.parametrize(
    ("index", "total", "ends", "count"),
    [
        (pd.date_range("2023-01-03", "2023-02-25"), "2023-01", ["2023-01-01 00:00:00", "2023-01-31 00:00:00"], 31),
        (pd.date_range("2023-01-03", "2023-02-25"), "2023-02", ["2023-02-01 00:00:00", "2023-02-28 00:00:00"], 28),
        (pd.date_range("2023-01-20 12:00", periods=40, freq="h"), "2023-01-20", None, 24),
        (
            pd.date_range("2023-03-01", periods=20, freq="MS"),
            "2023",
            ["2023-01-01 00:00:00", "2023-12-01 00:00:00"],
            12,
        ),
        (
            pd.date_range("2023-03-31", periods=20, freq="ME"),
            "2023",
            ["2023-01-31 00:00:00", "2023-12-31 00:00:00"],
            12,
        ),
        (pd.date_range("2023-03-26", periods=5, tz="Europe/Berlin"), "2023-03", None, 31),
    ],
)
def test_totals_reach_over_the_ends_of_the_table_at_its_step(index, total, ends, count):
    period = pd.PeriodIndex([total], freq={4: "Y", 7: "M", 10: "D"}[len(total)])
    bare = index.copy()
    bare.freq = None  # as of a file
    for each in (index, bare):
        with pytest.warns(UserWarning, match=r"'rain' reach over rows that the table does not have, \d+ before its"):
            found = places_of(each, pd.Series([1e6], index=period))
        assert found[1] == count
        assert ends is None or found[0] == ends


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
def test_totals_beyond_the_ends_are_those_of_a_table_with_more_rows():
    full, frame = series()
    totals = weekly(full)
    some = frame[2:-5]
    with pytest.warns(UserWarning, match="2 before its first and 5 after its last"):
        imputer = CorrelatedGPImputer(**QUICK).fit(some, totals={"rain": totals})
    more = some.reindex(pd.date_range("2023-01-02", "2023-03-05"))
    other = CorrelatedGPImputer(**QUICK).fit(more, totals={"rain": totals})
    for found, expected in ((imputer.transform(some), other.transform(more)), (imputer.std_, other.std_)):
        pd.testing.assert_frame_equal(
            found, expected.loc[some.index], atol=0.05, check_freq=False
        )  # priors of the span
    pd.testing.assert_series_equal(by_week(imputer.transform(some), totals)[1:-1], totals[1:-1], rtol=1e-10)
    assert imputer.aggregate("W").std["rain"].isna().tolist() == [True, *[False] * 7, True]


def test_logarithms_have_totals_that_reach_over_the_ends():
    full = series()[0][:"2023-02-26"]  # whole weeks
    some = full.assign(rain=full["rain"].where(full.index < "2023-02-15"))[2:-2]
    imputer = CorrelatedGPImputer(transforms={"rain": "log"}, **QUICK)
    with pytest.warns(UserWarning, match="reach over rows"):
        imputer.fit(some, totals={"rain": weekly(full)})
    filled = imputer.transform(some)
    pd.testing.assert_series_equal(by_week(filled, weekly(full))[6:-1], weekly(full)[6:-1], rtol=1e-10)
    assert ((filled["rain"] - full["rain"]) / imputer.std_["rain"])[-5:].abs().max() < 4.0


@pytest.mark.parametrize("step", ["irregular", "weighted", "apart"])
def test_what_lies_beyond_the_ends_is_refused_where_it_is_not_known(step):
    index = pd.date_range("2023-01-03", periods=40)
    index = index[[0, 1, 3, *range(4, 40)]] + pd.to_timedelta(np.arange(39) % 7 * (step == "irregular"), unit="h")
    total = pd.Series([1e6], index=pd.PeriodIndex(["2022-12" if step == "apart" else "2023-01"], freq="M"))
    if step != "irregular":
        index = pd.date_range("2023-01-03", periods=39)
    totals = KnownTotals(total, weights=np.ones(39)) if step == "weighted" else total
    with pytest.raises(ValueError, match="expected a row of the table at every step of 'rain' 202"):
        places_of(index, totals)


def test_periods_are_those_of_the_rows_time_zone():
    index = pd.date_range("2023-03-01", periods=24 * 62, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"flow": np.arange(len(index)) * 1.0, "rain": np.nan}, index=index)
    table, axis = read_table(frame, None)
    sums = known_sums({"rain": pd.Series([1.0], index=pd.PeriodIndex(["2023-03"], freq="M"))}, table, axis)
    assert len(sums.weights) == 31 * 24 - 1  # summer time


def test_means_and_weights_are_those_of_rows():
    full, frame = series()
    table, axis = read_table(frame, None)
    weights = np.linspace(1.0, 2.0, DAYS)
    total = KnownTotals(weekly(full)[:2], mean=True, weights=weights)
    sums = known_sums({"rain": total}, table, axis)
    np.testing.assert_allclose(sums.weights[:7], weights[:7] / weights[:7].sum())
    assert not known_sums({"rain": weekly(full)[:2] * np.nan}, table, axis)


def _refused(totals, match, **values):
    full, frame = series()
    with pytest.raises(ValueError, match=match):
        CorrelatedGPImputer().fit(frame.assign(**{name: value(full) for name, value in values.items()}), totals=totals)


def test_what_cannot_be_used_is_refused():
    full, _ = series()
    totals = weekly(full)
    _refused({"snow": totals[:8]}, r"expected columns of the table, \['flow', 'rain'\], got \['snow'\]")
    _refused({"rain": totals[:8].to_timestamp()}, r"got DatetimeIndex: monthly.to_period\('M'\)")
    _refused({"rain": KnownTotals(totals[:8], noise=-1.0)}, "noise: expected a variance")
    _refused({"rain": 3.0}, "expected a series of pandas for a column, got float")
    with pytest.raises(ValueError, match="of: expected 'readings' or 'process'"):
        KnownTotals(totals, of="everything")


def test_totals_that_contradict_what_is_known_are_refused():
    full, _ = series()
    totals = weekly(full)[:8]
    both = rf"\({totals.iloc[0] + 10.0:.6g}, by its readings {totals.iloc[0]:.6g}\)"
    _refused({"rain": totals + 10.0}, f"2023-01-02/2023-01-08 {both} contradicts", rain=lambda full: full["rain"])
    table, axis = read_table(series()[1], None)
    assert known_sums({"rain": -totals}, table, axis) is not None  # nothing says that it cannot be
    partly = lambda full: full["rain"].where(full.index != "2023-01-03")  # noqa: E731 - of a week
    _refused({"rain": 0.5 * totals[:1]}, r"'rain' 2023-01-02/2023-01-08 is .* of a column without", rain=partly)


def test_other_solvers_refuse_totals():
    full, frame = series()
    totals = {"rain": weekly(full)[:8]}
    with pytest.raises(ValueError, match="one input and a Markov kernel such as 'matern32'"):
        CorrelatedGPImputer(kernel="rbf").fit(frame, totals=totals)
    with pytest.raises(ValueError, match="expected a table of one input, got 2"):
        CorrelatedGPImputer(inputs=["x", "y"]).fit(frame.assign(x=range(DAYS), y=1.0), totals=totals)
    with pytest.raises(ValueError, match="expected None for a panel"):
        CorrelatedGPImputer().fit([frame, frame], totals=totals)


def test_columns_with_totals_are_not_transformed_unless_asked():
    full, frame = series()
    totals = {"rain": weekly(full)[:8]}
    imputer = CorrelatedGPImputer(transforms={"rain": "auto", "flow": "log"}, **QUICK).fit(frame, totals=totals)
    assert imputer.transforms_.changed == [0]
    pd.testing.assert_series_equal(by_week(imputer.transform(frame), totals["rain"]), totals["rain"], rtol=1e-10)
    np.testing.assert_allclose(imputer.aggregate("W").value["rain"][:8], totals["rain"])
    assert imputer.aggregate("W").std["rain"].tolist()[:8] == [0.0] * 8


def test_few_readings_beside_totals_are_not_sampled_by_slices():
    """Chains of series with sums would take many minutes."""
    full, frame = series()
    table, axis = read_table(frame[:42], None)
    sums = known_sums({"rain": weekly(full)[:6]}, table, axis)
    regressor = CorrelatedGPImputer(structure="coregionalised")._regressor()
    assert regressor._planned(table.inputs, table.values, sums)[1].name == "laplace"
    assert regressor._planned(table.inputs, full[:42].to_numpy()[:, :1], None)[1].name == "slice"


def test_windows_learn_of_readings_and_then_of_totals():
    full, frame = series()
    totals = weekly(full)[:8]
    imputer = CorrelatedGPImputer(structure="multiscale", inference=Windows(num_steps=60), random_state=0)
    filled = imputer.fit_transform(frame, totals={"rain": totals})
    pd.testing.assert_series_equal(by_week(filled, totals), totals, rtol=1e-10)
    assert imputer.aggregate("W").std["rain"].tolist()[:8] == [0.0] * 8
    assert imputer.regressor_.correlation_[0, 1] > 0.7
    assert (filled["rain"] - full["rain"])[:56].std() < 0.4 * full["rain"].std()


def test_samples_of_parameters_take_later_readings_beside_totals():
    full, frame = series()
    totals = {"rain": weekly(full)[:3]}
    imputer = CorrelatedGPImputer(structure="coregionalised", inference="laplace", random_state=0)
    imputer.fit(frame[:40], totals=totals)
    imputer.update(frame[40:45])
    filled = imputer.transform(frame[:45])
    pd.testing.assert_series_equal(by_week(filled, totals["rain"]), totals["rain"], rtol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_rounded_fills_have_their_totals_and_move_to_a_neighbour(seed):
    """Also those of months within a quarter, and beside readings; the largest remainders go up."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2023-01-01", "2023-06-30", freq="D")
    given = pd.Series(rng.gamma(0.5, 4.0, len(days)).round(1), days, name="rain").mask(rng.random(len(days)) < 0.6)
    filled = given.fillna(pd.Series(rng.gamma(0.5, 4.0, len(days)), days))
    for month in (1, 2, 4, 5):  # totals that one decimal can have; March and June are known by their quarters only
        rows = given.isna() & (days.month == month)
        filled[rows] *= (filled[rows].sum() * 10).round() / 10 / filled[rows].sum()
    for quarter in (1, 2):
        rows = given.isna() & (days.quarter == quarter) & (days.month % 3 == 0)
        filled[rows] *= (filled[rows].sum() * 10).round() / 10 / filled[rows].sum()
    ends = pd.IntervalIndex.from_arrays(
        pd.to_datetime([f"2023-{month:02d}-01" for month in (1, 2, 4, 5, 1, 4)]),
        pd.to_datetime([f"2023-{month:02d}-01" for month in (2, 3, 5, 6, 4, 7)]),
        closed="left",
    )
    totals = pd.Series([filled[end.left : end.right - pd.Timedelta(days=1)].sum() for end in ends], ends)
    found = rounded(filled.to_frame(), given.to_frame(), {"rain": totals}, {"rain": 1})["rain"]
    pd.testing.assert_series_equal(found[given.notna()], given.dropna())
    assert ((found * 10).round() / 10 == found).all()
    for end, total in totals.items():
        assert found[end.left : end.right - pd.Timedelta(days=1)].sum() == pytest.approx(total, abs=1e-9)
    assert (found - filled).abs().max() < 0.1
    assert (found >= 0.0).all()
    january = (filled * 10 % 1.0)[given.isna() & (days.month == 1)]
    up = (found > filled)[january.index]
    assert january[up].min() >= january[~up].max()


def test_columns_without_totals_or_decimals_are_not_rounded():
    full, _ = series()
    frame = full.assign(rain=full["rain"].mask(full.index.day < 9))
    totals = {"rain": weekly(full)[:8]}
    for decimals in ({}, {"flow": 1}):
        pd.testing.assert_frame_equal(rounded(full, frame, totals, decimals), full)
    pd.testing.assert_frame_equal(rounded(full, frame, None, {"rain": 1}), full)


def floods():
    """Two years of days of a river with a flood that is the largest month by far, in a gap."""
    rng, days = np.random.default_rng(3), pd.date_range("2022-01-01", "2023-12-31")
    flow = 3.0 + 2.0 * np.cos(np.arange(len(days)) / 58.1) + rng.gamma(0.5, 2.0, len(days))
    flow[days.slice_indexer("2023-06-08", "2023-06-20")] *= 5.0
    full = pd.DataFrame({"flow": flow}, index=days)
    return full, full.assign(flow=full["flow"].where(days.to_period("M") != "2023-06"))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("factor", [1.0, 10.0, 24.0, 0.1])
def test_totals_that_need_fills_far_beyond_readings_are_named(factor, mean):
    """A slip of the decimal point is; the true total of a flood is not."""
    full, frame = floods()
    total = full["flow"].groupby(full.index.to_period("M")).agg("mean" if mean else "sum")["2023-06":"2023-06"]
    table, axis = read_table(frame, None)
    sums = known_sums({"flow": KnownTotals(total * factor, mean=mean)}, table, axis)
    if factor <= 1.0:
        warn_of_far(sums, table)  # a warning would be an error
        return
    asked = rf"'flow' 2023-06 is {total.iloc[0] * factor:g}, which takes fills of"
    with pytest.warns(UserWarning, match=asked) as found:
        warn_of_far(sums, table)
    assert len(found) == 1
    readings = frame["flow"].dropna()
    largest, usual = f"{readings.max():.4g}", f"{readings.rolling(30).mean().max():.4g}"
    said = f"the largest value is {largest}, the largest mean of 30 readings in a row {usual}"
    assert said in str(found[0].message)


def test_a_fit_names_totals_that_are_far_off():
    full, frame = series()
    frame["rain"] = full["rain"].where((full.index < "2023-02-01") | (full.index >= "2023-02-08"))
    total = pd.Series([10.0 * full["rain"]["2023-02"].sum()], pd.PeriodIndex(["2023-02"], freq="M"))
    with pytest.warns(UserWarning, match="totals: 'rain' 2023-02 is .* check its decimal point"):
        CorrelatedGPImputer(**QUICK).fit(frame, totals={"rain": total})


def test_a_file_that_is_written_has_the_totals_in_its_digits(tmp_path):
    """Also beside columns without totals, and inputs; without totals nothing changes."""
    path = tmp_path / "in.csv"
    path.write_text(
        "day,rain,flow\n" + "".join(f"2024-03-{day:02d},,{day}\n" for day in range(1, 8)) + "2024-03-08,0.1,\n"
    )
    file = read_file(path)
    known = pd.Series([1.0], index=pd.PeriodIndex(["2024-03-01"], freq="7D"))
    filled = file.frame.fillna({"rain": 1.0 / 7.0, "flow": 8.0})
    assert adding_up(filled, file) is filled
    sums = []
    for each in (filled, adding_up(filled, file, {"rain": known})):
        file.write(each, tmp_path / "out.csv")
        sums.append(pd.read_csv(tmp_path / "out.csv")["rain"][:7].sum().round(9))
    assert sums == [0.7, 1.0]
