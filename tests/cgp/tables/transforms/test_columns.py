"""Moments, sums and scores of transformed columns, against closed forms and draws."""

import numpy as np
import pytest
from scipy.stats import lognorm, norm

from cgp import CorrelatedGPImputer
from cgp.comparisons import gaussian_scores
from cgp.regression import MAP, Laplace
from cgp.tables.transforms.columns import TransformedPosterior, Transforms
from cgp.tables.transforms.kinds import BoxCox, Logit, Rectified, Unchanged, YeoJohnson

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"structure": "coregionalised", "inference": MAP(max_steps=30), "random_state": 0}
KINDS = (BoxCox(), Unchanged(), YeoJohnson(power=0.5), Logit(margin=0.0))


def transforms():
    return Transforms(KINDS, tuple("abcd"))


def skewed(count=60):
    """Three columns: one long-tailed and positive, one Gaussian, one between 0 and 1; with gaps."""
    t, rng = np.arange(count) / 4.0, np.random.default_rng(0)
    latent = np.column_stack([np.sin(t), np.sin(t + 0.3), np.cos(t / 2)]) + 0.2 * rng.normal(size=(count, 3))
    table = np.column_stack([np.exp(1.5 * latent[:, 0]), latent[:, 1], 1.0 / (1.0 + np.exp(-2.0 * latent[:, 2]))])
    table[10:18, 0] = table[14:25, 1] = table[30:36, 2] = table[45, :2] = table[50:53, 0] = np.nan
    return table


@pytest.fixture(scope="module")
def imputer():
    kinds = {0: "log", 2: Logit()}
    return CorrelatedGPImputer(transforms=kinds, **QUICK).fit(skewed())


def test_what_was_chosen_is_said():
    powers = BoxCox(power=0.5, shift=3.28453875), Unchanged(), BoxCox(power=0.25), BoxCox(power=0.5, lower=2.0)
    said = "NO2: (x + 3.28)^0.5, never below 0, Q: x^0.25, never below 0, h: (x - 2)^0.5, never below 2"
    assert str(Transforms(powers, ("NO2", "T", "Q", "h"))) == said
    kinds = BoxCox(shift=3.28453875), BoxCox(), BoxCox(lower=2.0), BoxCox(shift=1.5, lower=-1.0)
    logs = "a: log(x + 3.28), never below 0, b: log(x), c: log(x - 2), d: log(x + 2.5), never below -1"
    assert str(Transforms(kinds, tuple("abcd"))) == logs
    assert str(Transforms.none(["T"])) == "none"


def test_moments_are_those_of_the_log_normal():
    mean, sd = transforms().moments(np.full((1, 1, 4), 0.3), np.full((1, 1, 4), 0.8))
    assert mean[0, 0] == pytest.approx(lognorm(0.8, scale=np.exp(0.3)).mean(), rel=1e-9)
    assert sd[0, 0] == pytest.approx(lognorm(0.8, scale=np.exp(0.3)).std(), rel=1e-9)
    assert (mean[0, 1], sd[0, 1]) == pytest.approx((0.3, 0.8), rel=1e-12)
    z = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    for p in (2, 3):
        values = KINDS[p].inverse(0.3 + 0.8 * z)
        assert (mean[0, p], sd[0, p]) == pytest.approx((values.mean(), values.std()), rel=1e-4)


def test_moments_of_a_mixture_are_those_of_its_members():
    means, sds = np.array([[[0.1] * 4], [[0.9] * 4]]), np.array([[[0.5] * 4], [[0.2] * 4]])
    mean, sd = transforms().moments(means, sds)
    parts = [transforms().moments(means[[k]], sds[[k]]) for k in range(2)]
    expected = np.mean([part.mean for part in parts], axis=0)
    np.testing.assert_allclose(mean, expected)
    second = np.mean([part.sd**2 + part.mean**2 for part in parts], axis=0)
    np.testing.assert_allclose(sd, np.sqrt(second - expected**2))


def test_one_wide_member_of_many_does_not_settle_moments_alone():
    """Of fifty draws of a logarithm's parameters one is nearly ignorant: its values are beyond every interval."""
    means, sds = np.full((2, 51, 4), 2.0)
    sds[:] = 0.2
    sds[0] = 2.1
    mean, sd = transforms().moments(means, sds)
    deviation = np.sqrt(np.square(sds[:, 0]).mean())  # of all, which intervals have
    low, high = np.exp(2.0 + np.array([-2.0, 2.0]) * deviation)
    assert sd[0] < (high - low) / 2.0
    assert low < mean[0] < high
    assert sd[1] == pytest.approx(deviation)  # of what is not transformed nothing is far
    centres, coefficients = TransformedPosterior(None, transforms())._expansion(means, sds, np.arange(4))
    assert (centres.mean(0)[0], np.square(coefficients).sum(1).mean(0)[0] + centres.var(0)[0]) == pytest.approx(
        (mean[0], sd[0] ** 2)
    )


def test_scores_have_the_jacobian():
    truth = np.tile([[1.3, 1.3, 1.3, 0.7]], (5, 1)) * np.linspace(0.5, 1.2, 5)[:, None]
    mean, sd = np.full((5, 4), 0.2), np.full((5, 4), 0.6)
    errors, nll, crps = transforms().scores(truth, mean, sd)
    known = lognorm(0.6, scale=np.exp(0.2))
    np.testing.assert_allclose(nll[:, 0], -known.logpdf(truth[:, 0]))
    plain = gaussian_scores(truth[:, 1] - 0.2, sd[:, 1])
    np.testing.assert_allclose([nll[:, 1], crps[:, 1]], plain)
    np.testing.assert_allclose(norm.cdf(errors[:, 0]), known.cdf(truth[:, 0]))
    steps = np.linspace(1e-6, 40.0, 400_001)
    for row in range(5):
        integral = np.trapezoid((known.cdf(steps) - (steps >= truth[row, 0])) ** 2, steps)
        assert crps[row, 0] == pytest.approx(integral, rel=2e-3)


def test_what_is_filled_is_the_mean_of_the_draws(imputer):
    """And intervals have their quantiles; a column that is not transformed has what it has without transforms."""
    table = skewed()
    gaps = np.isnan(table)
    draws = np.stack(imputer.draws(4000, random_state=0))[:, gaps]
    mean, sd = imputer.transform(table)[gaps], imputer.std_[gaps]
    assert (np.abs(draws.mean(axis=0) - mean) < 5.0 * draws.std(axis=0) / np.sqrt(4000.0)).all()
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.25)
    lower, upper = (end[gaps] for end in imputer.interval(0.9))
    np.testing.assert_allclose((draws < lower).mean(axis=0), 0.05, atol=0.015)
    np.testing.assert_allclose((draws > upper).mean(axis=0), 0.05, atol=0.015)
    positive = np.stack(imputer.draws(50))[:, :, [0, 2]]
    assert (positive >= 0.0).all()
    assert (positive[:, :, 1] <= 1.0).all()


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_sums_have_the_error_of_long_monte_carlo(imputer, how):
    labels, weights = np.arange(60) // 20, np.linspace(0.5, 1.5, 60)
    total, std = imputer.aggregate(labels, how, weights=weights)
    draws = np.stack(imputer.draws(20_000, random_state=5)) * weights[:, None]
    sums = np.stack([draws[:, labels == k].sum(axis=1) / (1.0 if how == "sum" else weights[labels == k].sum())
                     for k in range(3)], axis=1)  # fmt: skip
    spread = sums.std(axis=0)
    np.testing.assert_allclose(total, sums.mean(axis=0), atol=5e-2 * (spread.max() + 1e-9))
    uncertain = std > 0.0
    np.testing.assert_allclose(std[uncertain], spread[uncertain], rtol=0.06)
    np.testing.assert_allclose(spread[~uncertain], 0.0, atol=1e-9)


def test_intervals_of_sums_are_quantiles_of_joint_draws(imputer):
    """Of transformed columns, whose sums are skewed; the ends of others are normal, those of what is known itself."""
    labels, weights = np.arange(60) // 20, np.linspace(0.5, 1.5, 60)
    found = imputer.aggregate(labels, weights=weights, level=0.9)
    draws = np.stack(imputer.draws(8000, random_state=5)) * weights[:, None]
    sums = np.stack([draws[:, labels == k].sum(axis=1) for k in range(3)], axis=1)
    ends = np.quantile(sums, [0.05, 0.95], axis=0)
    for end, expected in zip((found.lower, found.upper), ends, strict=True):
        assert (np.abs(end - expected) <= 0.12 * found.std + 1e-9).all()
    known = found.std == 0.0
    np.testing.assert_array_equal(found.lower[known], found.value[known])
    np.testing.assert_allclose(found.upper[:, 1], found.value[:, 1] + norm.ppf(0.95) * found.std[:, 1])
    skew = (found.upper - found.value)[:, 0].max() / (found.value - found.lower)[:, 0].max()
    assert skew > 1.1


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("inference", [MAP(max_steps=30), Laplace(num_mixture=3, max_steps=15)], ids=["one", "mixture"])
def test_sums_of_logarithms_are_in_closed_form(inference, noisy):
    r"""With m and C of the logarithms of a member: :math:`e^{m_i + m_j + (s_i^2 + s_j^2) / 2}(e^{C_{ij}} - 1)`."""
    options = QUICK | {"kernel": "matern32", "inference": inference}
    imputer = CorrelatedGPImputer(transforms={0: BoxCox()}, **options).fit(skewed()[:, :2])
    latent, rows = imputer.regressor_.posterior_, np.arange(10.0, 18.0)[:, None]
    scaling, weights = latent.units.outputs, np.linspace(0.5, 1.5, 8)
    means, variances = latent.members(rows, include_noise=True)
    m, s2 = scaling.undo(means)[..., 0], (variances * scaling.unit**2)[..., 0]
    C = latent.joint_members(rows, include_noise=noisy)[1][:, ::2, ::2] * scaling.unit[0] ** 2
    expected = np.exp(m + s2 / 2.0) * weights
    spread = np.einsum("si,sj,sij->s", expected, expected, np.expm1(C))
    inputs, zeros = rows, np.zeros(8, dtype=int)
    total, variance = imputer._filled._posterior.totals(inputs, zeros, weights, zeros, include_noise=noisy)
    assert total[0] == pytest.approx(expected.sum(1).mean(), rel=1e-8)
    assert variance[0] == pytest.approx(spread.mean() + expected.sum(1).var(), rel=1e-8)


def test_sums_of_columns_as_they_are_stay_exact(imputer):
    """Beside transformed columns."""
    plain = imputer.regressor_.posterior_
    gaps = np.flatnonzero(np.isnan(skewed()[:, 1]))
    inputs, zeros = gaps[:, None].astype(float), np.zeros(len(gaps), dtype=int)
    expected = plain.totals(inputs, zeros + 1, np.ones(len(gaps)), zeros)[1]
    assert imputer.aggregate()[1][0, 1] == pytest.approx(np.sqrt(expected[0]), rel=1e-9)


def test_sums_of_functions_are_those_of_what_readings_are_expected_to_be(imputer):
    """Given the functions, without noise: by long Monte Carlo over both."""
    rows = np.arange(12.0)[:, None]
    regressor, rng = imputer.regressor_, np.random.default_rng(0)
    functions = np.moveaxis(regressor.sample_y(rows, 4000, random_state=1), -1, 0)
    expected = np.zeros_like(functions)
    for _ in range(200):
        noisy = functions + np.sqrt(regressor.noise_) * rng.normal(size=functions.shape)
        expected += imputer.transforms_.inverse(noisy) / 200.0
    labels = np.where(np.arange(60) < 12, "first", "rest")
    total, std = imputer.aggregate(labels, include_noise=False)
    sums = expected.sum(axis=1)
    np.testing.assert_allclose(total[0], sums.mean(axis=0), atol=4.0 * sums.std(axis=0).max() / np.sqrt(4000.0))
    np.testing.assert_allclose(std[0], sums.std(axis=0), rtol=0.08)


@pytest.mark.parametrize("centre", [-0.8, 0.0, 1.3])
def test_moments_and_scores_of_an_atom_are_those_of_a_rectified_gaussian(centre):
    kinds, sd, law = Transforms((Rectified(),), ("rain",)), 0.9, norm(centre, 0.9)
    mean, spread = kinds.moments(np.full((1, 1, 1), centre), np.full((1, 1, 1), sd))
    exact = law.expect(lambda y: y, lb=0.0), law.expect(lambda y: y**2, lb=0.0)
    assert mean[0, 0] == pytest.approx(exact[0], abs=0.02 * sd)
    assert spread[0, 0] == pytest.approx(np.sqrt(exact[1] - exact[0] ** 2), abs=0.02 * sd)
    truth = np.array([[0.0], [0.7]])
    errors, nll, crps = kinds.scores(truth, np.full((2, 1), centre), np.full((2, 1), sd))
    np.testing.assert_allclose(nll[:, 0], [-law.logcdf(0.0), -law.logpdf(0.7)])
    draws = law.rvs(400_000, random_state=0).clip(min=0.0)
    pairs = 0.5 * np.abs(draws[::2] - draws[1::2]).mean()
    np.testing.assert_allclose(crps[:, 0], [np.abs(draws - y).mean() - pairs for y in truth[:, 0]], atol=0.005)
    assert (np.abs(errors[0, 0]) <= norm.isf(0.025)) == (law.ppf(0.025) <= 0.0)


def test_no_rain_is_filled_without_negative_ends():
    table = np.maximum(skewed()[:, [1, 1]], 0.0)
    table[:, 1] += 0.1 * np.sin(np.arange(len(table)))
    table[:, 1] = np.maximum(table[:, 1], 0.0)
    imputer = CorrelatedGPImputer(transforms="rectified", **QUICK).fit(table)
    lower, upper = imputer.interval(0.95)
    assert lower.min() == 0.0
    assert (upper >= lower).all()
    draws = np.stack(imputer.draws(400))
    assert draws.min() == 0.0
    total, error = imputer.aggregate()
    np.testing.assert_allclose(draws.sum(1).std(0), np.ravel(error), rtol=0.15)
    assert (np.abs(draws.sum(1).mean(0) - np.ravel(total)) < 4.0 * np.ravel(error) / np.sqrt(400.0) + 0.02).all()
    longer = CorrelatedGPImputer(transforms="rectified", **QUICK).fit(np.vstack([table, np.full((3, 2), np.nan)]))
    mean, _, low, high = imputer.forecast(3, 0.8)
    ahead = np.stack(longer.draws(4000))[:, -3:]
    assert low.min() == 0.0
    np.testing.assert_allclose(mean, ahead.mean(0), atol=0.05)
    np.testing.assert_allclose([low, high], np.quantile(ahead, [0.1, 0.9], axis=0), atol=0.08)
    with pytest.raises(ValueError, match="expected values from 0 on in column 'column 0' for 'rectified'"):
        CorrelatedGPImputer(transforms={0: "rectified"}, **QUICK).fit(skewed()[:, [1, 2]])
