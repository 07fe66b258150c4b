"""Which transforms columns get, and what the imputer does with them."""

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer
from cgp.tables.frames.table import read_table
from cgp.tables.transforms.choice import chosen_transforms, has_atoms, restored_setting, setting_content
from cgp.tables.transforms.kinds import BoxCox, Logit, Rectified, Unchanged, YeoJohnson
from cgp.tables.transforms.names import NAMES
from tests.cgp.tables.transforms.test_columns import QUICK, skewed

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def series(count=800, seed=0):
    """Two related autoregressions of unit variance."""
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=(count, 1)), 0.6 * rng.normal(size=(count, 2))
    latent = np.zeros((count, 2))
    for t in range(1, count):
        latent[t] = 0.8 * latent[t - 1] + 0.5 * (shared[t] + own[t])
    return latent / latent.std(axis=0)


def chosen(values, asked="auto"):
    return chosen_transforms(asked, read_table(values, None)[0]).kinds


def test_it_finds_the_transform_that_made_a_column():
    latent = series()
    kinds = chosen(np.column_stack([np.exp(latent[:, 0]), latent[:, 1]]))
    assert isinstance(kinds[0], BoxCox)
    assert kinds[0].power == 0.0
    assert kinds[1] == Unchanged()
    assert isinstance(chosen(100.0 / (1.0 + np.exp(-3.0 * latent)))[0], Logit)


def test_gaussian_columns_stay_as_they_are():
    """Of forty columns of twenty tables, none is transformed by chance."""
    for seed in range(20):
        assert chosen(series(300, seed)) == (Unchanged(), Unchanged())


@pytest.mark.parametrize(
    "column",
    [
        lambda x: np.where(x < 0.0, -1.0, np.exp(x)),  # half of it is one value that is no end known to be one
        lambda x: np.where(x < 1.5, 0.0, np.exp(x)),  # too few above the end
        lambda x: np.round(np.exp(x)) + 1.0,  # counts that are not often 0
        lambda x: np.round(np.clip(x, 0.0, 5.0)),  # a code with few values
        lambda x: np.exp(x)[:90],  # too few
        lambda x: np.append(np.exp(x), 1e5),  # a code of a failed sensor
        lambda x: np.ones_like(x),
    ],
)
def test_atoms_counts_few_values_and_errors_are_left(column):
    assert chosen(column(series()[:, :1].ravel())[:, None]) == (Unchanged(),)


def test_units_and_order_of_columns_do_not_matter():
    latent = series()
    table = np.column_stack([np.exp(latent[:, 0]), latent[:, 1], np.exp(0.5 * latent[:, 1])])
    table[50:80, 0] = table[200, 1] = np.nan
    kinds = chosen(table)
    scaled, turned = chosen(table * [1e-3, 5.0, 1e4]), chosen(table[:, [2, 0, 1]])
    assert turned == tuple(kinds[p] for p in (2, 0, 1))
    for kind, other, unit in zip(kinds, scaled, (1e-3, 5.0, 1e4), strict=True):
        y = np.array([0.5, 1.5, 3.0])
        z, z_scaled = kind.forward(y), other.forward(y * unit)
        assert type(kind) is type(other)
        assert np.diff(z_scaled)[1] / np.diff(z_scaled)[0] == pytest.approx(np.diff(z)[1] / np.diff(z)[0])


def test_filled_values_follow_units_and_columns():
    table = skewed()
    options = {**QUICK, "transforms": {0: "log", 2: Logit()}}
    filled = CorrelatedGPImputer(**options).fit_transform(table)
    scaled = CorrelatedGPImputer(**options).fit_transform(table * [1e3, 1.0, 1.0])
    np.testing.assert_allclose(scaled[:, 0], 1e3 * filled[:, 0], rtol=1e-5)
    turned = CorrelatedGPImputer(**{**options, "transforms": {1: "log", 0: Logit()}}).fit_transform(table[:, [2, 0, 1]])
    np.testing.assert_allclose(turned[:, [1, 2, 0]], filled, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:table. below 0, where no observed value is:UserWarning")
def test_no_transform_is_what_there_is_without_the_option():
    table = skewed()
    plain = CorrelatedGPImputer(transforms=None, **QUICK).fit(table)
    for asked in ("none", {0: None}, {1: Unchanged()}, "auto"):  # 60 rows are too few to choose by
        other = CorrelatedGPImputer(transforms=asked, **QUICK).fit(table)
        np.testing.assert_array_equal(other.transform(table), plain.transform(table))
        np.testing.assert_array_equal(other.std_, plain.std_)
        np.testing.assert_array_equal(other.interval(), plain.interval())
        np.testing.assert_array_equal(other.draws(2), plain.draws(2))
        np.testing.assert_array_equal(other.aggregate(), plain.aggregate())


def test_a_transformed_imputer_is_that_of_the_transformed_table():
    """Residuals, updates, other tables and forecasts, with the logarithm taken by hand."""
    table = pd.DataFrame(skewed()[:, :2], columns=["a", "b"], index=pd.date_range("2024", periods=60, freq="h"))
    kind = BoxCox(shift=0.1)
    by_hand = table.assign(a=np.log(table["a"] + 0.1))
    ours = CorrelatedGPImputer(transforms={"a": kind}, **QUICK).fit(table.iloc[:50])
    other = CorrelatedGPImputer(**QUICK).fit(by_hand.iloc[:50])
    pd.testing.assert_frame_equal(ours.residuals(), other.residuals(), atol=1e-9)
    ours.update(table.iloc[50:])
    other.update(by_hand.iloc[50:])
    mean, sd, *ends = other.forecast(3, 0.8)
    np.testing.assert_allclose(ours.forecast(3).value["a"], np.exp(mean["a"] + sd["a"] ** 2 / 2) - 0.1, rtol=1e-3)
    np.testing.assert_allclose(ours.forecast(3).value["b"], mean["b"], rtol=1e-9)
    pairs = [
        *zip(ours.interval(0.8), other.interval(0.8), strict=True),
        *zip(ours.forecast(3, 0.8)[2:], ends, strict=True),
    ]
    for end, hand in pairs:
        np.testing.assert_allclose(end["a"], np.maximum(np.exp(hand["a"]) - 0.1, 0.0), rtol=1e-9)
    further = table.iloc[:4].assign(b=[np.nan, 0.1, np.nan, 0.3]).set_axis(range(4))
    apart = ours.transform(further.set_axis(table.index[:4]))
    assert np.isfinite(apart).all().all()


def test_rows_at_no_known_place_are_filled_from_themselves():
    table = skewed()[:, :2]
    ours = CorrelatedGPImputer(transforms={0: BoxCox()}, **QUICK).fit(table)
    by_hand = CorrelatedGPImputer(**QUICK).fit(np.column_stack([np.log(table[:, 0]), table[:, 1]]))
    new = np.array([[np.nan, 0.5], [7.0, np.nan], [np.nan, np.nan]])
    logs = by_hand.transform(np.column_stack([np.log(new[:, 0]), new[:, 1]]))
    filled = ours.transform(new)
    assert filled[1, 1] == pytest.approx(logs[1, 1])
    assert (filled[[0, 2], 0] > np.exp(logs[[0, 2], 0])).all()  # the mean is above the median


def test_saved_and_read_it_fills_the_same(tmp_path):
    table = skewed()
    first = CorrelatedGPImputer(transforms={0: "log", 2: Logit()}, **QUICK).fit(table)
    first.save(tmp_path)
    second = CorrelatedGPImputer.load(tmp_path)
    assert second.transforms_ == first.transforms_
    assert second.transforms == {0: "log", 2: Logit()}
    np.testing.assert_allclose(second.transform(table), first.transform(table), rtol=1e-9)
    np.testing.assert_allclose(second.interval(), first.interval(), rtol=1e-9)


@pytest.mark.parametrize("asked", [None, "auto", BoxCox(power=0.5), {"a": Logit(), 3: None}])
def test_the_argument_goes_through_json(asked):
    assert restored_setting(setting_content(asked)) == asked


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("sqrt", "transforms: expected one of .*'box-cox'.*, an object such as BoxCox.., or None, got 'sqrt'"),
        ({5: "log"}, r"transforms: expected columns to fill, \[0, 1, 2\], got \[5\]"),
        ({1: "log"}, r"from 0 on in column 'column 1' for 'log', got -.*: transforms=\{1: 'yeo-johnson'\} takes any, "),
        ({1: "logit"}, "transforms: expected values from 0 to 100 in column 'column 1' for 'logit'"),
        ({1: BoxCox()}, "transforms: expected values from 0 to inf in column 'column 1'"),
    ],
)
def test_what_a_column_cannot_have_is_refused(asked, message):
    """By the estimate, too: nothing is announced that cannot be."""
    imputer = CorrelatedGPImputer(transforms=asked, **QUICK)
    for call in (imputer.fit, imputer.estimate):
        with pytest.raises(ValueError, match=message):
            call(skewed())


def test_a_later_value_that_has_no_logarithm_is_named():
    imputer = CorrelatedGPImputer(transforms={0: BoxCox()}, **QUICK).fit(skewed())
    with pytest.raises(ValueError, match=r"column 'column 0': expected values that log\(x\) takes, got -1"):
        imputer.update(np.array([[-1.0, 0.0, 0.5]]))


def test_panels_have_no_transforms():
    tables = [skewed()[:20, :2] for _ in range(3)]
    with pytest.raises(ValueError, match="transforms: expected one of .* for a panel, got 'log'"):
        CorrelatedGPImputer(transforms="log").fit(tables)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_asked_for(name):
    assert chosen(np.array([[0.1], [0.4], [0.2], [0.7]]), name)


def test_a_declared_family_finds_its_power():
    latent = series()
    assert chosen(np.exp(latent), "box-cox")[0].power == 0.0
    assert isinstance(chosen(latent, "yeo-johnson")[0], YeoJohnson)


def rain(count=800):
    """A column that is 0 half of the time, one that knows nothing of it, and one that does."""
    latent, other = series(count), series(count, 1)[:, :1]
    return np.column_stack([np.where(latent[:, 0] < 0.0, 0.0, np.exp(latent[:, 0])), other, latent[:, 1]])


def test_columns_that_are_not_named_are_left_to_auto():
    """Totals and zeros have the rules that they have where all columns are."""
    table = np.exp(series())
    both = chosen(table)
    assert all(isinstance(kind, BoxCox) for kind in both)
    assert chosen(table, {0: None}) == (Unchanged(), both[1])
    assert chosen(table, {1: Logit(upper=1e3)}) == (both[0], Logit(upper=1e3))
    assert chosen(table, dict.fromkeys(range(2)) | {0: BoxCox()}) == (BoxCox(), Unchanged())
    given = read_table(np.column_stack([rain()[:, :2], np.exp(series(seed=2)[:, 0])]), None)[0]
    assert has_atoms({2: "log"}, given)
    assert not has_atoms({0: None}, given)
    assert chosen_transforms({2: BoxCox()}, given).kinds == (Rectified(), Unchanged(), BoxCox())
    assert chosen_transforms({2: BoxCox()}, given, summed=[0]).kinds == (Unchanged(), Unchanged(), BoxCox())


def test_zeros_are_an_end_unless_other_columns_know_when():
    table = rain()
    assert chosen(table[:, :2]) == (Rectified(), Unchanged())
    assert chosen(table[:, 1::-1]) == (Unchanged(), Rectified())
    assert chosen(1e4 * table[:, :1]) == (Rectified(),)
    assert chosen(table[:, :1].round(1)) == (Rectified(),)  # as a gauge counts
    assert chosen(table) == (Unchanged(), Unchanged(), Unchanged())
    wide = np.hstack([table[:, :1], np.random.default_rng(0).normal(size=(len(table), 50))])
    assert chosen(wide[:, :50])[0] == Rectified()
    assert chosen(wide)[0] == Unchanged()  # where an end is a value
    given = read_table(table[:, :2], None)[0]
    assert chosen_transforms("auto", given, summed=[0]).kinds == (Unchanged(), Unchanged())
    assert has_atoms("auto", given)
    assert not has_atoms("auto", read_table(table, None)[0])


def test_the_scores_of_hidden_values_are_better_with_zeros_as_an_end():
    complete = rain(300)[:, :1]
    table = complete.copy()
    table[10:290:14] = table[11:290:14] = np.nan
    hidden, off = np.isnan(table), []
    for asked in (None, "auto"):
        imputer = CorrelatedGPImputer(transforms=asked, random_state=0).fit(table)
        draws = np.stack([each[hidden] for each in imputer.draws(50, random_state=0)])
        apart = np.abs(draws[:, None] - draws).sum((0, 1)) / (50 * 49)
        off.append(float((np.abs(draws - complete[hidden]).mean(0) - 0.5 * apart).mean()))
    assert off[1] < 0.9 * off[0]


def test_atoms_are_those_of_columns_that_are_asked_to_have_a_bound():
    table, _ = read_table(pd.DataFrame({"rain": [0.0, 1.0], "flow": [1.0, 2.0]}), None)
    for asked in ("rectified", {"rain": "rectified"}, {"flow": Rectified()}):
        assert has_atoms(asked, table)
    for asked in ("auto", None, {"rain": "log"}):
        assert not has_atoms(asked, table)
