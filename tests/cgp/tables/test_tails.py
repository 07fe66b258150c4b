"""Scale and tails of errors by class of gap."""

import numpy as np
import pytest
from scipy.stats import norm, t

from cgp import CorrelatedGPImputer, CorrelatedGPRegressor
from cgp.comparisons import student_reach
from cgp.tables.conformal import gap_labels
from cgp.tables.frames.table import read_table
from cgp.tables.tails import Few, ScaledPosterior, Tail, Tails, few_looks, learned_tails, tail_passes
from cgp.tables.transforms.kinds import BoxCox

BLOCKS = np.arange(400) // 4


@pytest.fixture(scope="module")
def table():
    """Two columns with noise of Student's t, and gaps of one and of four rows."""
    rng, time = np.random.default_rng(1), np.linspace(0.0, 30.0, 400)
    values = np.column_stack([np.sin(time), np.cos(time)]) + 0.1 * t(3).rvs((400, 2), random_state=rng)
    values[rng.choice(400, 12, replace=False), 0] = np.nan
    for first in range(30, 400, 60):
        values[first : first + 4, 1] = np.nan
    return values


@pytest.fixture(scope="module")
def regressor(table):
    x = np.arange(400.0)[:, None]
    return CorrelatedGPRegressor(kernel="matern32", structure="coregionalised", random_state=0).fit(x, table)


def imputer_of(table, tails, transforms=None):
    """An imputer with these tails."""
    imputer = CorrelatedGPImputer(kernel="matern32", structure="coregionalised", transforms=transforms, random_state=0)
    imputer.fit(table)
    imputer.tails_, imputer._known = tails, None
    return imputer


@pytest.mark.parametrize(("scale", "freedom"), [(0.4, 4.0), (1.5, np.inf)])
def test_laws_are_found(scale, freedom):
    sampled = t(freedom) if np.isfinite(freedom) else norm()
    errors = scale * sampled.rvs(4000, random_state=0)
    law = Tail.of(errors, np.arange(4000) // 4)
    assert abs(np.log(law.scale / scale)) < 0.1
    assert law.freedom == freedom or min(law.freedom, freedom) >= 15.0
    inside = np.abs(errors) <= reach(law)
    assert 0.945 <= inside.mean() < 0.97


def reach(law):
    """Where the 95 % interval of errors ends."""
    return student_reach(norm.isf(0.025), law.freedom) * law.deviation


def test_nothing_is_narrower_where_it_is_not_clear():
    normal = np.random.default_rng(0).normal(size=400)
    assert 1.96 <= reach(Tail.of(normal, BLOCKS)) < 2.1
    assert Tail.of(0.2 * normal[:36], BLOCKS[:36]) == Tail()  # nine blocks
    assert 1.96 <= reach(Tail.of(0.2 * normal[:60], BLOCKS[:60])) < 2.1  # of 15 no interval of 95 % is known
    assert reach(Tail.of(0.2 * normal, BLOCKS)) < 0.6


@pytest.mark.parametrize("count", [10, 50, 400])
def test_intervals_are_wider_where_hidden_blocks_are_outside_them(count):
    """Part of the way to what they need, the farther the more blocks there are: here no gain is clear."""
    blocks = np.arange(count)
    errors = 1.15 * norm.ppf((np.random.default_rng(1).permutation(count) + 0.5) / count)
    law = Tail.of(errors, blocks)
    quantile = np.sort(np.abs(errors))[int(np.ceil(0.95 * count)) - 1]
    least = 1.95996 * max(1.05 * quantile / 1.95996, 1.0) ** (count / (count + 50.0))
    assert reach(law) >= least * (1.0 - 1e-5)
    scales = np.linspace(0.5, 3.0, 300)
    dense = [
        np.mean((norm if np.isinf(nu) else t(nu)).logpdf(errors / s) - np.log(s))
        for nu in (3.0, 5.0, 10.0, np.inf)
        for s in scales
        if s * reach(Tail(1.0, nu)) >= least
    ]
    assert law.log_density(errors).mean() > max(dense) - 2e-3  # the most likely of those


def test_deviation_is_that_of_the_law():
    assert Tail(0.5, 5.0).deviation == pytest.approx(0.5 * t(5.0).std())
    assert Tail(0.5).deviation == 0.5


def test_hidden_values_are_predicted_without_a_refit(regressor, table):
    """From the observations that are left, by the dense algebra of the same parameters."""
    kept = ~np.isnan(table)
    kept[100:110, 0] = False
    mean, sd = regressor.posterior_.given(kept).marginals(np.arange(100.0, 110.0)[:, None])
    model, units = regressor.model_, regressor.posterior_.units
    rows, noise = model.train_inputs[0], model.noise().detach()
    places = regressor.posterior_._rows(np.arange(100.0, 110.0)[:, None])
    column = rows[:, -1].numpy() == units.numbers[0]
    left = ~(column & np.isin(np.round(units.inputs.undo(rows[:, :1].numpy())[:, 0]), np.arange(100, 110)))
    K = (model.covar_module(rows[left]).to_dense().detach() + noise[left].diag()).numpy()
    across = model.covar_module(places, rows[left]).to_dense().detach().numpy()
    weights = np.linalg.solve(K, across.T)
    expected = model.mean_module(places).detach().numpy() + weights.T @ model.residual().detach().numpy()[left]
    variance = model.covar_module(places).to_dense().detach().numpy().diagonal() - (across * weights.T).sum(1)
    expected = units.outputs.undo(expected.reshape(10, 2))
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    with_noise = variance.reshape(10, 2)[:, 0] + float(noise[column][0])
    np.testing.assert_allclose(sd[:, 0], np.sqrt(with_noise) * units.outputs.unit[0], rtol=1e-6)


def test_a_series_learns_its_tails(regressor, table):
    numbers, _ = read_table(table, None)
    laws = learned_tails(regressor.posterior_, numbers).laws
    assert "1" in laws
    assert laws["1"].freedom <= 10.0
    few = numbers._replace(values=numbers.values[:200], inputs=numbers.inputs[:200], left_out=numbers.left_out[:200])
    assert learned_tails(regressor.posterior_, few).laws == {}


@pytest.mark.parametrize("transforms", [None, {0: BoxCox(power=0.0, lower=-20.0)}])
def test_everything_that_is_asked_has_the_tails(table, transforms):
    laws = {"1": Tail(0.5, 3.0), "2–4": Tail(2.0)}
    plain = imputer_of(table, Tails({}), transforms)
    other = imputer_of(table, Tails(laws), transforms)
    labels = gap_labels(np.arange(400.0)[:, None], np.isnan(table))
    single, block = labels == "1", labels == "2–4"
    assert single.any()
    assert block.any()
    mean, exact = other._filled._gaussian[0], plain._filled._gaussian[1]
    np.testing.assert_allclose(other._filled._gaussian[1][block], 2.0 * exact[block])
    np.testing.assert_allclose(other._filled._gaussian[1][single], 0.5 * np.sqrt(3.0) * exact[single])
    (lower, upper), kinds = other.interval(0.9), other.transforms_
    reach = 0.5 * t(3.0).ppf(0.95) * exact
    np.testing.assert_allclose(upper[single], kinds.inverse(mean + reach)[single])
    np.testing.assert_allclose(lower[single], kinds.inverse(mean - reach)[single])
    truth = kinds.inverse(mean + 0.7)
    scores = other._filled.scored(truth)
    scale = 0.5 * exact[single]
    slope = np.column_stack([kind.log_slope(truth[:, p]) for p, kind in enumerate(kinds.kinds)])[single]
    np.testing.assert_allclose(scores.nll[single], np.log(scale) - t(3.0).logpdf(0.7 / scale) - slope)
    drawn = np.stack(other.draws(3000))
    np.testing.assert_allclose(drawn.std(0)[block], other.std_[block], rtol=0.1)
    total, error = other.aggregate()
    sums = drawn.sum(1)
    np.testing.assert_allclose(sums.std(0), np.ravel(error), rtol=0.1)
    assert (np.abs(sums.mean(0) - np.ravel(total)) < 4.0 * np.ravel(error) / np.sqrt(3000.0)).all()


def test_factors_are_those_of_the_gap_at_an_input(regressor, table):
    inputs, factors = np.arange(400.0)[:, None], np.where(np.isnan(table), 3.0, 1.0)
    scaled, X = ScaledPosterior(regressor.posterior_, inputs, factors), np.array([[31.0], [31.0], [500.0]])
    before = regressor.posterior_.marginals(X)
    np.testing.assert_allclose(scaled.marginals(X).sd / before.sd, [[1.0, 3.0], [1.0, 3.0], [1.0, 1.0]])
    np.testing.assert_array_equal(scaled.marginals(X).mean, before.mean)


def test_tails_are_kept_on_disk(table, tmp_path):
    imputer = imputer_of(table, Tails({"1": Tail(0.5, 3.0), "2–4": Tail(2.0)}, (Few(1, 3, 2.5),)))
    imputer.save(tmp_path)
    restored = CorrelatedGPImputer.load(tmp_path)
    assert restored.tails_ == imputer.tails_
    np.testing.assert_allclose(restored.interval()[0], imputer.interval()[0])


@pytest.mark.parametrize("looks", [0.1, 2.0, 2.4, 3.0, 7.5, 29.0])
def test_few_looks_have_the_interval_of_as_many_degrees_of_freedom(looks):
    assert reach(Tail.of_looks(looks)) == pytest.approx(t.isf(0.025, max(looks, 2.0)))
    assert Tail.of_looks(30.0) == Tail()


def test_looks_are_as_many_as_the_covariance_of_the_gap_says(regressor, table):
    """A level that wanders, of which 30 rows are shown, beside a column without a long gap; by dense algebra."""
    numbers, _ = read_table(table, None)
    values = numbers.values.copy()
    values[5:375, 0] = np.nan
    posterior = regressor.posterior_.given(~np.isnan(values))
    (few,) = few_looks(posterior, numbers._replace(values=values))
    covariance = posterior.covariance(np.arange(5.0, 375.0)[:, None])[1][:, 0, :, 0]
    assert (few.column, few.values) == (0, 30)
    assert few.looks == pytest.approx(30.0 * np.trace(covariance) / covariance.sum(), rel=1e-6)
    assert few_looks(posterior, numbers) == ()
    values[10:380, 1] = np.nan
    posterior = regressor.posterior_.given(~np.isnan(values))
    both = few_looks(posterior, numbers._replace(values=values))
    covariance = posterior.covariance(np.arange(10.0, 380.0)[:, None])[1][:, 1, :, 1]
    assert [(few.column, few.values) for few in both] == [(0, 30), (1, 26)]  # a gap of four is beside the long one
    assert both[1].looks == pytest.approx(26.0 * np.trace(covariance) / covariance.sum(), rel=1e-6)


@pytest.mark.parametrize(("learned", "looks"), [(Tail(1.5, 4.0), 25.0), (Tail(1.01), 2.0)])
def test_the_wider_law_of_a_long_gap_counts(table, learned, looks):
    """Of the one that hidden blocks taught, and that of few looks."""
    numbers, _ = read_table(table, None)
    values = numbers.values.copy()
    values[5:105, 0] = np.nan
    numbers = numbers._replace(values=values)
    label = gap_labels(numbers.inputs, numbers.missing)[50, 0]
    tails = Tails({label: learned}, (Few(0, 60, looks),))
    wider = max(learned, Tail.of_looks(looks), key=reach)
    assert tails.freedoms(numbers)[50, 0] == wider.freedom


def test_a_gap_longer_than_all_that_a_series_shows_has_wider_intervals():
    """Less so where another column says what is missing, and not in the short gap of the same column."""
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.normal(size=(240, 2)), axis=0)
    values = np.column_stack([level, level[:, 1] + rng.normal(size=240)])
    values[40:200, [0, 2]] = np.nan
    values[20:24, 0] = np.nan
    imputer = CorrelatedGPImputer(random_state=0, transforms=None)
    with pytest.warns(UserWarning, match="has 76 values and a gap of 160 rows"):
        imputer.fit(values)
    level, related = imputer.tails_.few
    assert (level.column, related.column) == (0, 2)
    assert 4.0 * level.looks < related.looks
    ends = {True: imputer.interval()}
    imputer.tails_, imputer._known = Tails(imputer.tails_.laws), None
    ends[False] = imputer.interval()
    wide, narrow = (np.subtract(*ends[few][::-1]) for few in (True, False))
    for few in (level, related):
        factor = t.isf(0.025, few.looks) / norm.isf(0.025)
        np.testing.assert_allclose(wide[40:200, few.column], factor * narrow[40:200, few.column])
    np.testing.assert_array_equal(wide[20:24, 0], narrow[20:24, 0])


def test_passes_over_the_rows_are_counted(table):
    """Four maskings of a series of 500 values or more, of 20,000 in the middle at most."""
    numbers, _ = read_table(table, None)
    assert tail_passes(numbers) == 4.0
    few = numbers._replace(values=numbers.values[:200], inputs=numbers.inputs[:200], left_out=numbers.left_out[:200])
    assert tail_passes(few) == 0.0
    long, _ = read_table(np.zeros((40_000, 1)), None)
    assert tail_passes(long) == 2.0


def test_an_error_at_an_end_is_drawn_from_those_that_it_may_have(regressor, table):
    """Where a column is recorded at its end whatever it would be below, the class is as wide as its posterior."""
    x = np.arange(400.0)[:, None]
    posterior = regressor.posterior_
    mean, sd = posterior.marginals(x)
    drawn = mean + sd * np.random.default_rng(0).normal(size=mean.shape)
    end = np.quantile(drawn[:, 0], 0.6)
    values = np.where(np.isnan(table), np.nan, np.column_stack([drawn[:, 0].clip(end), drawn[:, 1]]))
    numbers, _ = read_table(values, None)
    taken = learned_tails(posterior, numbers).laws
    drawn_laws = learned_tails(posterior, numbers, np.array([end, np.nan])).laws
    assert taken != drawn_laws
