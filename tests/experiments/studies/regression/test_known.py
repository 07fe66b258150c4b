"""Studies of known totals: hidden months and days, months from quarters, annual sums, a quarter from its months."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.stats import norm

from cgp import CorrelatedGPImputer
from cgp.regression import MAP, Windows
from experiments.studies.regression import annual, disaggregation, known, nowcast


def a_year_of_fluxes() -> pd.DataFrame:
    """Every twelve hours from February to April 1998, a fifth of one flux not measured."""
    times = pd.date_range("1998-02-15 12:00", "1998-04-15 00:00", freq="12h")
    generator = np.random.default_rng(0)
    sun = np.maximum((times.hour > 0), 0.0) * 400.0 * generator.uniform(0.4, 1.0, len(times))
    warmth = 8.0 + 5.0 * np.sin(np.arange(len(times)) / 30.0) + sun / 100.0
    noise = generator.normal(size=(2, len(times)))
    columns = {"NEE": 2.0 - sun / 40.0 + noise[0], "LE": 20.0 + sun / 3.0 + 5.0 * noise[1], "Rg": sun, "Tair": warmth}
    table = pd.DataFrame(columns, index=times)
    table.loc[generator.random(len(times)) < 0.2, "NEE"] = np.nan
    return table


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("transformed", [False, True])
def test_a_hidden_month_has_its_sum_where_it_is_told(tmp_path, monkeypatch, transformed):
    complete = a_year_of_fluxes()
    monkeypatch.setattr(known, "fluxes", lambda data: complete)
    seen = []

    class Imputer(CorrelatedGPImputer):
        def fit(self, X, y=None, *, totals=None):
            seen.append((self.transforms, X, totals))
            self.set_params(structure="coregionalised", inference=MAP(max_steps=10))
            return super().fit(X, totals=totals)

    monkeypatch.setattr(known, "CorrelatedGPImputer", Imputer)
    rows = [known._row(tmp_path, 3, has_totals, transformed)["columns"] for has_totals in (False, True)]
    (kinds, table, nothing), (same_kinds, same_table, totals) = seen
    assert nothing is None
    assert kinds == same_kinds
    assert (kinds is None) == (not transformed)
    pd.testing.assert_frame_equal(table, same_table)
    march = (complete.index > "1998-03-01") & (complete.index <= "1998-04-01")
    assert table.loc[march, ["NEE", "LE"]].isna().all(axis=None)
    pd.testing.assert_frame_equal(table[~march], complete[~march])
    for name in ("NEE", "LE"):
        assert float(totals[name].values.iloc[0]) == pytest.approx(complete.loc[march, name].sum())
        assert rows[0][name]["sum_z"] != 0.0
        assert rows[1][name]["sum_z"] == 0.0  # its standard error is 0
        assert 0.0 < rows[1][name]["squared_error"] < 1.0


def test_scores_of_a_month_are_those_of_its_measured_half_hours_and_days():
    """A filled table that is 1 too large everywhere, with a standard error of 0.6 for each value."""
    complete = a_year_of_fluxes()
    inside = (complete.index > "1998-03-01") & (complete.index <= "1998-04-01")
    days = (complete.index - pd.Timedelta("15min")).normalize()

    class Filled:
        def aggregate(self, by, weights):
            weighted = complete.fillna(0.0).add(1.0).mul(weights, axis=0).groupby(np.asarray(by)).sum()
            counts = pd.Series(weights).groupby(np.asarray(by)).sum().to_numpy()
            errors = pd.DataFrame({name: 0.6 * np.sqrt(counts) for name in complete}, index=weighted.index)
            return type("Aggregate", (), {"value": weighted, "std": errors})

    sd = pd.DataFrame(0.6, complete.index, complete.columns)
    scores = known._scores(Filled(), "NEE", complete, complete + 1.0, sd, inside)
    measured, unit = complete["NEE"].notna(), complete["NEE"].std()
    assert scores["squared_error"] == pytest.approx(1.0 / unit**2)
    assert scores["squared_error_of_days"] == pytest.approx(1.0 / unit**2)
    assert scores["coverage"] == 1.0  # 1 is within 1.96 * 0.6
    counts = measured[inside].groupby(days[inside]).sum()
    assert scores["coverage_of_days"] == pytest.approx((counts[counts > 0] <= (1.96 * 0.6) ** 2).mean())
    assert scores["sum_z"] == pytest.approx(np.sqrt((measured & inside).sum()) / 0.6)


def test_weeks_of_a_customer_are_hidden_but_for_the_sums_of_their_days(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(size=(1_500, 7))
    (tmp_path / "series").mkdir()
    np.savetxt(tmp_path / "series" / "electricity.txt", values)
    seen = []

    class Imputer:
        """Everything is 0, with a deviation of half the customer's."""

        def __init__(self, random_state):
            self.std_ = None

        def fit(self, X, totals):
            seen.append((X, totals))
            self.std_ = pd.DataFrame(0.5 * values[:, 2].std(ddof=1), X.index, X.columns)
            return self

        def transform(self, X):
            return X.fillna(0.0)

    monkeypatch.setattr(known, "CorrelatedGPImputer", Imputer)
    without, told = (known._energy_row(tmp_path, 2, has_totals) for has_totals in (False, True))
    table, totals = seen[1]
    hidden = table[2].isna().to_numpy()
    assert (hidden.sum(), hidden.argmax()) == (28 * 24, 12 * 24)
    assert not table.drop(columns=2).isna().any(axis=None)
    assert table.shape == (1_500, 6)
    days = values[hidden, 2].reshape(28, 24).sum(axis=1)
    np.testing.assert_allclose(totals[2], days)
    assert str(totals[2].index[0]) == "2012-01-13"
    assert seen[0][1] is None
    errors = values[hidden, 2] / values[:, 2].std(ddof=1)
    assert told == without
    assert told["smse"] == pytest.approx(np.mean(errors**2))
    assert told["nll"] == pytest.approx(-norm.logpdf(errors, scale=0.5).mean())
    assert told["coverage"] == pytest.approx(np.mean(np.abs(errors) <= 0.98))


def a_year_of_months(count: int = 48) -> tuple[pd.Series, pd.Series]:
    months = pd.period_range("2001-01", periods=count, freq="M")
    generator = np.random.default_rng(1)
    indicator = 100.0 + 3.0 * generator.normal(size=count).cumsum()
    series = 20.0 + 0.5 * indicator + generator.normal(size=count)
    return pd.Series(series, months), pd.Series(indicator, months)


@pytest.mark.parametrize("name", ["Chow-Lin", "Litterman", "Fernández"])
def test_months_are_the_best_unbiased_ones_given_their_quarters(name):
    """Against the system of universal kriging."""
    series, indicator = a_year_of_months()
    quarters = series.groupby(series.index.asfreq("Q")).sum()
    make = {"Chow-Lin": disaggregation._autoregression}.get(name, disaggregation._integrated)
    mean, sd = disaggregation._best_unbiased(quarters, indicator, make, chosen=0.6)
    count = len(series)
    rows = np.arange(count)
    errors = 0.6 ** np.abs(rows[:, None] - rows) / (1.0 - 0.36)
    if name != "Chow-Lin":
        steps = np.eye(count) - np.eye(count, k=-1)
        chain = (np.eye(count) - 0.6 * np.eye(count, k=-1)) @ steps
        errors = np.linalg.inv(chain.T @ chain)
    np.testing.assert_allclose(make(0.6, count), errors, rtol=1e-9, atol=1e-9)
    sums = block_diag(*[np.ones((1, 3))] * (count // 3))
    features = np.column_stack([np.ones(count), indicator / indicator.mean()])
    inverse = np.linalg.inv(sums @ errors @ sums.T)
    precision = (sums @ features).T @ inverse @ (sums @ features)
    coefficients = np.linalg.solve(precision, (sums @ features).T @ inverse @ quarters.to_numpy())
    rest = quarters.to_numpy() - sums @ features @ coefficients
    scale = rest @ inverse @ rest / (len(quarters) - 2)
    system = np.block([[sums @ errors @ sums.T, sums @ features], [(sums @ features).T, np.zeros((2, 2))]])
    right = np.vstack([sums @ errors, features.T])
    weights = np.linalg.solve(system, right)
    variance = scale * (np.diag(errors) - np.sum(weights * right, axis=0))
    np.testing.assert_allclose(mean, quarters.to_numpy() @ weights[: len(quarters)], rtol=1e-9)
    np.testing.assert_allclose(sd, np.sqrt(variance), rtol=1e-7)
    np.testing.assert_allclose(sums @ mean, quarters)


def test_the_correlation_of_errors_has_the_highest_likelihood():
    series, indicator = a_year_of_months()
    quarters = series.groupby(series.index.asfreq("Q")).sum()
    sums = block_diag(*[np.ones((1, 3))] * len(quarters))
    features = sums @ np.column_stack([np.ones(len(series)), indicator])

    def likelihood(rho: float) -> float:
        covariance = sums @ disaggregation._autoregression(rho, len(series)) @ sums.T
        inverse = np.linalg.inv(covariance)
        rest = quarters - features @ np.linalg.solve(features.T @ inverse @ features, features.T @ inverse @ quarters)
        return -0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * len(rest) * np.log(rest @ inverse @ rest)

    best = max(np.linspace(0.0, 0.999, 1000), key=likelihood)
    found, _ = disaggregation.chow_lin(quarters, indicator)
    expected, _ = disaggregation._best_unbiased(quarters, indicator, disaggregation._autoregression, chosen=best)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_denton_and_cholettes_months_are_even_multiples_of_the_indicator():
    series, indicator = a_year_of_months()
    quarters = series.groupby(series.index.asfreq("Q")).sum()
    months, sd = disaggregation.denton(quarters, indicator)
    assert sd is None
    np.testing.assert_allclose(months.reshape(-1, 3).sum(axis=1), quarters)
    evenness = np.square(np.diff(months / indicator.to_numpy())).sum()
    generator = np.random.default_rng(2)
    for _ in range(20):  # any other months with the same sums are less even
        other = generator.normal(size=(len(quarters), 3))
        other = months + 0.01 * (other - other.mean(axis=1, keepdims=True)).reshape(-1)
        assert np.square(np.diff(other / indicator.to_numpy())).sum() > evenness
    thirds, _ = disaggregation.lines(quarters, indicator)
    np.testing.assert_allclose(thirds[:4], np.repeat(quarters.iloc[:2] / 3, 3)[:4])


def test_a_pair_has_the_whole_quarters_that_both_have(tmp_path, monkeypatch):
    months = pd.period_range("2000-02", "2003-02", freq="M")
    table = pd.DataFrame({"a": np.arange(37.0) ** 1.1, "b": 50.0 + np.arange(37.0)}, index=months)
    table.loc["2002-12":, "b"] = np.nan
    truth, indicator = disaggregation.quarterly_problem(table, "a", "b")
    assert (str(truth.index[0]), str(truth.index[-1])) == ("2000-04", "2002-09")
    assert len(truth) == len(indicator) == 30
    monkeypatch.setattr(disaggregation, "PAIRS", {"pair": ("a", "b")})
    monkeypatch.setattr(disaggregation, "us_months", lambda: table)
    disaggregation.disaggregation(tmp_path, methods=("Chow-Lin", "lines"))
    text = (tmp_path / "regression-disaggregation.md").read_text(encoding="utf-8")
    assert "| pair | lines | 1 | 1.000 |" in text  # units are those in which it is 1


def test_gaps_of_a_flux_are_a_share_of_what_was_measured():
    values = np.where(np.random.default_rng(0).random(17_520) < 0.6, 1.0, np.nan)
    hidden = annual.with_flux_gaps(values, 0.45, seed=0)
    assert not (hidden & np.isnan(values)).any()
    assert 0.45 <= hidden.sum() / (~np.isnan(values)).sum() < 0.46


def test_sampling_takes_the_values_at_similar_conditions():
    count = 48 * 30
    drivers = np.column_stack([np.full(count, 300.0), np.full(count, 15.0), np.full(count, 10.0)])
    flux = np.full(count, 5.0)
    asked = 48 * 15
    drivers[asked], flux[asked] = (500.0, 15.0, 10.0), np.nan
    alike = [asked - 100, asked + 200]  # within a week
    drivers[alike], flux[alike] = (480.0, 16.0, 8.0), (-4.0, -8.0)
    far = asked + 48 * 10
    drivers[far], flux[far] = (500.0, 15.0, 10.0), 99.0
    mean, sd = annual.marginal_sampling(flux, drivers, np.array([asked]))
    assert (mean[0], sd[0]) == (-6.0, pytest.approx(np.sqrt(8.0)))
    flux[alike[0]] = np.nan  # one is too few: two weeks
    mean, _ = annual.marginal_sampling(flux, drivers, np.array([asked]))
    assert mean[0] == pytest.approx((-8.0 + 99.0) / 2)
    drivers[asked] = np.nan  # nothing is known of the conditions: the same hour of the day
    mean, _ = annual.marginal_sampling(flux, drivers, np.array([asked]))
    assert mean[0] == 5.0


def test_a_ridge_regression_has_the_variance_of_a_sum():
    table, hidden = _a_small_year()
    found = annual.ridge_sum(table.mask(hidden[:, None] & (table.columns == "NEE")), hidden, None)
    truth = table["NEE"][hidden].sum()
    assert abs(found.total - truth) < 4.0 * found.error
    assert found.error > 0.3 * np.sqrt(hidden.sum())  # of independent errors of about 0.3


def _a_small_year() -> tuple[pd.DataFrame, np.ndarray]:
    times = pd.date_range("1998-01-01 00:30", periods=48 * 8, freq="30min")
    generator = np.random.default_rng(3)
    sun = 400.0 * np.maximum(np.sin(2.0 * np.pi * np.arange(len(times)) / 48), 0.0)
    warm, dry = 10.0 + sun / 100.0, 4.0 + sun / 90.0 + generator.normal(size=len(times))
    flux = 1.0 - sun / 40.0 + 0.3 * generator.normal(size=len(times))
    hidden = np.zeros(len(times), dtype=bool)
    hidden[200:260] = True
    return pd.DataFrame({"NEE": flux, "Rg": sun, "Tair": warm, "VPD": dry}, index=times), hidden


@pytest.mark.filterwarnings("ignore::UserWarning")  # of errors that are small at night
def test_a_later_year_is_filled_by_what_is_known_of_it_alone(tmp_path, monkeypatch):
    """The sum of a masking that is taken in later is that of a fit to it with the same parameters."""

    class Imputer(CorrelatedGPImputer):
        def fit(self, X, y=None):
            self.set_params(structure="multiscale", inference=Windows(num_steps=20))
            return super().fit(X)

    monkeypatch.setattr(annual, "CorrelatedGPImputer", Imputer)
    table, hidden = _a_small_year()
    other = np.roll(hidden, 120)
    first = table.assign(NEE=table["NEE"].mask(other))
    annual.gp_sum(first, other, tmp_path / "fit")
    masked = table.assign(NEE=table["NEE"].mask(hidden))
    found = annual.gp_sum(masked, hidden, tmp_path / "fit")
    alone = annual.CorrelatedGPImputer.load(tmp_path / "fit").update(masked.set_axis(table.index + annual._LATER))
    filled = alone.transform(masked.set_axis(table.index + annual._LATER))
    assert found.total == pytest.approx(filled["NEE"].to_numpy()[hidden].sum())
    assert abs(found.total - table["NEE"][hidden].sum()) < 4.0 * found.error
    again = annual.gp_sum(first, other, tmp_path / "fit")  # the same masking, later
    imputer = annual.CorrelatedGPImputer.load(tmp_path / "fit")
    assert again.total == pytest.approx(annual._sum_of(imputer, other).total, rel=1e-4)
    assert again.error == pytest.approx(annual._sum_of(imputer, other).error, rel=1e-4)


def test_a_quarter_is_asked_of_months_without_its_product(monkeypatch):
    months = pd.period_range("1990-01", "2016-06", freq="M")
    generator = np.random.default_rng(4)
    columns = {name: np.exp(0.002 * np.arange(318) + 0.01 * generator.normal(size=318)) for name in nowcast._MONTHLY}
    product = pd.Series(np.exp(0.002 * np.arange(318)), months).where(months.month % 3 == 0)
    monkeypatch.setattr(nowcast, "us_months", lambda: pd.DataFrame(columns, index=months).assign(GDPC1=product))
    seen = {}

    def method(table: pd.DataFrame, quarters: pd.Series) -> tuple[float, float]:
        seen.update(table=table, quarters=quarters)
        return 0.6, 1.0

    monkeypatch.setattr(nowcast, "_METHODS", {"mine": method})
    row = nowcast._row(pd.Period("2012Q3"), "mine")
    assert str(seen["quarters"].index[-1]) == "2012Q2"
    assert str(seen["table"].index[-1]) == "2012-09"
    assert row["error"] == pytest.approx(0.0, abs=1e-9)  # three months of .2 per cent
