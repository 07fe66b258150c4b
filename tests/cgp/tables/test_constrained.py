"""Totals of transformed columns: draws beside quadrature of the exact density, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.solvers.choice import Cost
from cgp.tables import CorrelatedGPImputer, KnownTotals, constrained, slices
from cgp.tables.slices import _starts
from cgp.tables.transforms.kinds import BoxCox, Logit

DAYS, GAP = 40, [20, 21, 22, 23]
OPTIONS = {"structure": "coregionalised", "inference": "map", "random_state": 0}


def table(transform):
    """Two columns, of which the second has four missing values in a row."""
    rng = np.random.default_rng(1)
    index = pd.date_range("2023-01-02", periods=DAYS, freq="D")
    level = np.cumsum(rng.normal(size=DAYS))
    rain = transform.inverse(0.3 * level + rng.normal(size=DAYS))
    full = pd.DataFrame({"flow": level + 0.3 * rng.normal(size=DAYS), "rain": rain}, index=index)
    frame = full.copy()
    frame.iloc[GAP, 1] = np.nan
    return full, frame


def over(full, *spans):
    """Sums of the second column over days of the gap, from the first to the last."""
    days = full.index[GAP]
    intervals = pd.IntervalIndex.from_tuples([(days[i], days[j]) for i, j in spans], closed="both")
    return pd.Series([full["rain"].iloc[GAP[i] : GAP[j] + 1].sum() for i, j in spans], index=intervals)


def exact(imputer, ends, solved, size=500):
    """Mean and standard deviation of the four values by quadrature of their density, as functions of two of them."""
    transform = imputer.transforms_.kinds[1]
    mean, covariance = imputer.regressor_.posterior_.covariance(imputer._table.inputs[GAP])
    mean, covariance = mean[:, 1], covariance[:, 1][:, :, 1]
    grid = ends[0] + (ends[1] - ends[0]) * (np.arange(size) + 0.5) / size
    y = np.stack(solved(*np.meshgrid(grid, grid, indexing="ij")), axis=-1)
    inside = ((y > transform.ends[0]) & (y < transform.ends[1])).all(axis=-1)
    y = y[inside]
    away = transform.forward(y) - mean
    log = -0.5 * np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away) + transform.log_slope(y).sum(axis=-1)
    shares = np.exp(log - log.max())
    shares /= shares.sum()
    centre = shares @ y
    return centre, np.sqrt(shares @ np.square(y - centre))


def drawn(imputer):
    """Draws of the four values, ``(5000, 4)``."""
    posterior, outputs = imputer._filled.posterior, np.ones(4, dtype=int)
    draws = posterior._draws(imputer._table.inputs[GAP], outputs, 200, 25, 0)
    return posterior.transforms.inverse(draws, outputs)


@pytest.mark.parametrize("transform", [BoxCox(), Logit(margin=0.0)], ids=str)
def test_draws_have_the_moments_of_the_exact_density(transform):
    full, frame = table(transform)
    totals = over(full, (0, 2), (1, 3))
    imputer = CorrelatedGPImputer(transforms={"rain": transform}, **OPTIONS).fit(frame, totals={"rain": totals})
    first, second = totals

    def solved(b, c):
        return first - b - c, b, c, second - b - c

    mean, sd = exact(imputer, (0.0, min(first, second)), solved)
    draws = drawn(imputer)
    np.testing.assert_allclose(draws[:, :3].sum(axis=1), first, rtol=1e-11)
    np.testing.assert_allclose(draws[:, 1:].sum(axis=1), second, rtol=1e-11)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.05)


@pytest.fixture(scope="module")
def fitted():
    full, frame = table(BoxCox())
    full.iloc[5, 0] = frame.iloc[5, 0] = frame.iloc[30, 1] = np.nan
    totals = over(full, (0, 3))
    flow = pd.Series(
        [full["flow"].iloc[4:7].sum()], index=pd.IntervalIndex.from_tuples([tuple(full.index[[4, 6]])], "both")
    )
    return CorrelatedGPImputer(transforms={"rain": "log"}, **OPTIONS), full, frame, {"rain": totals, "flow": flow + 3.0}


def test_draws_along_the_chain_have_the_same_moments(monkeypatch):
    """With two overlapping totals, whose places are drawn once."""
    full, frame = table(BoxCox())
    totals = over(full, (0, 2), (1, 3))
    imputer = CorrelatedGPImputer(transforms={"rain": BoxCox()}, **OPTIONS).fit(frame, totals={"rain": totals})
    by_root = drawn(imputer)
    monkeypatch.setattr(constrained, "_FEW", 0)
    along = drawn(imputer)
    sd = by_root.std(axis=0)
    np.testing.assert_allclose((along.mean(axis=0) - by_root.mean(axis=0)) / sd, 0.0, atol=0.07)
    np.testing.assert_allclose(along.std(axis=0) / sd, 1.0, atol=0.07)


def test_chains_that_move_little_have_more_steps(fitted, monkeypatch):
    imputer, _, frame, totals = fitted
    imputer.fit(frame, totals=totals)
    step, cosines = slices._slice, []

    def slowed(*arguments):
        cosines.append(cosine)
        return *step(*arguments)[:3], np.full(len(arguments[2]), cosine)

    monkeypatch.setattr(slices, "_slice", slowed)
    posterior = imputer._filled.posterior
    for cosine in (0.1, 0.9, 0.999):  # noqa: B007 - what `slowed` returns
        posterior._draws(imputer._table.inputs[GAP], np.ones(4, dtype=int), 5, 3, 0)
    counts = [cosines.count(each) for each in (0.1, 0.9, 0.999)]
    assert counts == [10 + 3, 33 + 3 * 5, 300 + 3 * 30]  # .9 to the power of 66 is .001, to that of 5 .6


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_draws_that_reach_an_end_are_those_of_long_monte_carlo(noise):
    """Draws without the total, weighted by how near they are to it."""
    transform = BoxCox(power=0.5, shift=0.1)
    full, frame = table(transform)
    total = KnownTotals(over(full, (0, 2)), noise=noise)
    imputer = CorrelatedGPImputer(transforms={"rain": transform}, **OPTIONS).fit(frame, totals={"rain": total})
    mean, covariance = imputer.regressor_.posterior_.covariance(imputer._table.inputs[GAP])
    rng = np.random.default_rng(0)
    values = transform.inverse(rng.multivariate_normal(mean[:, 1], covariance[:, 1][:, :, 1], size=1_000_000))
    sums = values[:, :3].sum(axis=1)
    shares = np.exp(-0.5 * (sums - total.values.iloc[0]) ** 2 / (noise + (0.02 * sums.std()) ** 2))
    shares /= shares.sum()
    centre = shares @ values
    sd = np.sqrt(shares @ np.square(values - centre))
    draws = drawn(imputer)
    np.testing.assert_allclose((draws.mean(axis=0) - centre) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.05)
    np.testing.assert_allclose((draws == 0.0).mean(axis=0), shares @ (values == 0.0), atol=0.01)
    assert (draws == 0.0).mean() > 0.005


def in_gap(filled):
    return filled["rain"].iloc[GAP].sum()


def test_what_comes_out_has_the_totals(fitted, tmp_path):
    imputer, _, frame, totals = fitted
    filled = imputer.fit(frame, totals=totals).transform(frame)
    for each in (filled, *imputer.draws(3)):
        assert in_gap(each) == pytest.approx(totals["rain"].iloc[0], rel=1e-12)
        assert each["flow"].iloc[4:7].sum() == pytest.approx(totals["flow"].iloc[0], rel=1e-10)
        assert (each["rain"] > 0).all()
    labels = np.where(np.isin(np.arange(DAYS), GAP), "gap", "rest")
    found = imputer.aggregate(labels)
    assert found.std["rain"].tolist()[0] == 0.0 < found.std["rain"].tolist()[1]
    assert found.value["rain"].iloc[0] == pytest.approx(totals["rain"].iloc[0], rel=1e-12)
    assert found.value["rain"].iloc[1] == pytest.approx(filled["rain"].sum() - in_gap(filled), rel=1e-10)
    assert found.std["flow"].iloc[1] == 0.0
    ends = imputer.aggregate(labels, level=0.9)
    for end in (ends.lower, ends.upper):
        pd.testing.assert_series_equal(end["rain"].iloc[:1], found.value["rain"].iloc[:1])  # what is known has no width
    assert ends.lower["rain"]["rest"] < found.value["rain"]["rest"] < ends.upper["rain"]["rest"]
    lower, upper = imputer.interval(0.95)
    assert (lower["rain"].iloc[GAP] > 0).all()
    assert (upper["rain"].iloc[GAP] > filled["rain"].iloc[GAP]).all()
    ahead = imputer.forecast(2)
    assert (ahead.lower["rain"].between(0.0, ahead.value["rain"], inclusive="neither")).all()
    assert (ahead.upper["rain"] > ahead.value["rain"]).all()
    with pytest.raises(ValueError, match="include_noise: expected True where totals of transformed"):
        imputer.aggregate(labels, include_noise=False)
    imputer.save(tmp_path)
    pd.testing.assert_frame_equal(CorrelatedGPImputer.load(tmp_path).transform(frame), filled, rtol=1e-9)


def test_later_readings_are_taken_from_the_totals(fitted):
    imputer, full, frame, totals = fitted
    imputer.fit(frame, totals=totals)
    known = frame.copy()
    known.iloc[GAP[:2], 1] = full["rain"].iloc[GAP[:2]]
    filled = imputer.transform(known)
    assert in_gap(filled) == pytest.approx(totals["rain"].iloc[0], rel=1e-12)
    assert filled["rain"].iloc[GAP[0]] == full["rain"].iloc[GAP[0]]
    known.iloc[GAP[:2], 1] = 10.0 * totals["rain"].iloc[0]
    with pytest.raises(ValueError, match="what is missing of 'rain' .* to be between the ends of its column"):
        imputer.transform(known)


def with_dry_gaps():
    """A column that is often 0, two months of three with gaps at some of its zeros; the full one, and its gaps."""
    rng = np.random.default_rng(0)
    index = pd.date_range("2023-01-01", periods=90, freq="D")
    level = 0.3 * np.cumsum(rng.normal(size=90))
    full = pd.DataFrame({"flow": level, "rain": np.maximum(level + rng.normal(size=90), 0.0).round(1)}, index=index)
    gaps = [index[(full["rain"] == 0.0) & (index.month == month)][:2] for month in (1, 2)]
    return full, gaps


@pytest.mark.parametrize(
    ("months", "rest"), [(slice(None), -1e-14), *((slice(1, 2), rest) for rest in (0.0, 1e-14, -1e-14))]
)
def test_days_for_which_a_total_leaves_no_rain_are_dry(rest, months):
    full, (wet, dry) = with_dry_gaps()
    frame = full.copy()
    frame.loc[wet.union(full.index[10:13]), "rain"] = frame.loc[dry, "rain"] = np.nan
    totals = full["rain"].groupby(full.index.to_period("M")).sum()
    totals["2023-02"] = frame["rain"][full.index.month == 2].sum() + rest
    imputer = CorrelatedGPImputer(transforms={"rain": "rectified"}, **OPTIONS)
    with pytest.warns(
        UserWarning, match="totals: nothing is left for 2 missing values of 'rain' 2023-02, which are .* 0"
    ):
        filled = imputer.fit(frame, totals={"rain": totals[months]}).transform(frame)
    of_dry = [filled, imputer.std_, *imputer.interval(0.95), *imputer.draws(3)]
    np.testing.assert_array_equal([each["rain"][dry] for each in of_dry], 0.0)
    assert (filled["rain"][wet] > 0.0).all()
    known = totals[months].to_numpy()
    np.testing.assert_allclose(imputer.aggregate("month").value["rain"].to_numpy()[months], known, rtol=1e-9)
    np.testing.assert_array_equal(imputer.aggregate("month").std["rain"].to_numpy()[months], 0.0)


@pytest.mark.parametrize(("kind", "times"), [(None, 1.0), ("log", 1.0), ("rectified", 2.0)])
def test_expected_seconds_are_those_of_a_fit_without_curved_totals(kind, times, monkeypatch):
    """And of a thousand draws that have them, for which nothing is learned again."""
    asked, second = [], Cost(1.0, 8.0)
    monkeypatch.setattr(CorrelatedGPRegressor, "estimate", lambda *_, **options: asked.append(options) or second)
    full = with_dry_gaps()[0] + (kind == "log")
    frame = full.mask(np.tile(np.arange(90)[:, None] % 7 == 3, 2))
    totals = {"rain": full["rain"].groupby(full.index.to_period("M")).sum()}
    seconds = CorrelatedGPImputer(transforms={"rain": kind}).estimate(frame, totals=totals).seconds
    assert seconds == times
    assert (asked[0]["totals"] is None) == (kind is not None)
    assert times * (asked[0]["passes"] - 1.0) == pytest.approx(0.0 if kind is None else 20.0)


def test_a_total_is_met_where_rain_is_expected_nowhere():
    """Each missing value is expected at its end, where the total's linear part has no slope."""
    flow = np.sin(np.arange(70) / 5.0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"flow": flow, "rain": (flow + 0.05 * rng.normal(size=70)).clip(0.0)})
    frame.index = pd.date_range("2023-01-01", periods=70)
    days = frame.index[[22, 23, 24]]
    frame.loc[days, "rain"] = np.nan
    totals = pd.Series([2.5], index=pd.IntervalIndex.from_tuples([(days[0], days[-1])], closed="both"))
    imputer = CorrelatedGPImputer(transforms={"rain": "rectified"}, **OPTIONS).fit(frame, totals={"rain": totals})
    assert imputer.regressor_.predict(imputer._table.inputs[22:25])[:, 1].max() < 0.0
    filled = imputer.transform(frame)["rain"][days]
    assert (filled >= 0.0).all()
    assert filled.sum() == pytest.approx(2.5)


def test_totals_of_readings_alone_leave_a_transformed_column_its_draws():
    full, (wet, _) = with_dry_gaps()
    frame = full.copy()
    frame.loc[wet, "rain"] = np.nan
    totals = full["rain"].groupby(full.index.to_period("M")).sum()["2023-02":]
    imputer = CorrelatedGPImputer(transforms={"rain": "rectified"}, **OPTIONS).fit(frame, totals={"rain": totals})
    assert (imputer.std_["rain"][wet] > 0.0).all()


def test_totals_that_leave_no_room_are_named_before_a_fit(monkeypatch):
    full, frame = table(BoxCox())
    spans = pd.IntervalIndex.from_breaks(full.index[[19, 21, 23]], closed="right")
    known = pd.Series([0.0, 0.0], index=spans)
    monkeypatch.setattr(CorrelatedGPImputer, "_fitted", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(ValueError, match=r"missing of 'rain' .*, 'rain' .* beyond one of them for every value"):
        CorrelatedGPImputer(transforms={"rain": BoxCox()}, **OPTIONS).fit(frame, totals={"rain": known})


def test_what_cannot_be_used_is_refused(fitted):
    imputer, _, frame, totals = fitted
    rain = totals["rain"]
    with pytest.raises(ValueError, match="of='readings' for 'rain' .*, whose column is transformed, got 'process'"):
        imputer.fit(frame, totals={"rain": KnownTotals(rain, of="process")})
    with pytest.raises(ValueError, match="readings in a column that is transformed, got none for 'rain'"):
        imputer.fit(frame.assign(rain=np.nan), totals={"rain": rain})
    with pytest.raises(ValueError, match="one input and a Markov kernel such as 'matern32'"):
        CorrelatedGPImputer(transforms="log", kernel="rbf").fit(np.exp(frame), totals={"rain": rain})


@pytest.mark.parametrize(("reach", "expected"), [(9.0, [4.0, 8.0]), (4.5, [4.0, 4.0]), (0.9, [0.8, 0.0]), (-1.0, None)])
def test_chains_start_where_their_totals_are_reached(reach, expected):
    """At a draw, or nearer to the mean; nowhere, if none is."""

    def reached(x):
        level = np.where(np.abs(x).max(axis=1) <= reach, -x[:, 0], -np.inf)
        return x[:, :1] + 1.0, level

    surface = SimpleNamespace(response=np.ones((1, 1)), reached=reached)
    r, u, level = _starts(surface, np.zeros(2), np.array([[4.0, 1.0], [8.0, 1.0]]))
    if expected is None:
        assert (level == -np.inf).all()
        return
    np.testing.assert_allclose(r[:, 0], expected)
    np.testing.assert_allclose(u[:, 0], r[:, 0] + 1.0)
    np.testing.assert_allclose(level, -r[:, 0])


def test_chains_that_reach_nothing_start_as_others_do():
    surface = SimpleNamespace(response=np.ones((1, 1)), reached=lambda x: (x, np.where(x[:, 0] > 0.5, 0.0, -np.inf)))
    r, u, level = _starts(surface, np.zeros(1), np.array([[0.4], [3.0], [-2.0]]))
    np.testing.assert_array_equal(r[:, 0], 3.0)
    np.testing.assert_array_equal(u, r)
    assert np.isfinite(level).all()
