"""Intervals, draws, totals and forecasts of a filled table."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from cgp import CorrelatedGPImputer
from cgp.regression import MAP, MultiScale, Windows
from cgp.tables import Aggregate, YeoJohnson, read_table
from cgp.tables.frames.table import read_table as read_frame
from cgp.tables.totals import bins_of, counted_absent
from tests.cgp.tables.test_imputer import QUICK, frame

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def imputer():
    return CorrelatedGPImputer(kernel="matern32", **QUICK).fit(frame("Europe/Zurich"))


def test_intervals_are_about_the_mean(imputer):
    table = frame("Europe/Zurich")
    lower, upper = imputer.interval(0.8)
    middle, std = imputer.transform(table), imputer.std_
    np.testing.assert_allclose(upper - middle, norm.ppf(0.9) * std, atol=1e-6)
    np.testing.assert_allclose(0.5 * (lower + upper), middle, rtol=1e-6)
    pd.testing.assert_frame_equal(lower.where(table.notna()), table, check_dtype=False)
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1, got 95"):
        imputer.interval(95)


def test_draws_keep_what_was_observed_and_vary_as_the_readings(imputer):
    table = frame("Europe/Zurich")
    draws = imputer.draws(400, random_state=1)
    for draw in draws[:3]:
        pd.testing.assert_frame_equal(draw.where(table.notna()), table)
    gap = np.stack([draw["a"].to_numpy()[10:15] for draw in draws])
    error = imputer.std_["a"].to_numpy()[10:15]
    np.testing.assert_allclose(gap.std(axis=0), error, rtol=0.15)
    mean = imputer.transform(table)["a"].to_numpy()[10:15]
    assert (np.abs(gap.mean(axis=0) - mean) < 4.0 * error / 20.0).all()
    assert np.corrcoef(gap.T)[0, 1] > 0.2  # together, not each by itself
    pd.testing.assert_frame_equal(imputer.draws(1, random_state=1)[0], imputer.draws(1, random_state=1)[0])


def test_results_print_their_parts_beside_each_other(imputer):
    """A line for each row, and below the names of the columns those of the fields; they unpack as tuples do."""
    for result, parts in (
        (imputer.aggregate("D"), ["value", "std"]),
        (imputer.forecast(3), ["value", "std", "lower", "upper"]),
        (imputer.interval(0.8), ["lower", "upper"]),
    ):
        with pd.option_context("display.width", 160):
            names, fields, *rows = str(result).splitlines()
        columns = [*result[0].columns]
        assert names.split() == columns
        assert fields.split() == parts * len(columns)
        values = [float(each) for each in rows[0].split()[-len(parts) * len(columns) :]]
        for number, part in enumerate(result):
            np.testing.assert_allclose(values[number :: len(parts)], part.iloc[0], rtol=1e-4, atol=1e-5)
    series = frame()["a"]
    single = CorrelatedGPImputer(kernel="matern32", **QUICK).fit(series).forecast(3)
    assert str(single).splitlines()[0].split() == ["value", "std", "lower", "upper"] * single.value.ndim
    of_array = CorrelatedGPImputer(kernel="matern32", **QUICK).fit(frame()[["a"]].to_numpy()).forecast(3)
    assert str(of_array).startswith("Forecast(value=array(")


def test_printed_results_leave_no_column_out(imputer):
    with pd.option_context("display.width", 40):
        said = str(imputer.interval()).split()
    assert (said.count("lower"), said.count("upper"), said.count("...")) == (3, 3, 0)


@pytest.fixture(scope="module")
def draws(imputer):
    """Two thousand, beside each other in one table."""
    return pd.concat(imputer.draws(2000, random_state=0), axis=1)


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_daily_totals_have_the_error_of_draws(imputer, draws, how):
    total, std = imputer.aggregate("D", how)
    days = getattr(draws.resample("D"), how)().to_numpy().reshape(len(total), 2000, -1).swapaxes(0, 1)
    assert list(total.index) == list(getattr(frame("Europe/Zurich").resample("D"), how)().index)
    np.testing.assert_allclose(days.std(axis=0), std, rtol=0.1, atol=1e-6)
    assert (np.abs(days.mean(axis=0) - total) <= 4.0 * std / np.sqrt(2000.0) + 1e-5).all().all()
    exact = ~frame("Europe/Zurich").isna().resample("D").sum().astype(bool)
    assert (std.to_numpy() == 0.0)[exact.to_numpy()].all()


def test_totals_are_those_of_the_joint_covariance(imputer):
    """With weights, over bins that are not stretches of time, of readings and of the functions beneath."""
    table, generator = frame("Europe/Zurich"), np.random.default_rng(0)
    labels, weights = np.arange(40) % 3, np.round(2.0 * generator.normal(size=(40, 3))) / 2.0
    gaps, inputs = table.isna().to_numpy(), np.arange(40)[:, None] / 8.0
    values = imputer.transform(table).to_numpy()
    for noisy in (True, False):
        mean, covariance = imputer.regressor_.predict(inputs, return_cov=True, include_noise=noisy)
        total, std = imputer.aggregate(labels, weights=weights, include_noise=noisy)
        for row, label in enumerate(total.index):
            for column in range(3):
                w = np.where(labels == label, weights[:, column], 0.0)
                uncertain = w * gaps[:, column] if noisy else w
                variance = uncertain @ covariance[:, column, :, column] @ uncertain
                expected = w @ (values if noisy else mean)[:, column]
                assert std.iloc[row, column] == pytest.approx(np.sqrt(variance), rel=1e-5, abs=1e-9)
                assert total.iloc[row, column] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    mean, _ = imputer.aggregate(how="mean", weights=np.arange(40))
    assert mean["n"].item() == pytest.approx(np.average(np.arange(40), weights=np.arange(40)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "D", "how": "max"}, "how: expected 'sum' or 'mean', got 'max'"),
        ({"by": "no"}, "by: expected one of hour, day, .*, all, or a frequency of pandas such as '3h', got 'no'"),
        ({"by": "M"}, r"by: expected .* got 'M'; did you mean 'month'\?"),
        ({"by": "monthly"}, r"by: expected .* got 'monthly'; did you mean 'month'\?"),
        ({"by": [1, 2]}, r"by: expected a label for each of 40 rows, or a frequency, got shape \(2,\)"),
        ({"weights": [1, 2]}, r"weights: expected finite numbers of shape \(40,\) or \(40, 3\), got \(2,\)"),
        (
            {"by": np.arange(40) // 20, "how": "mean", "weights": np.arange(40) // 20},
            "weights: expected sums other than 0 for how='mean', got 0 in the bin '0'",
        ),
    ],
)
def test_totals_of_nothing_are_refused(imputer, arguments, message):
    with pytest.raises(ValueError, match=message):
        imputer.aggregate(**arguments)
    with pytest.raises(ValueError, match="rows of this table have no times"):
        CorrelatedGPImputer(**QUICK).fit(frame().reset_index(drop=True)).aggregate("D")


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
def test_periods_have_the_words_of_the_command_line(imputer):
    for word, frequency in (("day", "D"), ("months", "MS"), ("all", None), ("1d", "D"), ("12H", "12h")):
        pd.testing.assert_frame_equal(imputer.aggregate(word).value, imputer.aggregate(frequency).value)


@pytest.mark.parametrize("count", [-1, 0, 1.5])
def test_so_many_draws_are_refused(imputer, count):
    with pytest.raises(ValueError, match=f"count: expected an integer of at least 1, got {count}"):
        imputer.draws(count)


def test_forecasts_follow_the_table(imputer):
    mean, std, lower, upper = imputer.forecast(4, 0.8)
    index = frame("Europe/Zurich", count=44).index[40:]
    pd.testing.assert_index_equal(mean.index, index)
    expected = imputer.regressor_.predict(np.arange(40, 44)[:, None] / 8.0, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-9)
    np.testing.assert_allclose(std, expected[1], rtol=1e-9)
    for end, sign in ((lower, -1.0), (upper, 1.0)):
        pd.testing.assert_index_equal(end.index, index)
        np.testing.assert_allclose(end, expected[0] + sign * norm.ppf(0.9) * expected[1], rtol=1e-9)
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1, got 80"):
        imputer.forecast(4, 80)
    months = frame().set_axis(pd.date_range("2020-01-31", periods=40, freq="ME"))
    ahead = CorrelatedGPImputer(**QUICK).fit(months).forecast(2).value
    assert list(ahead.index) == [pd.Timestamp("2023-05-31"), pd.Timestamp("2023-06-30")]
    shuffled = frame("Europe/Zurich").iloc[np.random.default_rng(0).permutation(40)]
    again = CorrelatedGPImputer(**QUICK).fit(shuffled).forecast(4).value.index
    assert (again == index).all()
    assert str(again.tz) == "Europe/Zurich"
    array = CorrelatedGPImputer(**QUICK).fit(frame().to_numpy()).forecast(2).upper
    assert array.shape == (2, 3)
    with pytest.raises(ValueError, match="steps: expected a table of one input"):
        CorrelatedGPImputer(inputs=("a", "n"), **QUICK).fit(frame().fillna(0.0)).forecast(2)


def test_totals_before_they_are_complete_are_those_of_the_joint_covariance(imputer):
    """Of what is known of the last day, what is missing there, and the rows to come."""
    later = frame("Europe/Zurich", count=48)
    table = frame("Europe/Zurich")
    total, std = imputer.aggregate("D", steps=8)
    days = later.index.normalize()
    assert list(total.index) == list(days.unique())
    known = table.reindex(later.index).isna().to_numpy()
    mean, covariance = imputer.regressor_.predict(np.arange(48)[:, None] / 8.0, return_cov=True, include_noise=True)
    for number, day in enumerate(total.index):
        for column, name in enumerate(table):
            unknown = np.flatnonzero((days == day) & known[:, column])
            expected = table[name].astype(float)[table.index.normalize() == day].sum() + mean[unknown, column].sum()
            assert total.iloc[number, column] == pytest.approx(expected, rel=1e-8)
            variance = covariance[unknown, column][:, unknown, column].sum()
            assert std.iloc[number, column] == pytest.approx(np.sqrt(variance), rel=1e-6, abs=1e-9)
    weights = np.linspace(1.0, 2.0, 48)
    weighted = imputer.aggregate("D", "mean", weights=pd.Series(weights, later.index), steps=8)
    np.testing.assert_allclose(weighted.value, imputer.aggregate("D", "mean", weights=weights, steps=8).value)
    with pytest.raises(ValueError, match="steps, a number of rows: expected an integer of at least 1, got -1"):
        imputer.aggregate("D", steps=-1)
    array = frame().to_numpy()
    by_number = CorrelatedGPImputer(kernel="matern32", **QUICK).fit(array).aggregate(np.arange(48) // 8, steps=8)
    np.testing.assert_allclose(by_number.value[-1], total.iloc[-1], rtol=1e-6)
    named = frame().rename_axis("when").reset_index()
    options = QUICK | {"kernel": "matern32", "inputs": "when"}
    found = CorrelatedGPImputer(**options).fit(named).aggregate("D", steps=8).value
    np.testing.assert_allclose(found.iloc[-1], total.iloc[-1], rtol=1e-6)


def test_a_table_in_reverse_order_is_forecast_forwards():
    table = frame("Europe/Zurich")
    index = CorrelatedGPImputer(**QUICK).fit(table.iloc[::-1]).forecast(2).value.index
    assert list(index) == list(frame("Europe/Zurich", count=42).index[40:])


def test_residuals_leave_out_gross_errors(tmp_path):
    """Those of a long series have none, and all other values keep theirs, through updates and folders."""
    random = np.random.default_rng(0)
    values = np.sin(np.arange(420.0) / 9)[:, None] + 0.1 * random.standard_normal((420, 2))
    values[60:70, 1] = np.nan
    values[5, 0] = 1e6
    imputer = CorrelatedGPImputer(structure=MultiScale(num_scales=1, periods=()), random_state=0)
    with pytest.warns(UserWarning, match="left out as errors of measurement"):
        imputer.fit(values[:400])
    imputer.update(values[400:])
    imputer.save(tmp_path)
    mean, sd = imputer.regressor_.leave_one_out()
    expected = (values - mean) / sd
    assert np.isnan(expected[5, 0])
    assert np.isfinite(expected).sum() == values.size - 11
    for each in (imputer, CorrelatedGPImputer.load(tmp_path)):
        np.testing.assert_allclose(each.residuals(), expected, rtol=1e-9)


def test_weights_and_bins_of_pandas_go_by_label(imputer):
    """Not by position: rows and columns in another order give the same totals; other labels are refused."""
    table, generator = frame("Europe/Zurich"), np.random.default_rng(0)
    weights = pd.DataFrame(generator.uniform(size=(40, 3)), index=table.index, columns=list(table))
    by, order = pd.Series(np.arange(40) % 3, index=table.index), generator.permutation(40)
    expected = imputer.aggregate(by.to_numpy(), weights=weights.to_numpy())
    mixed = imputer.aggregate(by.iloc[order], weights=weights.iloc[order][["n", "b", "a"]])
    for part, other in zip(expected, mixed, strict=True):
        pd.testing.assert_frame_equal(part, other)
    rows = imputer.aggregate(weights=weights["a"].iloc[order]).value
    np.testing.assert_allclose(rows, imputer.aggregate(weights=weights["a"].to_numpy()).value)
    for wrong in ({"by": by.reset_index(drop=True)}, {"weights": weights.iloc[1:]}, {"weights": weights[["a", "b"]]}):
        with pytest.raises(ValueError, match="expected the (index|columns) of the table"):
            imputer.aggregate(**wrong)


def test_weights_in_frames_for_an_array():
    array = frame().to_numpy()
    imputer = CorrelatedGPImputer(**QUICK).fit(array)
    weights = np.random.default_rng(0).uniform(size=array.shape)
    mixed = pd.DataFrame(weights).iloc[::-1, [2, 0, 1]]
    np.testing.assert_allclose(imputer.aggregate(weights=mixed).value, imputer.aggregate(weights=weights).value)


def test_sums_without_some_rows_say_so():
    """A row that is absent is no gap: nothing is filled in, and a part is no total; weights sum what is there."""
    days = pd.date_range("2024-06-01", periods=61, freq="D")
    table = pd.DataFrame({"a": np.sin(np.arange(61) / 9.0)}, days)
    table.iloc[50:52] = np.nan
    absent = CorrelatedGPImputer(**QUICK).fit(table.drop(days[10:13]))
    with pytest.warns(
        UserWarning, match=r"3 rows are absent, in or beside the months 2024-06-01, and sums .* are NaN, .*: .*asfreq"
    ):
        absent.aggregate("MS")
    with pytest.warns(UserWarning, match="3 rows"):
        absent.aggregate("MS", "mean")
    found = absent.aggregate("MS", weights=np.ones(58))
    assert (found.std["a"] > 0).tolist() == [False, True]
    assert found.value["a"].notna().all()
    labels = table.drop(days[10:13]).index.day_of_week
    with pytest.warns(UserWarning, match="3 rows are absent between rows of different bins, such as 0, 4: whose they"):
        assert absent.aggregate(labels).value["a"].notna().all()
    CorrelatedGPImputer(**QUICK).fit(table).aggregate("MS")
    CorrelatedGPImputer(**QUICK).fit(table.set_index(days + pd.to_timedelta(np.arange(61) % 7, "h"))).aggregate("MS")


def test_periods_seen_in_part_lack_the_rows_beyond_the_ends():
    """Words and frequencies alike; those of labels, of weights, of all rows, and of whole months do not."""
    days = pd.date_range("2024-02-20", "2024-05-10", name="day")
    table = pd.DataFrame({"rain": np.sin(np.arange(len(days)) / 3.0)}, days)
    table.iloc[5] = np.nan
    imputer = CorrelatedGPImputer(kernel="matern32", **QUICK).fit(table)
    for by in ("month", "MS", "ME"):
        with pytest.warns(UserWarning, match="40 rows are absent, .*: they are before the first row"):
            found = imputer.aggregate(by, level=0.9)
        assert found.absent.tolist() == [19, 0, 0, 21]
        for part in (found.value, found.std, found.lower, found.upper):
            assert part["rain"].isna().tolist() == [True, False, False, True]
    with pytest.warns(UserWarning, match="19 rows are absent, in or beside the months 2024-02-01, and .*: they"):
        ahead = imputer.aggregate("MS", "mean", steps="21D")
    assert ahead.absent.tolist() == [19, 0, 0, 0]
    assert ahead.value["rain"].iloc[0] == pytest.approx(imputer.transform(table)["rain"]["2024-02"].mean())
    for by in (None, "all", "day", "hour", days.month):
        assert not imputer.aggregate(by).absent.any()
    assert imputer.aggregate("MS", weights=np.ones(len(days))).std["rain"].notna().all()


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize(
    ("times", "by", "absent"),
    [
        (pd.date_range("2024-06-03 02:10", "2024-06-05 21:10", freq="h"), "day", [2, 0, 2]),  # at ten past
        (pd.date_range("2024-06-03 00:10", "2024-06-05 23:10", freq="h"), "day", [0, 0, 0]),
        (pd.date_range("2024-06-05", "2024-06-29"), "week", [2, 0, 0, 1]),  # Wednesday to Saturday
        (pd.date_range("2024-06-01", "2024-06-30", freq="W-SAT"), "month", [0]),  # rows further apart than days
        (pd.date_range("2024-06-01", "2024-06-29", freq="W-SAT"), "day", [0] * 5),
        (pd.date_range("2023-03-01", "2024-12-01", freq="MS"), "year", [2, 0]),  # months are not equally long
        (pd.date_range("2024-03-30", "2024-03-31 20:00", freq="h", tz="Europe/Zurich"), "day", [0, 3]),  # of 23 hours
        (pd.date_range("2024-06-03 00:00", "2024-06-03 19:00", freq="h"), "7h", [0, 0, 1]),
    ],
)
def test_rows_beyond_the_ends_are_those_of_the_grid(times, by, absent):
    """Of clocks with an offset, of steps longer than a period, of weeks that are dated by their Sunday."""
    values = pd.DataFrame({"a": np.sin(np.arange(len(times)) / 3.0)}, times)
    table, axis = read_frame(values, None)
    assert (
        counted_absent(table, bins_of(by, table, axis.times(values)), by, "sum", axis.times(values)).tolist() == absent
    )


@pytest.mark.filterwarnings("ignore:aggregate.*of a part of")
def test_sums_and_the_reader_agree_on_rows_that_are_absent(tmp_path):
    """A clock that is some minutes late loses none; at irregular distances sums say which have fewer rows."""
    apart = 30.0 + np.random.default_rng(0).integers(-1, 2, 240)
    apart[[60, 61, 150]] += 30.0
    times = pd.Timestamp("2024-06-01") + pd.to_timedelta(np.cumsum(apart) - apart[0], unit="min")
    table = pd.DataFrame({"rain": np.sin(np.arange(240) / 9.0)}, times)
    table[:237].to_csv(tmp_path / "logger.csv", index_label="time")
    read = read_table(tmp_path / "logger.csv")
    assert "3 rows are not there" in read.understood.lacking
    imputer = CorrelatedGPImputer(kernel="matern32", **QUICK)
    with pytest.warns(UserWarning, match="3 rows are absent, in"):
        found = imputer.fit(read.frame).aggregate("day")
    assert found.absent.tolist() == [0, 2, 0, 1, 0]
    assert found.std["rain"].isna().tolist() == [False, True, False, True, False]
    apart = np.random.default_rng(0).uniform(1.0, 5.0, 240) * np.repeat([1.0, 2.0], 120)
    irregular = table.set_index(times[0].floor("h") + pd.to_timedelta(np.cumsum(apart), unit="min"))
    irregular.to_csv(tmp_path / "logger.csv", index_label="time")
    assert not read_table(tmp_path / "logger.csv").understood.lacking
    said = "rows are at irregular distances, mostly 11 in a bin, and sums are of those that are there, fewer in "
    with pytest.warns(UserWarning, match=rf"{said}2024-06-01 08:00:00 \(8\), 2024-06-01 11"):
        found = imputer.fit(irregular).aggregate("hour")
    assert not found.absent.any()
    imputer.aggregate("hour", "mean")


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize("how", ["sum", "mean"])
def test_bins_that_lack_rows_have_no_sum_and_no_error(how):
    """Of calendars exactly those; of labels those on both sides of what is absent."""
    days = pd.date_range("2024-06-01", periods=92, freq="D", tz="Europe/Zurich")
    table = pd.DataFrame({"a": np.sin(np.arange(92) / 9.0), "b": 1.0 + np.cos(np.arange(92) / 9.0)}, days)
    table.iloc[70:72] = np.nan
    imputer = CorrelatedGPImputer(**QUICK).fit(table.drop(days[[10, 11, 29, 30, 31]]))
    found = imputer.aggregate("month", how, level=0.9)
    assert found.absent.tolist() == [3, 2, 0]
    for part in (found.std, found.lower, found.upper):
        assert part.isna().to_numpy().tolist() == [[True] * 2] * 2 + [[False] * 2]
    assert found.value.isna().to_numpy().tolist() == [[how == "sum"] * 2] * 2 + [[False] * 2]
    by_label = imputer.aggregate(table.drop(days[[10, 11, 29, 30, 31]]).index.month.to_numpy(), how)
    assert by_label.absent.tolist() == [2, 0, 0]  # the three between June and July have no label
    assert imputer.aggregate(None, how).std.isna().all().all()


def test_intervals_of_sums_are_those_of_the_normal_distribution(imputer):
    """Where no column is transformed; what is known has none."""
    found = imputer.aggregate("D", "mean", level=0.9)
    for end, sign in ((found.lower, -1.0), (found.upper, 1.0)):
        np.testing.assert_allclose(end, found.value + sign * norm.ppf(0.95) * found.std, rtol=1e-12)
    assert (found.lower == found.value).to_numpy()[(found.std == 0.0).to_numpy()].all()
    assert imputer.aggregate("D").lower is None
    value, std = found
    assert value is found.value
    assert std is found.std
    assert [*found["a"]] == ["value", "std", "lower", "upper"]
    assert [*imputer.aggregate("D")["a"]] == ["value", "std"]
    assert "lower" in str(found).splitlines()[1]
    with pytest.raises(KeyError, match=r"expected one of the columns \['a', 'b', 'n'\], got 'aa'.*did you mean 'a'"):
        imputer.aggregate("D")["aa"]
    number = "number between 0 and 1, got "
    for wrong, said in (
        ({"level": 95}, f"{number}95; did you mean 0.95"),
        ({"level": "95"}, f"{number}'95'"),
        ({"include_noise": False}, "None where"),
    ):
        with pytest.raises(ValueError, match=f"level: expected (a )?{said}"):
            imputer.aggregate("D", **{"level": 0.9} | wrong)


def test_a_column_of_an_interval_is_found_by_its_name(imputer):
    lower, upper = imputer.interval(0.8)
    pd.testing.assert_frame_equal(imputer.interval(0.8)["b"], pd.DataFrame({"lower": lower["b"], "upper": upper["b"]}))
    assert [*imputer.forecast(2)["b"]] == ["value", "std", "lower", "upper"]
    with pytest.raises(KeyError, match="expected a field, such as .lower, of what has no columns, got 'b'"):
        CorrelatedGPImputer(**QUICK).fit(frame().to_numpy()).interval(0.8)["b"]


def test_sums_become_one_frame(imputer):
    """With the heads of the command line."""
    for found, ends in ((imputer.aggregate("all"), ("", " std")), (imputer.aggregate(level=0.9), None)):
        frame = found.to_frame()
        ends = ends or ("", " std", " lower", " upper")
        assert [*frame] == [f"{name}{end}" for name in found.value for end in ends]
        for name in found.value:
            np.testing.assert_array_equal(frame[f"{name} std"], found.std[name])
    lacking = Aggregate(found.value, found.std, absent=pd.Series([2], found.value.index))
    assert (lacking.to_frame()["absent rows"].tolist(), lacking["b"]["absent rows"].tolist()) == ([2], [2])
    assert next(iter(lacking.to_frame())) == "absent rows"
    with pytest.raises(ValueError, match="expected answers for a table of pandas, got ndarray"):
        Aggregate(np.ones((1, 1)), np.ones((1, 1))).to_frame()


def test_a_forecast_becomes_one_frame(imputer):
    """With the heads of sums."""
    found = imputer.forecast(2)
    frame = found.to_frame()
    assert [*frame] == [f"{name}{end}" for name in found.value for end in ("", " std", " lower", " upper")]
    assert frame.index.equals(found.value.index)
    for part, end in zip(found, ("", " std", " lower", " upper"), strict=True):
        np.testing.assert_array_equal(frame[f"b{end}"], part["b"])
    called = found.value.rename(columns={"b": "a std"})
    with pytest.raises(ValueError, match="expected columns that are not called as .*, got two parts 'a std': rename"):
        Aggregate(called, called).to_frame()


def test_columns_of_one_name_are_refused():
    frame = pd.DataFrame(np.ones((9, 3)), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"X: expected columns of different names, got \['a'\] more than once"):
        CorrelatedGPImputer().fit(frame)


def test_what_was_learned_is_told_in_units_of_the_table():
    """Of times, of row numbers, of places; of transforms, cycles, columns that are behind; criteria come last."""
    x, generator = np.arange(150.0), np.random.default_rng(0)
    values = np.column_stack([np.exp(np.sin(x / 9)), np.sin(x / 9) + 0.1 * generator.standard_normal(150)])
    values[20:30, 0] = values[40:50, 1] = np.nan
    table = pd.DataFrame(values, pd.date_range("2024-01-01", periods=150, freq="h"), ["a", "b"])
    table.attrs["units"] = {"b": "ppb"}
    imputer = CorrelatedGPImputer(transforms={"a": "log", "b": None}, **QUICK).fit(table)
    first, second, *_ = imputer.summary().splitlines()
    assert re.match(r"a: noise of \S+ in log\(x[^,;]*\); alike over [\d.]+ h; most like b \(correlation ", first)
    noise = np.sqrt(imputer.regressor_.noise_[1])
    assert second.startswith(
        f"b (ppb): noise of {noise:.3g} ppb; alike over {24 * imputer.regressor_.lengthscales_[0, 1, 0]:.2g} h"
    )
    either = CorrelatedGPImputer(transforms={"a": YeoJohnson(power=0.5)}, **QUICK).fit(table).summary()
    assert re.match(r"a: noise of \S+ in YeoJohnson\([^()]*centre=[^()]*\); alike", either)
    last = CorrelatedGPImputer(inference=MAP(max_steps=2)).fit(values).summary().splitlines()[-1]
    assert re.match(r"structures compared: coregionalised -?[\d.]+, .* \(nats, minus the log-likelihood", last)
    scales = MultiScale(num_scales=1, periods=["1D"])
    cycles = CorrelatedGPImputer(structure=scales, inference=Windows(num_steps=5), transforms=None, random_state=0)
    told = cycles.fit(table).summary().splitlines()
    assert re.search(
        r"alike over [\d.]+ \w+ \(\d+% of the variance\); cycles of 24 h, drifting over [\d.]+ d \(", told[1]
    )
    assert not re.search(r"[( ]0% of", "".join(told))
    rows = CorrelatedGPImputer(**QUICK | {"structure": "shifted", "transforms": None}).fit(values)
    assert re.search(
        r"column 1: noise of \S+; alike over [\d.]+ rows; .*; [\d.]+ rows (before|after) column 0", rows.summary()
    )
    places = pd.DataFrame(generator.random((40, 3)), columns=["lat", "lon", "z"])
    places.loc[3, "z"] = np.nan
    told = CorrelatedGPImputer(inputs=("lat", "lon"), **QUICK).fit(places).summary()
    assert re.match(r"z: noise of \S+; alike over [\d.]+ of lat by [\d.]+ of lon\n", told)
