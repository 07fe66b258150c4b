import pickle
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cgp import CorrelatedGPImputer, assess_gaps
from cgp.regression import MAP, CorrelatedGPRegressor, MultiScale, Windows
from cgp.tables.frames.codes import negative_fills
from cgp.tables.frames.periods import days_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"structure": "coregionalised", "inference": MAP(max_steps=10), "random_state": 0}


@parametrize_with_checks([CorrelatedGPImputer(inference=MAP(max_steps=3), structure="coregionalised")])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "table: errors of")  # of irises, by the number of their row
        check(estimator)


def frame(zone=None, count=40):
    """Two sensors, eight readings a day, each with a gap, and a whole-numbered one without."""
    times = pd.date_range("2024-03-29", periods=count, freq="3h", tz=zone)
    t = np.arange(count) / 8.0
    table = pd.DataFrame({"a": np.sin(t), "b": 2.0 + np.cos(t), "n": np.arange(count)}, index=times)
    table.iloc[10:15, 0] = table.iloc[20:24, 1] = np.nan
    return table.astype({"b": np.float32})


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_a_frame_comes_back_as_it_was(zone):
    """In any order of rows, with its zone and dtypes; what was observed stays to the bit."""
    table = frame(zone)
    ordered = CorrelatedGPImputer(**QUICK).fit_transform(table)
    pd.testing.assert_index_equal(ordered.index, table.index)
    assert list(ordered.dtypes) == list(table.dtypes)
    assert not ordered.isna().any().any()
    pd.testing.assert_frame_equal(ordered.where(table.notna()), table)
    order = np.random.default_rng(0).permutation(len(table))
    mixed = CorrelatedGPImputer(**QUICK).fit_transform(table.iloc[order])
    pd.testing.assert_frame_equal(mixed.iloc[np.argsort(order)], ordered, rtol=1e-4, check_freq=False)


def test_times_are_days_of_the_regressor():
    """Whatever the zone: the shift of clocks in spring is no shift of time."""
    table = frame("Europe/Zurich")
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    days = np.arange(len(table))[:, None] / 8.0
    regressor = CorrelatedGPRegressor(**QUICK).fit(days, table)
    mean, sd = regressor.predict(days, return_std=True)
    gaps = table.isna().to_numpy()
    np.testing.assert_allclose(imputer.transform(table).to_numpy()[gaps], mean[gaps], rtol=1e-6)
    np.testing.assert_allclose(imputer.std_.to_numpy() ** 2, np.where(gaps, sd, 0.0) ** 2, atol=1e-12)  # a difference
    assert imputer.regressor_.summary().count("b: noise") == 1


@pytest.mark.filterwarnings("ignore:table. errors of:UserWarning")  # the fit is cut off
@pytest.mark.filterwarnings("ignore:table. 1 row repeats:UserWarning")
@pytest.mark.parametrize(
    "index",
    [
        pd.Index(np.arange(40) * 0.5 - 3.0),
        pd.RangeIndex(40),
        pd.timedelta_range(0, periods=40, freq="h"),
        pd.period_range("2020-01", periods=40, freq="M"),
        pd.Index([*range(39), 38]),
    ],
    ids=["numbers", "rows", "durations", "periods", "repeated"],
)
def test_other_indices(index):
    table = frame().set_axis(index)
    filled = CorrelatedGPImputer(**QUICK).fit_transform(table)
    pd.testing.assert_index_equal(filled.index, index)
    assert not filled.isna().any().any()


def test_places_and_times_are_inputs_by_name():
    table = frame().reset_index(names="time")
    by_index = CorrelatedGPImputer(**QUICK).fit_transform(frame())
    filled = CorrelatedGPImputer(inputs="time", **QUICK).fit_transform(table)
    pd.testing.assert_frame_equal(filled.set_index("time"), by_index, check_names=False, check_freq=False)
    places = table.assign(x=np.arange(40) % 7, y=np.arange(40) // 7).drop(columns="time")
    imputer = CorrelatedGPImputer(inputs=("x", "y"), **QUICK).fit(places)
    assert imputer.regressor_.n_features_in_ == 2
    assert list(imputer.transform(places)) == list(places)
    assert list(imputer.std_) == ["a", "b", "n"]
    array = CorrelatedGPImputer(inputs=(3, 4), **QUICK).fit_transform(places.to_numpy())
    np.testing.assert_allclose(array, imputer.transform(places), rtol=1e-6)


def test_a_series_and_an_array():
    column = frame()["a"]
    filled = CorrelatedGPImputer(**QUICK).fit_transform(column)
    assert isinstance(filled, pd.Series)
    assert (filled.name, filled.isna().sum()) == ("a", 0)
    pd.testing.assert_index_equal(filled.index, column.index)
    array = CorrelatedGPImputer(**QUICK).fit_transform(column.to_numpy()[:, None])
    np.testing.assert_allclose(array[:, 0], filled, rtol=1e-6)
    masked = np.ma.masked_invalid(column.to_numpy()[:, None])
    np.testing.assert_allclose(CorrelatedGPImputer(**QUICK).fit_transform(masked), array)


def test_it_says_that_it_takes_gaps():
    assert CorrelatedGPImputer().__sklearn_tags__().input_tags.allow_nan


def test_codes_and_text_that_is_numbers():
    table = frame()
    filled = CorrelatedGPImputer(**QUICK).fit_transform(table)
    coded = CorrelatedGPImputer(missing_values=(-200, -999), **QUICK)
    np.testing.assert_allclose(coded.fit_transform(table.fillna({"a": -200, "b": -999})), filled)
    numbers = CorrelatedGPImputer(missing_values=3, **QUICK).fit_transform(table.assign(n=np.arange(40)))
    assert str(numbers["n"].dtype) == "float64"
    text = table.astype(object).where(table.notna(), None)
    result = CorrelatedGPImputer(**QUICK).fit_transform(text)
    np.testing.assert_allclose(result[["a", "b"]].astype(float), filled[["a", "b"]])
    whole = table.assign(n=table["n"].astype("Int64").mask(table["n"].between(3, 5)))
    assert str(CorrelatedGPImputer(**QUICK).fit_transform(whole)["n"].dtype) == "Float64"


@pytest.mark.filterwarnings("ignore:table. errors of:UserWarning")  # the fit is cut off
@pytest.mark.filterwarnings("ignore:table. 1 row repeats:UserWarning")
def test_what_looks_like_a_code_is_warned_of():
    """By name, in every column that has it at its end; zeros of rain, two levels and peaks are none."""
    table, generator = frame(), np.random.default_rng(0)
    rain = generator.gamma(0.5, 1.0, 40) * (generator.uniform(size=40) < 0.5)
    wide = np.where(np.arange(40) % 8, np.linspace(500, 1500, 40), -200.0)
    table = table.assign(rain=rain, on=np.arange(40) % 2, peak=np.where(np.arange(40) == 7, 1e6, table["n"]), wide=wide)
    with pytest.warns(UserWarning, match=r"-200 repeats .* in \['a', 'wide'\]; .* missing_values=-200"):
        CorrelatedGPImputer(**QUICK).fit(table.fillna({"a": -200}))
    with warnings.catch_warnings(record=True) as record:
        CorrelatedGPImputer(missing_values=-200, **QUICK).fit(table)
    assert {each.category for each in record} <= {ConvergenceWarning}


def test_columns_of_one_value_are_warned_of():
    """By name, where something is missing in them: nobody knows how far they vary."""
    table = frame().assign(full=3.0, lone=np.nan)
    table.iloc[7, 4] = 5000.0
    with pytest.warns(UserWarning, match=r"only one value in \['lone'\]: .* leave it out"):
        filled = CorrelatedGPImputer(**QUICK).fit_transform(table)
    assert (filled["lone"] == 5000.0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.assign(kind="x"), "column 'kind': expected numbers, got 'x'"),
        (lambda table: table.assign(kind=pd.Categorical(["x"] * 40)), "column 'kind': expected numbers, got 'x'"),
        (lambda table: table.assign(when=table.index), "column 'when': expected numbers, got times"),
        (lambda table: table.assign(dead=np.nan), r"got none in \['dead'\]"),
        (lambda table: table.assign(a=np.inf), r"got infinity in \['a'\]"),
        (lambda table: table.set_axis(["a", "a", "n"], axis=1), r"got \['a'\] more than once"),
        (lambda table: table.set_axis(list("ab") * 20), "index: expected times or numbers, got 'a'"),
        (lambda table: table.set_axis([pd.NaT, *table.index[1:]]), "index: expected a value in every row"),
        (lambda table: table.set_index([table.index, "n"]), "index: expected one level, got 2"),
    ],
)
def test_what_cannot_be_used_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPImputer(**QUICK).fit(change(frame()))


def test_other_rows_are_filled_from_all_that_is_known():
    """As by a regressor that saw them all with the same parameters; what was fitted to counts once."""
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK).fit(table.iloc[:30])
    state = pickle.dumps(imputer)
    later = table.iloc[25:].copy()
    later.iloc[8, 0] = np.nan
    filled = imputer.transform(later)
    assert pickle.dumps(imputer) == state
    known = imputer.regressor_.conditioned(np.arange(30, 40)[:, None] / 8.0, later.iloc[5:])
    np.testing.assert_allclose(filled.iloc[8, 0], known.predict(np.array([[33 / 8.0]]))[0, 0], rtol=1e-9)
    pd.testing.assert_frame_equal(filled.where(later.notna()), later, check_freq=False)
    with pytest.raises(ValueError, match="index: expected times without a time zone as in fit"):
        imputer.transform(later.tz_localize("UTC"))
    with pytest.raises(ValueError, match="index: expected times without a time zone as in fit, got numbers"):
        imputer.transform(later.reset_index(drop=True))


def test_it_is_an_estimator_of_scikit_learn():
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    assert list(imputer.get_feature_names_out()) == list(table)
    again = pickle.loads(pickle.dumps(imputer))
    pd.testing.assert_frame_equal(again.transform(table), imputer.transform(table))
    scaled = make_pipeline(clone(imputer), StandardScaler()).set_output(transform="pandas").fit_transform(table)
    pd.testing.assert_index_equal(scaled.index, table.index)
    assert list(scaled) == list(table)
    framed = clone(imputer).set_output(transform="pandas").fit_transform(table.to_numpy())
    assert isinstance(framed, pd.DataFrame)


def seasons(count=900, year=True):
    """Days of two years and a half: weather of some days, with or without seasons, and a gap of seventy days."""
    generator, days = np.random.default_rng(0), np.arange(count)
    weather = np.zeros(count)
    for day in range(1, count):
        weather[day] = 0.8 * weather[day - 1] + 2.0 * generator.normal()
    level = -9.0 * np.cos(2 * np.pi * days / 365.25) if year else 0.0
    truth = pd.Series(10.0 + level + weather, index=pd.date_range("2021-01-01", periods=count), name="a")
    return truth, truth.where((days < 500) | (days >= 570))


@pytest.fixture
def few_windows(monkeypatch):
    """A third of the steps by which many time scales are learned: the errors below are the same to 2 %."""
    monkeypatch.setattr(Windows, "num_windows", lambda *_: 80)


def test_seasons_are_offered_and_taken_where_they_are(few_windows):
    """A gap of a summer is a summer, where a lengthscale of days returns to the mean."""
    truth, table = (each.iloc[::3] for each in seasons())
    gap = table.isna()
    options = {"random_state": 0, "inference": MAP(max_steps=30)}
    imputer = CorrelatedGPImputer(**options)
    error = (imputer.fit_transform(table) - truth)[gap]
    alone = CorrelatedGPImputer(structure="independent", **options).fit_transform(table)
    assert imputer.regressor_.periods_ == [pytest.approx(365.2425)]
    assert (error**2).mean() < 0.5 * ((alone - truth)[gap] ** 2).mean()


def test_seasons_that_are_none_are_not_taken(few_windows):
    table = seasons(year=False)[1].iloc[::3]
    assert (
        CorrelatedGPImputer(random_state=0, inference=MAP(max_steps=30)).fit(table).regressor_.structure_
        == "independent"
    )


def test_a_failed_fit_leaves_the_imputer_as_it_was():
    """A table of later times without a value in one column: neither the axis nor the columns are taken from it."""
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    imputer.conformal_ = "of this table"
    before = imputer.transform(table.iloc[5:20])
    later = table.set_axis(table.index + pd.Timedelta("365D")).assign(a=np.nan)
    with pytest.raises(ValueError, match="expected at least one value in each column"):
        imputer.fit(later)
    pd.testing.assert_frame_equal(imputer.transform(table.iloc[5:20]), before)
    assert imputer.conformal_ == "of this table"
    imputer.fit(table.iloc[:30])
    assert not hasattr(imputer, "conformal_")


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="X: expected at least one row, got none"):
        CorrelatedGPImputer(**QUICK).fit(frame()).transform(frame().iloc[:0])


def rows_of_factors(count=120):
    """Rows in no order, of four columns that two factors move, and a fifth of the values missing."""
    generator = np.random.default_rng(1)
    loadings = generator.normal(size=(4, 2))
    values = generator.normal(size=(count, 2)) @ loadings.T + 0.3 * generator.normal(size=(count, 4))
    return values, np.where(generator.uniform(size=values.shape) < 0.2, np.nan, values)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_other_rows_without_times_are_filled_from_their_own_values(kind):
    """In a pipeline a row of the test set is no row of fit of the same number: as good as regressions on the others."""
    values, table = rows_of_factors()
    train, test, truth = kind(table[:80]), kind(table[80:]), values[80:]
    gaps = np.isnan(np.asarray(test))
    imputer = CorrelatedGPImputer(**QUICK | {"inference": MAP(max_steps=30)}).fit(train)
    filled = np.asarray(imputer.transform(test))
    ridge = IterativeImputer(random_state=0).fit(np.asarray(train)).transform(np.asarray(test))
    errors = [np.sqrt(np.mean((each - truth)[gaps] ** 2)) for each in (filled, ridge)]
    assert errors[0] < 1.05 * errors[1]
    one_by_one = [np.asarray(imputer.transform(test[row : row + 1])) for row in range(0, 40, 7)]
    if kind is np.asarray:  # rows of a frame's slice keep their label
        np.testing.assert_allclose(np.concatenate(one_by_one), filled[::7])
    np.testing.assert_array_equal(
        imputer.transform(train), CorrelatedGPImputer(**imputer.get_params()).fit_transform(train)
    )


def test_cross_validation_and_a_search_of_structures():
    """Fills of the folds' test rows carry what a regression needs; both run through scikit-learn's own tools."""
    values, table = rows_of_factors()
    target = values @ np.array([1.0, -1.0, 0.5, 2.0])
    ridge = cross_val_score(make_pipeline(IterativeImputer(), LinearRegression()), table, target, cv=2).mean()
    grid = {"correlatedgpimputer__structure": ["independent", "coregionalised"]}
    imputer = CorrelatedGPImputer(**QUICK | {"inference": MAP(num_starts=1, max_steps=20)})
    search = GridSearchCV(make_pipeline(imputer, LinearRegression()), grid, cv=2).fit(table, target)
    assert search.best_params_ == {"correlatedgpimputer__structure": "coregionalised"}
    assert search.best_score_ > ridge - 0.02


def test_rows_of_the_fit_are_known_whatever_they_come_as():
    """An array of a frame's own values is the frame; times are not taken for the numbers of rows."""
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    with pytest.warns(UserWarning, match="feature names"):
        filled = imputer.transform(table.to_numpy())
    np.testing.assert_allclose(filled, imputer.transform(table).to_numpy())


def test_an_update_that_counts_from_nought_again_is_refused():
    table = frame().reset_index(drop=True)
    imputer = CorrelatedGPImputer(**QUICK).fit(table.iloc[:30])
    assert np.isfinite(imputer.update(table.iloc[30:]).forecast(1).value.to_numpy()).all()
    with pytest.raises(ValueError, match="counts from 0 again"):
        imputer.update(table.iloc[30:].reset_index(drop=True))


def long_series():
    """A series of many time scales with a code in the fit, and later rows that have it, too."""
    random = np.random.default_rng(0)
    values = 10.0 + np.sin(np.arange(420.0) / 9)[:, None] + 0.1 * random.standard_normal((420, 2))
    values[60:70, 1] = np.nan
    table = pd.DataFrame(values, columns=["a", "b"], index=pd.date_range("2024-01-01", periods=420, freq="h"))
    table.iloc[5, 0] = table.iloc[410, 0] = table.iloc[412:414, 1] = -9999.0
    return table


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
def test_codes_after_a_fit_are_left_out_as_fit_leaves_them_out(few_windows, tmp_path):
    """By update, transform and a regressor of one's own; totals do not count them."""
    table = long_series()
    clean = table.where(table > -9999)
    imputer = CorrelatedGPImputer(structure=MultiScale(num_scales=1, periods=()), random_state=0)
    with pytest.warns(UserWarning, match="left out as errors of measurement"):
        imputer.fit(table.iloc[:400])
    later = table.iloc[400:].copy()
    later.iloc[11, 0] = np.nan
    with pytest.warns(UserWarning, match="left out as errors of measurement; .*: -9999"):
        filled = imputer.transform(later)
    assert 8.0 < filled.iloc[11, 0] < 12.0
    assert filled.iloc[10, 0] == -9999.0  # what was there stays
    with pytest.warns(UserWarning, match="left out as errors of measurement"):
        imputer.update(later)
    known = imputer.forecast(3).value
    assert ((known > 8.0) & (known < 12.0)).all(axis=None)
    imputer.save(tmp_path)
    for each in (imputer, CorrelatedGPImputer.load(tmp_path)):
        total, std = each.aggregate("D", "mean")
        assert ((total > 8.0) & (total < 12.0)).all(axis=None)
        assert std.iloc[0, 0] > 0.0
        assert np.isnan(each.residuals().to_numpy()[[5, 410, 412, 413], [0, 0, 1, 1]]).all()
    days = np.arange(400.0, 420.0)[:, None] / 24.0
    with pytest.warns(UserWarning, match="left out"):
        regressor = imputer.regressor_.conditioned(days, clean.iloc[400:].fillna(-9999.0))
    assert regressor.gross_errors_[-20:].sum() == clean.iloc[400:].isna().sum().sum()


def test_new_values_that_look_like_codes_are_warned_of():
    """Where fit takes what it gets, so do update and transform, with a word."""
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK).fit(table.iloc[:30])
    with pytest.warns(UserWarning, match=r"-9999 in 'b' is farther from all values before .* missing_values=-9999"):
        imputer.update(table.iloc[30:35].assign(b=np.float32(-9999.0)))


def test_a_series_that_is_quiet_and_then_loud_is_said():
    random = np.random.default_rng(0)
    values = np.sin(np.arange(120) / 9.0) + np.where(np.arange(120) < 60, 0.05, 1.0) * random.standard_normal(120)
    values[30:40] = np.nan
    with pytest.warns(UserWarning, match=r"errors of 'column 0' are \d+\.\d times as large from \d+"):
        CorrelatedGPImputer(**QUICK | {"structure": "independent"}).fit(values[:, None])


def test_readings_that_come_twice_are_said():
    """By a fit and an update; a transform counts them once."""
    table = frame()
    with pytest.warns(UserWarning, match="table: 40 rows repeat a time, with the same values"):
        CorrelatedGPImputer(**QUICK).fit(pd.concat([table, table]))
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        imputer.transform(table)
    with pytest.warns(UserWarning, match="rows: 5 rows repeat a time, with the same values"):
        imputer.update(table.iloc[-5:])


@pytest.mark.parametrize("wrapped", [lambda imputer: imputer, make_pipeline], ids=["imputer", "pipeline"])
def test_warnings_name_the_line_that_called(wrapped):
    """Not one of scikit-learn, whose methods are around those of an imputer."""
    table = pd.concat([frame(), frame()])
    with pytest.warns(UserWarning, match="40 rows repeat") as record:
        wrapped(CorrelatedGPImputer(**QUICK)).fit_transform(table)
    assert {each.filename for each in record if "40 rows repeat" in str(each.message)} == {__file__}


def test_fills_below_zero_are_said_where_no_reading_is():
    """Once by a fill, with the transform that has none: also of arrays, and of rows that come later."""
    level = np.sin(np.arange(40) / 4.0)
    rain = pd.DataFrame({"rain": np.where(level > 0.0, level, 0.0)})
    rain[level < -0.8] = np.nan
    imputer = CorrelatedGPImputer(**QUICK)
    what = r"\d+ of \d+ filled values in 'rain'; if none can be, transforms={'rain': 'rectified'} has none"
    said = f"table: below 0, where no observed value is: {what}"
    with pytest.warns(UserWarning, match=said) as record:
        filled = imputer.fit_transform(rain)
    assert [each.filename for each in record if "below 0" in str(each.message)] == [__file__]
    assert filled["rain"].min() < 0.0
    with pytest.warns(UserWarning, match="in 'column 0'; if none can be, transforms={0: 'rectified'}"):
        CorrelatedGPImputer(**QUICK).fit_transform(rain.to_numpy())
    dry = CorrelatedGPImputer(**QUICK, transforms={"rain": "rectified"}).fit_transform(rain)
    assert dry["rain"].min() >= 0.0


def test_intervals_that_often_end_below_zero_are_said():
    """Of a skewed column that is never 0, not of one that is far from it, nor of few intervals, nor where none does."""
    t = np.arange(60.0)
    waves = np.sin(t / 4.0) + 0.3 * np.random.default_rng(0).normal(size=60)
    table = pd.DataFrame({"turbidity": np.exp(1.2 * waves), "level": 9.0 + waves, "steps": 1.0 + t})
    table.iloc[20:32, 0] = table.iloc[35:47, 1] = np.nan
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    said = (
        "no observed value is: 95 % intervals of \\d+ of 12 filled values in 'turbidity'; if none can be, transforms={'"
    )
    with pytest.warns(UserWarning, match=said):
        filled = imputer.transform(table)
    assert filled.min().min() > 0.0
    assert imputer.interval(0.95).lower["turbidity"].min() < 0.0
    with pytest.warns(UserWarning, match="95 % intervals of"):
        imputer.transform(table[:40])  # given what is observed besides
    with pytest.warns(UserWarning, match="is: 95 % intervals of \\d+ of 9 forecast values in 'turbidity'; "):
        assert imputer.forecast(9).lower["turbidity"].min() < 0.0
    positive = CorrelatedGPImputer(**QUICK, transforms={"turbidity": "box-cox"}).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        positive.transform(table)
        positive.forecast(9)
    assert positive.interval(0.95).lower["turbidity"].min() >= 0.0


def test_a_few_intervals_and_ends_next_to_zero_are_not_said():
    seen = np.array([1.0, 2.0, 3.0, 4.0])
    values = np.tile(seen, (2, 1)).T
    filled = np.full((10, 2), 2.0)
    ends = np.column_stack([np.append(np.full(9, 1.0), -5.0), np.full(10, -0.001)])
    assert negative_fills(values, filled, lambda: ends) == {}
    assert negative_fills(values - [2.0, 0.0], filled, lambda: ends - 5.0).keys() == {1}  # the first is negative
    ends[:2] = -1.0
    said = "95 % intervals of 3 of 10 filled values"
    assert negative_fills(values, filled, lambda: ends)[0] == (said, "box-cox")
    assert negative_fills((values > 2.0) * values, filled, lambda: ends)[0] == (said, "rectified")
    filled[0] = -0.5
    said = "1 of 10 forecast values and 95 % intervals of 3"  # one warning says both
    assert negative_fills(values, filled, lambda: ends, "forecast value")[0] == (said, "box-cox")


def test_a_path_or_a_class_is_no_table_and_no_imputer():
    for given in ("air.csv", Path("air.csv")):
        said = r"X: expected a table, got a path: cgp.tables.read_table\('air.csv'\).frame is"
        for use in (CorrelatedGPImputer().fit, CorrelatedGPImputer().estimate, assess_gaps):
            with pytest.raises(ValueError, match=said):
                use(given)
    with pytest.raises(ValueError, match="imputer: expected a CorrelatedGPImputer.*, got <class"):
        assess_gaps(frame(), CorrelatedGPImputer)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda f, use: use(f.iloc[:0]), "X: expected at least one row, got none"),
        (lambda f, use: use(f["a"].iloc[:0]), "X: expected at least one row, got none"),
        (lambda f, use: use(None), r"X: expected a table: a frame or a series .*, or an array \(n, k\), got None"),
        (lambda f, use: use({"a": [1.0]}), "X: expected a table: .*, got {'a'"),
    ],
)
def test_what_is_no_table_is_said_at_once(use, message):
    for function in (CorrelatedGPImputer().fit, CorrelatedGPImputer().estimate, assess_gaps):
        with pytest.raises(ValueError, match=message):
            use(frame(), function)


def test_panels_and_arrays_without_what_a_table_has_are_refused():
    with pytest.raises(ValueError, match="X: expected at least one row in each table, got none in table 1"):
        CorrelatedGPImputer().fit([frame(), frame()[:0]])
    with pytest.raises(ValueError, match=r"X: expected an array \(n, k\), got shape \(2,\): array.reshape"):
        assess_gaps([1.0, 2.0])
    for row in ([1.0, 2.0, np.nan], np.array([1.0, 2.0, np.nan])):
        with pytest.raises(ValueError, match=r"X: expected an array \(n, k\), got shape \(3,\): array.reshape"):
            CorrelatedGPImputer().fit(row)
    with pytest.raises(ValueError, match=r"X: expected inputs \(n, d\), numbers .*, got None"):
        CorrelatedGPRegressor().fit(None, np.zeros(3))


def test_codes_that_are_no_numbers_are_refused():
    imputer = CorrelatedGPImputer(missing_values=["ND", -9])
    for use in (imputer.fit, lambda table: imputer.fit([table, table]), lambda table: assess_gaps(table, imputer)):
        with pytest.raises(
            ValueError, match=r"missing_values: expected a number, or several, got \['ND', -9\]: text is"
        ):
            use(frame())


def test_a_span_of_time_is_a_number_of_rows_of_a_table_of_times():
    imputer = CorrelatedGPImputer(**QUICK).fit(frame())
    for ask in (imputer.forecast, lambda steps: imputer.aggregate("D", steps=steps)):
        expected = ask(8)[0]
        for span in ("1D", "1d", "1 d 1H", "25h", pd.Timedelta(days=1), timedelta(hours=24), np.timedelta64(24, "h")):
            pd.testing.assert_frame_equal(ask(span)[0], expected)
        for span in ("2 monts", "MS", "2023-06"):
            with pytest.raises(ValueError, match=f"or a span of time such as '14D', got '{span}'$"):
                ask(span)
        for span in ("1M", "2 months", "1 Year"):
            with pytest.raises(ValueError, match=f"got '{span}' \\(months and years are of no one length: take weeks"):
                ask(span)
        for span in ("2h", "-1D"):
            with pytest.raises(ValueError, match="at least the distance of the rows, 0 days 03:00:00, got"):
                ask(span)
    assert [days_of(span) for span in ("1 week", "2Weeks", "1w")] == [7.0, 14.0, 7.0]
    by_number = CorrelatedGPImputer(**QUICK).fit(frame().to_numpy())
    with pytest.raises(ValueError, match="steps, a number of rows: expected an integer of at least 1, got '2D'"):
        by_number.forecast("2D")


@pytest.mark.parametrize(("kind", "file"), [(CorrelatedGPImputer, "imputer"), (CorrelatedGPRegressor, "regressor")])
def test_folders_that_save_did_not_write_are_named(kind, file):
    with pytest.raises(
        FileNotFoundError, match=f"folder: expected one that save wrote, got 'nothing' without {file}.safe"
    ):
        kind.load("nothing")


def test_a_column_of_another_name_is_named():
    """With what may be meant, once."""
    table = frame().rename(columns={"a": "ozone"})
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    said = (
        r"^X: expected the columns of the fit, \['ozone', 'b', 'n'\], got \['Ozon', 'b', 'n'\]; did you mean 'ozone'\?$"
    )
    for ask in (imputer.transform, imputer.update):
        with pytest.raises(ValueError, match=said):
            ask(table.rename(columns={"ozone": "Ozon"}))


def test_columns_in_another_order_are_known_by_their_names():
    table = frame(count=44)
    imputer = CorrelatedGPImputer(kernel="matern32", **QUICK).fit(table[:40])
    filled = imputer.transform(table)
    pd.testing.assert_frame_equal(imputer.transform(table[["n", "b", "a"]]), filled)
    pd.testing.assert_frame_equal(
        imputer.update(table[40:][["b", "a", "n"]]).transform(table), filled, check_exact=False, rtol=1e-6
    )
