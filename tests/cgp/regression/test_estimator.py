import functools
import pickle
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import CosineKernel, LinearKernel, PeriodicKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import cgp.regression.inference.maximum as maximum_module
from cgp.regression import (
    MAP,
    NUTS,
    Auto,
    Coregionalised,
    CorrelatedGPClassifier,
    CorrelatedGPRegressor,
    Laplace,
    Minibatches,
    MultiScale,
    Slices,
    Windows,
)
from cgp.regression.inference.censored import LEARNED_ANEW
from cgp.regression.inference.setting import COMPARED, Setting
from cgp.regression.likelihood import every_process
from cgp.regression.observations import Observations
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.sparse import warn_of_unexplained
from tests.cgp.regression.data import rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Every check applies; scikit-learn itself skips check_array_api_input without SCIPY_ARRAY_API.


@parametrize_with_checks(
    [
        CorrelatedGPRegressor(structure=Auto(2), inference=MAP(max_steps=3)),
        CorrelatedGPClassifier(num_inducing=3, num_epochs=2),
    ]
)
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


X, Y, TRUTH = outputs()
KINDS = {
    "exact": {},
    "sparse": {"num_inducing": 15, "structure": "coregionalised"},
    "stochastic": {
        "num_inducing": 15,
        "structure": "coregionalised",
        "inference": Minibatches(num_epochs=20, batch_size=40),
    },
    "nuts": {"inference": NUTS(num_samples=6, num_warmup=3, num_chains=1), "structure": "coregionalised"},
    "laplace": {"inference": Laplace(num_mixture=20), "structure": "affine"},
    "composed": {
        "kernel": ScaleKernel(PeriodicKernel()) + LinearKernel(),
        "structure": "coregionalised",
        "inference": MAP(max_steps=40),
    },
}


@functools.cache
def fitted(kind="exact"):
    """One fit of each kind for all tests: none changes it."""
    return CorrelatedGPRegressor(random_state=0, **KINDS[kind]).fit(X, Y)


@pytest.mark.parametrize("kind", list(KINDS)[:-1])
def test_one_output_fills_the_gap_of_the_other(kind):
    regressor = fitted(kind)
    mean, sd = regressor.predict(X, return_std=True)
    gap = np.isnan(Y[:, 1])
    assert np.abs(mean - TRUTH)[gap, 1].mean() < 0.5
    assert (sd > 0).all()
    assert np.mean(np.abs(mean - TRUTH)[gap, 1] < 3 * sd[gap, 1]) > 0.8
    assert regressor.score(X, Y) > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_unpickled_predicts_the_same_to_the_bit(kind):
    regressor = fitted(kind)
    again = pickle.loads(pickle.dumps(regressor))
    for expected, result in zip(regressor.predict(X, return_std=True), again.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert again.fit_ == regressor.fit_


@pytest.mark.parametrize("inference", [MAP(max_steps=15), Laplace(max_steps=15)])
def test_kernels_with_priors_are_kept(inference):
    prior = LogNormalPrior(-1.0, 0.01)
    kernel = ScaleKernel(PeriodicKernel(period_length_prior=prior), outputscale_prior=GammaPrior(2.0, 2.0))
    regressor = CorrelatedGPRegressor(kernel, inference=inference, random_state=0).fit(X, TRUTH[:, 0])
    learned = regressor.model_.covar_module.kernels[0].covar_module
    assert learned.base_kernel.period_length.item() == pytest.approx(np.exp(-1.0), rel=0.03)
    again = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    if inference.name == "map":
        log_prior = prior.log_prob(learned.base_kernel.period_length).sum()
        without = pickle.loads(pickle.dumps(regressor.model_))
        del without.covar_module.kernels[0].covar_module.base_kernel._priors["period_length_prior"]
        torch.testing.assert_close(regressor.model_.log_prior() - without.log_prior(), log_prior)


def test_a_composed_kernel_extrapolates_a_trend_with_seasons():
    months = np.arange(90.0)[:, None]
    y = (
        0.02 * months[:, 0]
        + 0.2 * np.sin(months[:, 0] * np.pi / 6)
        + 0.03 * np.random.default_rng(0).standard_normal(90)
    )
    composed, other = (
        CorrelatedGPRegressor(kernel, random_state=0)
        for kernel in ("rbf", LinearKernel() + ScaleKernel(PeriodicKernel()))
    )
    evidence = [float(model.fit(months[:72], y[:72]).model_.log_evidence()) for model in (composed, other)]
    density = [model.log_predictive_density(months[72:], y[72:]).mean() for model in (composed, other)]
    assert evidence[1] > evidence[0] + 10
    assert density[1] > 1.5 > density[0]


@pytest.mark.parametrize("kind", ["exact", "nuts"])
def test_answers_agree_with_each_other(kind):
    regressor, x = fitted(kind), X[::4]
    mean, sd = regressor.predict(x, return_std=True)
    joint_mean, covariance = regressor.predict(x, return_cov=True)
    assert covariance.shape == (10, 2, 10, 2)
    flat = covariance.reshape(2 * len(x), -1)
    np.testing.assert_allclose(joint_mean, mean, atol=1e-9)
    np.testing.assert_allclose(np.sqrt(flat.diagonal()).reshape(-1, 2), sd, rtol=1e-6)
    draws = regressor.sample_y(x, 4000, random_state=1, include_noise=True)
    np.testing.assert_allclose(draws.mean(-1), mean, atol=0.15)
    np.testing.assert_allclose(draws.std(-1), sd, rtol=0.15)
    noiseless = regressor.predict(x, return_std=True, include_noise=False)[1]
    assert (noiseless < sd).all()


def test_missing_values_are_missing_rows():
    padded = np.vstack([X[:12], [[3.3], [4.4]]]), np.vstack([TRUTH[:12], [[np.nan, np.nan], [np.nan, 0.5]]])
    kept = np.vstack([X[:12], [[4.4]]]), np.vstack([TRUTH[:12], [[np.nan, 0.5]]])
    make = functools.partial(CorrelatedGPRegressor, random_state=0, structure="shifted", inference=MAP(max_steps=5))
    first, second = make().fit(*kept), make().fit(*padded)
    assert len(first.model_.train_targets) == len(second.model_.train_targets) == 25
    np.testing.assert_array_equal(second.posterior_.units.outputs.unit, first.posterior_.units.outputs.unit)


@functools.cache
def in_units(unit_x=1.0, unit_y=1.0, offset=0.0):
    x, y, _ = outputs(20)
    x = (x + offset) * unit_x
    mean, sd = (
        CorrelatedGPRegressor(random_state=0, inference=Slices(max_steps=6), structure="shifted")
        .fit(x, y * unit_y)
        .predict(x, True)
    )
    return mean / unit_y, sd / unit_y


@settings(max_examples=4)
@given(st.sampled_from([1e-150, 1e-6, 1e6, 1e150]), st.sampled_from([1e-12, 1e3, 1e200]), st.integers(-3, 3))
def test_units_do_not_matter(unit_x, unit_y, offset):
    mean, sd = in_units(unit_x, unit_y, offset)
    np.testing.assert_allclose(mean, in_units()[0], atol=1e-2)
    np.testing.assert_allclose(sd, in_units()[1], rtol=1e-2)


def test_constant_columns_and_outputs():
    x, _, truth = outputs(20)
    constant = np.column_stack([x, np.full(20, 7.0)])
    plain = CorrelatedGPRegressor(inference="map", random_state=0).fit(x, truth[:, 0]).predict(x)
    np.testing.assert_allclose(
        CorrelatedGPRegressor(inference="map", random_state=0).fit(constant, truth[:, 0]).predict(constant),
        plain,
        atol=1e-3,
    )
    mean, sd = CorrelatedGPRegressor().fit(x, np.full(20, 5.0)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=0.01)
    assert (sd < 1.0).all()


def test_one_observation():
    single = CorrelatedGPRegressor().fit([[1.0]], [3.0])
    assert single.structure_ == "independent"
    mean, sd = single.predict([[1.0], [50.0]], return_std=True)
    np.testing.assert_allclose(mean, 3.0, atol=1.0)
    assert np.isfinite(sd).all()
    assert (sd > 0).all()
    assert [part.shape for part in single.predict(X[:5], return_cov=True)] == [(5,), (5, 5)]
    assert single.sample_y(X[:5], 3).shape == (5, 3)
    assert single.log_predictive_density(X[:5], mean[[0] * 5]).shape == (5,)


@pytest.mark.parametrize(
    "arguments",
    [
        {"inference": Slices(max_steps=15)},
        {"num_inducing": 6, "inference": MAP(max_steps=15)},
        {"num_inducing": 6, "inference": Minibatches(num_epochs=3)},
    ],
)
def test_a_covariance_may_be_singular(arguments):
    x = np.linspace(0, 6, 14)[:, None]
    y = np.column_stack([np.sin(x[:, 0]), -3 * np.sin(x[:, 0])])  # without any noise
    regressor = CorrelatedGPRegressor(random_state=0, structure="affine", **arguments).fit(x, y)
    twice = np.concatenate([x, x])
    covariance = regressor.predict(twice, return_cov=True, include_noise=False)[1].reshape(56, 56)
    assert np.linalg.eigvalsh(covariance).min() > -1e-5
    assert np.isfinite(regressor.sample_y(twice, 2)).all()


@pytest.mark.parametrize("kind", ["exact", "sparse", "nuts"])
def test_leaving_one_out_and_conditioning_ask_the_same_model(kind):
    regressor = fitted(kind)
    mean, sd = regressor.leave_one_out()
    assert (np.isnan(mean) == np.isnan(Y)).all()
    assert (np.abs(mean - Y) < 4 * sd)[~np.isnan(Y)].all()
    last = np.mean([model.leave_one_out().mean[..., -1].mean() for model in regressor.models_])  # of the second process
    last = last * regressor.posterior_.units.outputs.unit[1]
    np.testing.assert_allclose(mean[-1, 1], last + np.nanmean(Y[:, 1]), atol=1e-9)
    further = pickle.loads(pickle.dumps(regressor)).partial_fit(X[20:22], TRUTH[20:22])
    before, after = (each.predict(X[20:22], return_std=True) for each in (regressor, further))
    assert (after[1] < before[1] + 1e-9).all()
    mean = further.leave_one_out()[0]
    assert (~np.isnan(mean)).sum() == (~np.isnan(Y)).sum() + 4
    assert np.abs(mean[-2:] - TRUTH[20:22]).max() < 1.0
    with pytest.raises(ValueError, match="y: expected finite values, or NaN"):
        further.partial_fit(X[:1], [[np.inf, 0.0]])
    with pytest.raises(ValueError, match="y: expected at least one observation, got none"):
        further.partial_fit(X[:1], [[np.nan, np.nan]])


def test_masked_outputs_are_not_observed():
    seen, options = (
        np.ma.masked_invalid(np.where(np.isnan(Y), -200.0, Y)),
        {"structure": "shifted", "inference": MAP(max_steps=2)},
    )
    seen[np.isnan(Y)] = np.ma.masked
    with pytest.warns(ConvergenceWarning):
        masked, missing = (CorrelatedGPRegressor(**options).fit(X[:30], y[:30]) for y in (seen, Y))
    masked, missing = (each.partial_fit(X[30:], y[30:]) for each, y in ((masked, seen), (missing, Y)))
    np.testing.assert_array_equal(masked.predict(X), missing.predict(X))


def test_conditioning_is_fitting_with_the_parameters_kept():
    kept = {"random_state": 0, "structure": "shifted", "inference": MAP(max_steps=5)}
    all_at_once = CorrelatedGPRegressor(**kept).fit(X, TRUTH)
    parts = pickle.loads(pickle.dumps(all_at_once))
    units = parts.posterior_.units
    first = Observations(units.inputs.apply(X[:30]), units.outputs.apply(TRUTH[:30])[:, np.argsort(units.numbers)])
    parts.model_.set_train_data(first.rows, first.targets, strict=False)
    parts.partial_fit(X[30:], TRUTH[30:])
    for result, expected in zip(
        parts.predict(X, return_std=True), all_at_once.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(result, expected, atol=1e-9)


def test_works_with_the_tools_of_scikit_learn():
    order = np.random.default_rng(0).permutation(40)
    regressor = CorrelatedGPRegressor(structure="coregionalised", inference=MAP(max_steps=20), random_state=0)
    scores = cross_val_score(clone(regressor), X[order], Y[order], cv=2)  # gaps included
    assert scores.min() > 0.8


@pytest.mark.parametrize(("verbose", "is_said"), [(None, True), (False, False)])
def test_long_fits_are_announced_where_there_is_no_terminal(verbose, is_said, capsys, monkeypatch):
    """By what the estimate says, longer where columns have ends."""
    monkeypatch.setattr("cgp.regression.inference.setting.measured_seconds", lambda *_: 10.0)
    regressor = CorrelatedGPRegressor(verbose=verbose, structure="coregionalised", inference=MAP(max_steps=30))
    monkeypatch.setattr("cgp.regression.estimator._LONG_FIT", 0.0)
    seconds = regressor.estimate(X, Y).seconds
    for lower, times in ((None, 1.0), ([np.nan, np.nanmin(Y) - 1.0], LEARNED_ANEW)):
        regressor.fit(X, Y, lower=lower)
        said = capsys.readouterr().err
        found = re.findall(r"^cgp: a fit to \d+ values, map, about (\d+) s on one core; verbose=True shows", said)
        assert bool(found) is is_said
        assert not found or float(found[0]) == pytest.approx(times * seconds, rel=0.01)
    CorrelatedGPRegressor(verbose=verbose, inference=MAP(max_steps=1)).fit(X, Y)
    assert (" s on one core (4 structures, each by all values at once); verbose" in capsys.readouterr().err) is is_said


def test_says_how_it_goes_and_leaves_the_global_generator(capsys):
    state = torch.random.get_rng_state()
    regressor = CorrelatedGPRegressor(verbose=True, inference=MAP(max_steps=1), num_inducing=10)
    with pytest.warns(ConvergenceWarning, match="The fit has not converged: cut off after 1 steps"):
        regressor.fit(X, Y)
    assert not regressor.fit_.converged
    assert re.search(r"map, about \d+ s:.* steps/s.*nats per row", capsys.readouterr().err)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("seconds", "terminal", "printed"), [(11.0, True, True), (9.0, True, False), (11.0, False, False)]
)
def test_long_fits_say_on_a_terminal_how_they_go(capsys, monkeypatch, seconds, terminal, printed):
    """With the seconds that this machine takes, here twice as many."""
    monkeypatch.setattr(MAP, "pace", lambda *_: 2.0)
    monkeypatch.setattr(MAP, "cost", lambda *_: Cost(seconds, 0.0))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with pytest.warns(ConvergenceWarning):
        CorrelatedGPRegressor(inference=MAP(max_steps=1), num_inducing=10).fit(X, Y)
    assert ("map, about 22 s:" in capsys.readouterr().err) == printed


@pytest.mark.parametrize(
    ("arguments", "x", "y", "message"),
    [
        ({}, np.where(X > 5, np.nan, X), TRUTH, "Input X contains NaN"),
        ({}, (1e9 * X).astype("datetime64[s]"), TRUTH, r"X: expected numbers, such as .*, got datetime64\[s\]"),
        ({}, pd.DataFrame({"n": X[:, 0], "t": pd.to_datetime(X[:, 0])}), TRUTH, r"X: .*, got datetime64\[\w+\]"),
        ({}, pd.Series(pd.to_timedelta(X[:, 0])), TRUTH, r"X: expected numbers, such as .*, got timedelta64\[\w+\]"),
        ({}, X, pd.DataFrame({"t": pd.to_datetime(X[:, 0])}), r"y: expected numbers, .*, got datetime64\[\w+\]"),
        ({}, np.ma.masked_greater(X, 5), TRUTH, "X: expected every value, got a masked array without 7 of them"),
        ({}, X, np.where(TRUTH > 1, np.inf, TRUTH), "Input y contains infinity"),
        ({}, X, np.where(TRUTH[:, 0] > 0.5, np.nan, TRUTH[:, 0]), "Input y contains NaN"),
        ({}, X[:5], TRUTH, "inconsistent numbers of samples"),
        ({}, X, np.column_stack([TRUTH, np.full(40, np.nan)]), r"one observation of each process, got none of \[2\]"),
        ({"num_inducing": 81}, X, TRUTH, "num_inducing: expected at most 80"),
        ({"kernel": "cosine"}, X, TRUTH, "kernel: expected a kernel or one of"),
        ({"kernel": CosineKernel()}, np.column_stack([X, X]), TRUTH, "CosineKernel is not positive semi-definite"),
        ({"inference": "mcmc"}, X, TRUTH, "inference: expected one of"),
        ({"inference": "stochastic"}, X, TRUTH, "num_inducing: expected a number"),
        ({"num_inducing": 5.5}, X, TRUTH, "num_inducing: expected an integer of at least 1"),
        ({"structure": "no"}, X, TRUTH, "structure: expected one of .*'auto'.*, got 'no'"),
        ({"structure": "share"}, X, TRUTH, "structure: expected one of .*, got 'share'; did you mean 'shared'"),
        (
            {"kernel": "rbf"},
            np.arange(10_001.0)[:, None],
            np.zeros(10_001),
            "num_inducing: expected a number for 10001 observations",
        ),
    ],
)
def test_refuses(arguments, x, y, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegressor(**arguments).fit(x, y)


def test_refuses_questions():
    regressor = fitted()
    with pytest.raises(NotFittedError):
        CorrelatedGPRegressor().predict(X)
    with pytest.raises(ValueError, match="return_std, return_cov: expected at most one"):
        regressor.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="n_samples: expected at least 1, got 0"):
        regressor.sample_y(X, 0)
    for ask in (regressor.score, regressor.log_predictive_density):
        for wrong in (TRUTH.T, TRUTH[:, 0], TRUTH[:1], TRUTH[:, :, None]):
            with pytest.raises(ValueError, match=r"y: expected shape \(40, 2\) as in fit, got"):
                ask(X, wrong)
    with pytest.raises(ValueError, match="X has 2 features, but CorrelatedGPRegressor is expecting 1"):
        regressor.predict(np.column_stack([X, X]))


def test_the_structure_is_chosen():
    generator = np.random.default_rng(3)
    covariances = [np.exp(-0.5 * ((X - X.T) / scale) ** 2) + 1e-8 * np.eye(40) for scale in (0.4, 1.5)]
    unrelated = np.column_stack(
        [np.linalg.cholesky(covariance) @ generator.standard_normal(40) for covariance in covariances]
    )
    delayed = np.sin(2 * X - [0.0, 1.0])
    noise = 0.05 * generator.standard_normal((40, 2))
    for targets, expected in ((Y, "coregionalised"), (unrelated + noise, "independent"), (delayed + noise, "shifted")):
        regressor = fitted() if targets is Y else CorrelatedGPRegressor(random_state=0).fit(X, targets)
        assert regressor.structure_ == min(regressor.criteria_, key=regressor.criteria_.get) == expected
        assert (len(regressor.models_) == 1) == (expected == "independent")
        assert regressor.models_[0] is regressor.model_


@pytest.mark.parametrize(
    ("criteria", "averaged"),
    [
        ((50.0, 10.0, 39.0, 20.0), ["shared", "shifted"]),
        ((10.0, 0.0, -5.0, 90.0), ["shifted", "coregionalised", "shared"]),
        ((10.0, 0.0, -5.0, -6.0), ["independent"]),
    ],
)
def test_structures_near_the_best_are_averaged(criteria, averaged, monkeypatch):
    values = iter(criteria)
    monkeypatch.setattr(maximum_module, "criterion", lambda model: next(values))
    fits = maximum_module.closed_form(Setting(Observations.of_rows(*rows(), 3), Auto()), 0, max_steps=1)
    assert [structure.name for structure in fits.structures] == averaged
    assert dict(zip(COMPARED, criteria, strict=True)) == fits.criteria
    assert [fits.compared[name][0] for name in averaged] == fits.models


def test_structures_are_averaged():
    regressor = fitted()
    units = regressor.posterior_.units
    places = every_process(torch.as_tensor(units.inputs.apply(X)), 2)[:, units.numbers].flatten(0, 1)
    each = np.array([model.moments(places, noisy=True) for model in regressor.models_])
    means, variances = each[:, 0], each[:, 1]
    result = regressor.predict(X, return_std=True)
    unit = units.outputs.unit
    np.testing.assert_allclose(units.outputs.apply(result[0]).ravel(), means.mean(0))
    np.testing.assert_allclose((result[1] / unit).ravel() ** 2, variances.mean(0) + means.var(0))


def test_a_mixture_has_the_moments_and_the_density_of_its_members(monkeypatch):
    regressor = fitted()
    generator = np.random.default_rng(0)
    means, roots = generator.standard_normal((4, 80)), generator.standard_normal((4, 80, 80))
    covariances = roots @ np.swapaxes(roots, -1, -2) / 80
    variances = np.diagonal(covariances, axis1=-2, axis2=-1)
    marginals = means.reshape(4, 40, 2), variances.reshape(4, 40, 2)
    monkeypatch.setattr(regressor.posterior_, "members", lambda x, include_noise: marginals)
    monkeypatch.setattr(regressor.posterior_, "joint_members", lambda x, include_noise: (means, covariances))
    unit = regressor.posterior_.units.outputs.unit
    mean, sd = regressor.predict(X, return_std=True)
    draws = means + np.sqrt(variances) * generator.standard_normal((20_000, 4, 80))
    np.testing.assert_allclose((sd / unit).ravel(), draws.std((0, 1)), rtol=0.05)
    np.testing.assert_allclose(regressor.posterior_.units.outputs.apply(mean).ravel(), draws.mean((0, 1)), atol=0.05)
    covariance = regressor.predict(X, return_cov=True)[1] / unit[:, None, None] / unit
    expected = covariances.mean(0) + np.cov(means.T, bias=True)
    np.testing.assert_allclose(covariance.reshape(80, 80), expected)
    value = regressor.posterior_.units.outputs.apply(TRUTH).reshape(80)
    density = logsumexp(norm(means, np.sqrt(variances)).logpdf(value), axis=0) - np.log(4)
    result = regressor.log_predictive_density(X, TRUTH) + np.log(unit)
    np.testing.assert_allclose(result.ravel(), density)


@pytest.mark.parametrize("options", [{}, {"inference": Minibatches(num_epochs=5)}])
def test_too_few_inducing_inputs_give_a_warning(options):
    time = np.arange(600.0)[:, None]
    noise = 0.3 * np.random.default_rng(0).standard_normal(600)
    fast, slow = np.sin(time[:, 0] / 5) + noise, np.sin(time[:, 0] / 100) + noise
    make = functools.partial(CorrelatedGPRegressor, num_inducing=15, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match=r"The 15 inducing inputs explain \d+% of the variance"):
        make().fit(time, fast)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(time, slow)
    assert not [warning for warning in caught if "inducing inputs" in str(warning.message)]


@pytest.mark.parametrize(
    ("inference", "option"),
    [
        (MAP, "num_epochs"),
        (Laplace, "batch_size"),
        (Slices, "num_chains"),
        (Laplace, "num_samples"),
        (MAP, "num_mixture"),
        (Minibatches, "max_steps"),
        (Windows, "num_starts"),
        (Coregionalised, "periods"),
        (MultiScale, "num_components"),
    ],
)
def test_options_of_another_inference_or_structure_are_a_type_error(inference, option):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
        inference(**{option: 9})


@pytest.mark.parametrize(
    ("kind", "option", "least"),
    [
        (MAP, "num_starts", 1),
        (MAP, "max_steps", 1),
        (Laplace, "num_mixture", 1),
        (NUTS, "num_chains", 1),
        (NUTS, "num_warmup", 1),
        (NUTS, "num_samples", 4),
        (Minibatches, "num_epochs", 1),
        (Minibatches, "batch_size", 1),
        (Coregionalised, "num_components", 1),
        (MultiScale, "num_factors", 0),
    ],
)
def test_counts_are_checked(kind, option, least):
    with pytest.raises(ValueError, match=f"{option}: expected an integer of at least {least}, got {least - 1}"):
        kind(**{option: least - 1})


@pytest.mark.parametrize(
    ("structure", "inference", "message"),
    [
        ("multiscale", MAP(num_starts=4), "inference: expected 'auto' or 'windows' for structure='multiscale'"),
        ("multiscale", "laplace", "inference: expected 'auto' or 'windows'"),
        ("shared", "windows", "structure: expected 'multiscale' for inference='windows', got 'shared'"),
    ],
)
def test_what_does_not_go_together_is_refused(structure, inference, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegressor(structure=structure, inference=inference).fit(X, TRUTH)


def test_the_share_of_the_prior_without_inducing_inputs_is_reported():
    time = np.arange(300.0)[:, None]
    regressor = CorrelatedGPRegressor(num_inducing=30, inference=MAP(max_steps=1), random_state=0).fit(
        time, np.sin(time[:, 0])
    )
    kernel, model = regressor.model_.covar_module.kernels[0], regressor.model_
    kernel.input_maps.log_scales += 4.0
    rows, points = kernel.points(model.train_inputs[0]), model.inducing_points()[0]
    whitened = torch.linalg.solve_triangular(
        torch.linalg.cholesky(kernel.gram(points)), kernel.gram(points, rows), upper=False
    )
    share = whitened.square().sum(0) / kernel.variances(rows)
    assert model.explained_variance() == pytest.approx(float(share.mean()), abs=1e-4)
    assert model.explained_variance() < 0.9
    with pytest.warns(ConvergenceWarning, match="inducing inputs explain"):
        warn_of_unexplained([model])


def test_samples_too_large_for_memory_predict_the_same(monkeypatch):
    together = fitted("laplace")
    for module in ("solvers.model", "posterior"):
        monkeypatch.setattr(f"cgp.regression.{module}.MOST_ENTRIES", 3 * 67**2)
    apart = CorrelatedGPRegressor(random_state=0, **KINDS["laplace"]).fit(X, Y)
    assert len(together.models_[0].train_targets) == 20
    assert [len(model.train_targets) for model in apart.models_] == [3] * 6 + [2]
    assert all(known is None for known in apart.posterior_.conditions)
    for result, expected in zip(apart.predict(X, return_std=True), together.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-8)
    for result, expected in zip(apart.leave_one_out(), together.leave_one_out(), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-8)


def test_what_was_learned_is_in_the_users_units():
    generator = np.random.default_rng(0)
    hours = np.linspace(0.0, 240.0, 80)[:, None]

    def tide(delay):
        return np.sin((hours[:, 0] - delay) / 12) + 0.5 * np.sin((hours[:, 0] - delay) / 5)

    noise = generator.standard_normal((80, 2)) * [0.05, 5.0]
    y = pd.DataFrame(np.column_stack([tide(0.0), -100 * tide(6.0)]) + noise, columns=["A", "B"])
    y.index = pd.date_range("2024-01-01", periods=80, freq="3h")
    X = pd.DataFrame({"hours": hours[:, 0]}, index=y.index)
    regressor = CorrelatedGPRegressor(structure="shifted", random_state=0).fit(X, y)
    np.testing.assert_allclose(np.sqrt(regressor.noise_), [0.05, 5.0], rtol=0.3)
    assert regressor.correlation_.shape == (2, 2)
    assert regressor.correlation_[0, 1] < -0.95
    assert regressor.delays_.shape == regressor.lengthscales_.shape == (1, 2, 1)
    np.testing.assert_allclose(regressor.delays_[0, :, 0], [0.0, 6.0], atol=0.5)
    assert (regressor.lengthscales_ > 3).all()
    assert (regressor.lengthscales_ < 30).all()
    text = regressor.summary()
    assert text.startswith("structure: shifted\nfit: the loss stands still")
    assert f"B: noise sd {np.sqrt(regressor.noise_[1]):.4g}, correlations" in text
    assert "lengthscale" in text
    assert "delay" in text
    mean, sd = regressor.predict(X.iloc[:5], return_std=True)
    for result in (mean, sd):
        assert result.columns.tolist() == ["A", "B"]
        pd.testing.assert_index_equal(result.index, y.index[:5])
    assert isinstance(regressor.predict(X.to_numpy()), np.ndarray)
    single = CorrelatedGPRegressor(inference=MAP(max_steps=2)).fit(X, y["B"]).predict(X.iloc[:3])
    assert isinstance(single, pd.Series)
    assert single.name == "B"


@pytest.mark.parametrize("kind", ["laplace", "composed", "sparse"])
def test_what_samples_and_kernels_have_learned_has_the_same_shapes(kind):
    regressor = fitted(kind)
    assert regressor.noise_.shape == (2,)
    assert regressor.lengthscales_.shape == regressor.delays_.shape == (1, 2, 1)
    np.testing.assert_allclose(regressor.correlation_.diagonal(), 1.0)
    assert regressor.correlation_[0, 1] < -0.8
    if kind == "laplace":
        noise = (
            np.median(regressor.model_.likelihood.noise.numpy(), axis=0) * regressor.posterior_.units.outputs.unit**2
        )
        np.testing.assert_allclose(regressor.noise_, noise)
    with pytest.raises(NotFittedError):
        _ = CorrelatedGPRegressor().noise_


def test_an_output_with_one_or_two_observations_is_not_certain_of_itself():
    x = np.linspace(0, 6, 14)[:, None]
    y = np.column_stack([10 + 2 * np.sin(x[:, 0]), 9 + np.cos(2 * x[:, 0]), *np.full((2, 14), np.nan)])
    y[3, 2] = 10.0
    y[3:5, 3] = 10.0, 10.001
    y[4:, 0] = y[:3, 1] = np.nan
    regressor = CorrelatedGPRegressor(structure="independent", random_state=0).fit(x, y)
    assert regressor.inference_ == "slice"
    assert fitted().inference_ == "map"
    sd = regressor.predict(x, return_std=True)[1]
    # Far from what was observed; it was .0004, and is .2 to .9 over eight seeds of the sampler.
    assert (sd[[0, -1], 2:] > 0.05).all()
    assert (sd[:, 2:] < 100).all()


@pytest.mark.parametrize("where", ["fit", "partial_fit"])
def test_an_interrupted_call_changes_nothing(where, monkeypatch):
    """Neither scalings nor the list of observations are half of a fit that ctrl-C ended, or that failed."""
    x = np.linspace(0.0, 6.0, 30)[:, None]
    y = np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0])])
    regressor = CorrelatedGPRegressor(structure="coregionalised", inference=MAP(max_steps=5)).fit(x, y)
    before = [np.asarray(part) for part in (*regressor.predict(x, return_std=True), *regressor.leave_one_out())]

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(maximum_module, "fit_model", interrupted)
    monkeypatch.setattr(type(regressor.model_), "extended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(regressor, where)(10.0 * x, 1000.0 * y)
    after = [np.asarray(part) for part in (*regressor.predict(x, return_std=True), *regressor.leave_one_out())]
    for first, second in zip(before, after, strict=True):
        np.testing.assert_array_equal(first, second)


def test_another_default_device_is_refused():
    with (
        torch.device("meta"),
        pytest.raises(ValueError, match=r"got meta; call it within `with torch\.device\('cpu'\):`"),
    ):
        CorrelatedGPRegressor().fit(np.arange(5.0)[:, None], np.arange(5.0))
