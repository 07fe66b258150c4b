import pickle
import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import CosineKernel, LinearKernel, PeriodicKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from cgp.regression import CorrelatedGPRegressor

# Every check applies; scikit-learn itself skips check_array_api_input without SCIPY_ARRAY_API.


@parametrize_with_checks([CorrelatedGPRegressor(max_steps=30), CorrelatedGPRegressor(num_components=2, max_steps=10)])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def outputs(n=40, seed=0):
    generator = np.random.default_rng(seed)
    x = np.linspace(0, 6, n)[:, None]
    y = np.column_stack([np.sin(2 * x[:, 0]), -3 * np.sin(2 * x[:, 0])]) + 0.1 * generator.standard_normal((n, 2))
    truth = y.copy()
    y[n // 3 : 2 * n // 3, 1] = np.nan
    return x, y, truth


def fitted(**arguments):
    x, y, _ = outputs()
    return CorrelatedGPRegressor(random_state=0, **arguments).fit(x, y)


KINDS = [
    {},
    {"num_inducing": 15},
    {"num_inducing": 15, "inference": "stochastic", "num_epochs": 300, "batch_size": 20},
    {"inference": "nuts", "num_samples": 10, "num_warmup": 10, "num_chains": 1},
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("arguments", KINDS)
def test_one_output_fills_the_gap_of_the_other(arguments):
    regressor = fitted(**arguments)
    x, y, truth = outputs()
    mean, sd = regressor.predict(x, return_std=True)
    gap = np.isnan(y[:, 1])
    assert np.abs(mean - truth)[gap, 1].mean() < 0.5
    assert (sd > 0).all()
    assert np.mean(np.abs(mean - truth)[gap, 1] < 3 * sd[gap, 1]) > 0.8
    assert regressor.score(x, y) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("arguments", [*KINDS, {"kernel": ScaleKernel(PeriodicKernel()) + LinearKernel()}])
def test_unpickled_predicts_the_same_to_the_bit(arguments):
    regressor = fitted(**arguments)
    x = outputs()[0]
    again = pickle.loads(pickle.dumps(regressor))
    for expected, found in zip(regressor.predict(x, return_std=True), again.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert again.fit_ == regressor.fit_


def test_shapes_of_answers():
    regressor = fitted()
    x = outputs()[0][:5]
    mean, covariance = regressor.predict(x, return_cov=True)
    assert mean.shape == (5, 2)
    assert covariance.shape == (5, 2, 5, 2)
    assert regressor.sample_y(x, 3).shape == (5, 2, 3)
    assert regressor.log_predictive_density(x, mean).shape == (5, 2)
    single = CorrelatedGPRegressor().fit(*(v[:20] for v in (outputs()[0], outputs()[2][:, 0])))
    mean, covariance = single.predict(x, return_cov=True)
    assert mean.shape == (5,)
    assert covariance.shape == (5, 5)
    assert single.sample_y(x, 3).shape == (5, 3)
    assert single.log_predictive_density(x, mean).shape == (5,)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("arguments", [KINDS[0], KINDS[-1]])
def test_answers_agree_with_each_other(arguments):
    regressor = fitted(**arguments)
    x = outputs()[0][::4]
    mean, sd = regressor.predict(x, return_std=True)
    joint_mean, covariance = regressor.predict(x, return_cov=True)
    flat = covariance.reshape(2 * len(x), -1)
    np.testing.assert_allclose(joint_mean, mean, atol=1e-9)
    np.testing.assert_allclose(np.sqrt(flat.diagonal()).reshape(-1, 2), sd, rtol=1e-6)
    draws = regressor.sample_y(x, 4000, random_state=1, include_noise=True)
    np.testing.assert_allclose(draws.mean(-1), mean, atol=0.15)
    np.testing.assert_allclose(draws.std(-1), sd, rtol=0.15)
    noiseless = regressor.predict(x, return_std=True, include_noise=False)[1]
    assert (noiseless < sd).all()


def test_density_is_that_of_the_interval():
    regressor = fitted()
    x, _, truth = outputs()
    mean, sd = regressor.predict(x, return_std=True)
    expected = -0.5 * ((truth - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(regressor.log_predictive_density(x, truth), expected, rtol=1e-8)


def test_missing_values_are_missing_rows():
    x, y, _ = outputs()
    extra = np.vstack([x, [[3.3], [4.4]]])
    padded = np.vstack([y, [[np.nan, np.nan], [np.nan, 0.5]]])
    kept = np.vstack([x, [[4.4]]]), np.vstack([y, [[np.nan, 0.5]]])
    first = CorrelatedGPRegressor(random_state=0).fit(extra[[*range(40), 41]], padded[[*range(40), 41]])
    second = CorrelatedGPRegressor(random_state=0).fit(*kept)
    np.testing.assert_array_equal(first.predict(x), second.predict(x))
    assert len(first.model_.train_targets) == int((~np.isnan(kept[1])).sum())


@settings(max_examples=5)
@given(st.sampled_from([1e-150, 1e-6, 1e6, 1e150]), st.sampled_from([1e-12, 1e3, 1e200]), st.integers(-3, 3))
def test_units_do_not_matter(unit_x, unit_y, offset):
    x, y, _ = outputs(20)
    one = CorrelatedGPRegressor(random_state=0, max_steps=50).fit(x, y)
    other = CorrelatedGPRegressor(random_state=0, max_steps=50).fit((x + offset) * unit_x, y * unit_y)
    expected, found = one.predict(x, return_std=True), other.predict((x + offset) * unit_x, return_std=True)
    np.testing.assert_allclose(found[0] / unit_y, expected[0], atol=1e-2)
    np.testing.assert_allclose(found[1] / unit_y, expected[1], rtol=1e-2)


def test_constant_columns_and_outputs():
    x, _, truth = outputs(20)
    constant = np.column_stack([x, np.full(20, 7.0)])
    plain = CorrelatedGPRegressor(random_state=0).fit(x, truth[:, 0]).predict(x)
    np.testing.assert_allclose(
        CorrelatedGPRegressor(random_state=0).fit(constant, truth[:, 0]).predict(constant), plain, atol=1e-3
    )
    mean, sd = CorrelatedGPRegressor().fit(x, np.full(20, 5.0)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=0.01)
    assert (sd < 1.0).all()


def test_one_observation():
    mean, sd = CorrelatedGPRegressor().fit([[1.0]], [3.0]).predict([[1.0], [50.0]], return_std=True)
    np.testing.assert_allclose(mean, 3.0, atol=1.0)
    assert np.isfinite(sd).all()
    assert (sd > 0).all()


def test_repeated_inputs():
    x = np.repeat(np.linspace(0, 3, 8), 5)[:, None]
    y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    mean, sd = CorrelatedGPRegressor().fit(x, y).predict(x, return_std=True)
    assert np.abs(mean - np.sin(x[:, 0])).mean() < 0.1
    assert sd.mean() == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("arguments", [{}, {"num_inducing": 6}, {"num_inducing": 6, "inference": "stochastic"}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_covariance_may_be_singular(arguments):
    x = np.linspace(0, 6, 14)[:, None]
    y = np.column_stack([np.sin(x[:, 0]), -3 * np.sin(x[:, 0])])  # without any noise
    regressor = CorrelatedGPRegressor(random_state=0, max_steps=15, **arguments).fit(x, y)
    twice = np.concatenate([x, x])
    covariance = regressor.predict(twice, return_cov=True, include_noise=False)[1].reshape(56, 56)
    assert np.linalg.eigvalsh(covariance).min() > -1e-5
    assert np.isfinite(regressor.sample_y(twice, 2)).all()


def test_works_with_the_tools_of_scikit_learn():
    x, _, truth = outputs()
    order = np.random.default_rng(0).permutation(40)
    scores = cross_val_score(clone(CorrelatedGPRegressor(random_state=0)), x[order], truth[order, 0], cv=3)
    assert scores.min() > 0.8


def test_progress_is_shown(capsys):
    fitted(verbose=True)
    assert "map: step" in capsys.readouterr().err


def test_says_when_it_has_not_converged():
    with pytest.warns(ConvergenceWarning, match="The fit has not converged: cut off after 1 steps"):
        regressor = fitted(max_steps=1)
    assert not regressor.fit_.converged


X, Y = outputs()[0], outputs()[2]


@pytest.mark.parametrize(
    ("arguments", "x", "y", "message"),
    [
        ({}, np.where(X > 5, np.nan, X), Y, "Input X contains NaN"),
        ({}, np.where(X > 5, np.inf, X), Y, "Input X contains infinity"),
        ({}, X, np.where(Y > 1, np.inf, Y), "Input y contains infinity"),
        ({}, X, np.where(Y[:, 0] > 0.5, np.nan, Y[:, 0]), "Input y contains NaN"),
        ({}, X[:, 0], Y, "Expected 2D array, got 1D array"),
        ({}, X[:5], Y, "inconsistent numbers of samples"),
        ({}, X, Y[:, :, None], r"dim 3|expected <= 2"),
        (
            {},
            X,
            np.column_stack([Y, np.full(40, np.nan)]),
            r"at least one observation of each process, got none of \[2\]",
        ),
        ({"num_inducing": 81}, X, Y, "num_inducing: expected at most 80"),
        ({"num_inducing": 0}, X, Y, "num_inducing: expected an integer of at least 1"),
        ({"kernel": "cosine"}, X, Y, "kernel: expected a kernel or one of"),
        ({"kernel": CosineKernel()}, np.column_stack([X, X]), Y, "CosineKernel is not positive semi-definite"),
        ({"inference": "mcmc"}, X, Y, "inference: expected one of"),
        ({"inference": "stochastic"}, X, Y, "num_inducing: expected a number"),
        ({"num_starts": 0}, X, Y, "num_starts: expected an integer of at least 1, got 0"),
        ({"num_mixture": 0}, X, Y, "num_mixture: expected an integer of at least 1, got 0"),
        ({"num_inducing": "50"}, X, Y, "num_inducing: expected an integer of at least 1"),
        ({"num_inducing": 5.5}, X, Y, "num_inducing: expected an integer of at least 1"),
        ({"structure": "no"}, X, Y, "structure: expected 'auto' or one of .*, got 'no'"),
        ({}, np.zeros((10_001, 1)), np.zeros(10_001), "num_inducing: expected a number for 10001 observations"),
    ],
)
def test_refuses(arguments, x, y, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegressor(**arguments).fit(x, y)


def test_refuses_questions():
    regressor = fitted(max_steps=200)
    with pytest.raises(NotFittedError):
        CorrelatedGPRegressor().predict(X)
    with pytest.raises(ValueError, match="return_std, return_cov: expected at most one"):
        regressor.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="n_samples: expected at least 1, got 0"):
        regressor.sample_y(X, 0)
    for ask in (regressor.score, regressor.log_predictive_density):
        for wrong in (Y.T, Y[:, 0], Y[:1], Y[:, :, None]):
            with pytest.raises(ValueError, match=r"y: expected shape \(40, 2\) as in fit, got"):
                ask(X, wrong)
    with pytest.raises(ValueError, match="X has 2 features, but CorrelatedGPRegressor is expecting 1"):
        regressor.predict(np.column_stack([X, X]))


def test_the_structure_is_chosen():
    x, y, _ = outputs()
    generator = np.random.default_rng(3)
    covariances = [np.exp(-0.5 * ((x - x.T) / scale) ** 2) + 1e-8 * np.eye(40) for scale in (0.4, 1.5)]
    unrelated = np.column_stack([np.linalg.cholesky(one) @ generator.standard_normal(40) for one in covariances])
    delayed = np.sin(2 * x - [0.0, 1.0])
    noise = 0.05 * generator.standard_normal((40, 2))
    for targets, expected in ((y, "coregionalised"), (unrelated + noise, "independent"), (delayed + noise, "shifted")):
        regressor = CorrelatedGPRegressor(random_state=0).fit(x, targets)
        assert regressor.structure_ == min(regressor.criteria_, key=regressor.criteria_.get) == expected


def test_a_mixture_has_the_moments_and_the_density_of_its_members():
    regressor = fitted()
    x, _, truth = outputs()
    generator = np.random.default_rng(0)
    means, roots = generator.standard_normal((4, 80)), generator.standard_normal((4, 80, 80))
    covariances = roots @ np.swapaxes(roots, -1, -2) / 80
    variances = np.diagonal(covariances, axis1=-2, axis2=-1)
    regressor._marginals = lambda x, noisy: (means.reshape(4, 40, 2), variances.reshape(4, 40, 2))
    regressor._joint = lambda x, noisy: (means, covariances)
    unit = regressor.y_scaling_.unit
    mean, sd = regressor.predict(x, return_std=True)
    draws = means + np.sqrt(variances) * generator.standard_normal((20_000, 4, 80))
    np.testing.assert_allclose((sd / unit).ravel(), draws.std((0, 1)), rtol=0.05)
    np.testing.assert_allclose(regressor.y_scaling_.apply(mean).ravel(), draws.mean((0, 1)), atol=0.05)
    covariance = regressor.predict(x, return_cov=True)[1] / unit[:, None, None] / unit
    expected = covariances.mean(0) + np.cov(means.T, bias=True)
    np.testing.assert_allclose(covariance.reshape(80, 80), expected)
    value = regressor.y_scaling_.apply(truth).reshape(80)
    density = logsumexp(norm(means, np.sqrt(variances)).logpdf(value), axis=0) - np.log(4)
    found = regressor.log_predictive_density(x, truth) + np.log(unit)
    np.testing.assert_allclose(found.ravel(), density)


def test_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    fitted(num_inducing=10)
    assert torch.equal(torch.random.get_rng_state(), state)
