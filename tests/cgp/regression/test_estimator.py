import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import CosineKernel
from hypothesis import given, settings
from hypothesis import strategies as st
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
    {"num_inducing": 15, "objective": "dtc"},
    {"num_inducing": 15, "optimizer": "adam", "max_steps": 300},
    {"num_inducing": 15, "inference": "stochastic", "max_steps": 300, "batch_size": 20},
    {"inference": "svi", "num_samples": 20},
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("arguments", KINDS)
def test_one_output_fills_the_gap_of_the_other(arguments):
    regressor = fitted(**arguments)
    x, y, truth = outputs()
    mean, sd = regressor.predict(x, return_std=True)
    gap = np.isnan(y[:, 1])
    assert regressor.signs_.tolist() == [1, -1]
    assert np.abs(mean - truth)[gap, 1].mean() < 0.5
    assert (sd > 0).all()
    assert np.mean(np.abs(mean - truth)[gap, 1] < 3 * sd[gap, 1]) > 0.8
    assert regressor.score(x, y) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("arguments", KINDS)
def test_loaded_and_unpickled_predict_the_same_to_the_bit(arguments, tmp_path):
    regressor = fitted(**arguments)
    x = outputs()[0]
    regressor.save(tmp_path / "model")
    for again in (CorrelatedGPRegressor.load(tmp_path / "model"), pickle.loads(pickle.dumps(regressor))):
        for expected, found in zip(
            regressor.predict(x, return_std=True), again.predict(x, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        assert again.get_params() == regressor.get_params()
        assert again.fit_ == regressor.fit_
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "model.json"}


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


@pytest.mark.parametrize("arguments", [{}, {"inference": "svi", "num_samples": 20}])
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
    assert len(first.fitted_.targets) == int((~np.isnan(kept[1])).sum())


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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nuts_behind_the_same_front(tmp_path):
    x, y, _ = outputs(12)
    regressor = CorrelatedGPRegressor(
        inference="nuts", num_samples=4, num_warmup=3, num_chains=1, random_state=0, max_steps=30
    ).fit(x, y)
    assert regressor.samples_.diagnostics.r_hat
    mean, sd = regressor.predict(x, return_std=True)
    assert mean.shape == sd.shape == (12, 2)
    regressor.save(tmp_path / "model")
    np.testing.assert_array_equal(CorrelatedGPRegressor.load(tmp_path / "model").predict(x), mean)


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
        ({"num_inducing": 0}, X, Y, "num_inducing: expected at least 1"),
        ({"kernel": "cosine"}, X, Y, "base_kernel: expected a kernel or one of"),
        ({"kernel": CosineKernel()}, np.column_stack([X, X]), Y, "CosineKernel is not positive semi-definite"),
        ({"inference": "mcmc"}, X, Y, "inference: expected one of"),
        ({"optimizer": "sgd"}, X, Y, "optimizer: expected one of"),
        ({"objective": "fitc", "num_inducing": 4}, X, Y, "objective: expected one of"),
        ({"inference": "stochastic"}, X, Y, "num_inducing: expected a number"),
        ({"maps": "linear"}, X, Y, "maps: expected one of"),
        ({"num_starts": 0}, X, Y, "num_starts, max_steps: expected at least 1"),
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
    with pytest.raises(ValueError, match="X has 2 features, but CorrelatedGPRegressor is expecting 1"):
        regressor.predict(np.column_stack([X, X]))


def test_refuses_files_of_another_format(tmp_path):
    regressor = fitted()
    regressor.save(tmp_path / "model")
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(description | {"format": 99}))
    with pytest.raises(ValueError, match="path: expected a description of format 1, got 99"):
        CorrelatedGPRegressor.load(tmp_path / "model")
    regressor.kernel = CosineKernel()
    with pytest.raises(ValueError, match="kernel: expected a name to save, got a CosineKernel"):
        regressor.save(tmp_path / "model")


def test_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    fitted(num_inducing=10)
    assert torch.equal(torch.random.get_rng_state(), state)
