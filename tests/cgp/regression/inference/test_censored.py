"""Observations at a bound that may be anything below it."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, truncnorm

from cgp import CorrelatedGPImputer, CorrelatedGPRegressor
from cgp.comparisons import student_scores
from cgp.regression import Laplace
from cgp.regression.covariances import Coregionalised
from cgp.regression.covariances.rows import dense_covariance
from cgp.regression.inference.censored import censored_evidence, censored_model, truncated_below
from cgp.regression.observations import Observations
from cgp.regression.solvers.compressed import CompressedCorrelatedGPRegression
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression


def test_moments_of_a_truncated_gaussian():
    mean, sd, bound = (np.array(each) for each in ([0.0, 1.0, -3.0, 40.0], [1.0, 0.5, 2.0, 1.0], [0.0, -1.0, 3.0, 0.0]))
    law = truncated_below(*(torch.as_tensor(each) for each in (mean, sd**2, bound)))
    oracle = truncnorm(-np.inf, (bound - mean) / sd, loc=mean, scale=sd)
    np.testing.assert_allclose(law.mean, oracle.mean(), rtol=1e-9)
    np.testing.assert_allclose(law.variance[:3], oracle.var()[:3], rtol=1e-9)
    assert float(law.variance[3]) == pytest.approx(1.0 / 40.0**2, rel=1e-2)  # of an exponential tail
    assert float(law.log_mass[0]) == pytest.approx(np.log(0.5))


def problem(bound, cells=12):
    """Two outputs in turn at twelve times, what is below a bound at it; models by three solvers."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 6.0, cells))
    rows = torch.as_tensor(np.column_stack([x, np.arange(cells) % 2.0]))
    values = torch.as_tensor(np.sin(x) + 0.2 * rng.normal(size=cells)).clamp(min=bound)
    models = []
    for solver in (CorrelatedGPRegression, SeriesCorrelatedGPRegression, CompressedCorrelatedGPRegression):
        covariance = Coregionalised(1).covariance(Observations(np.zeros((2, 1)), np.zeros((2, 2))), "matern32")
        model = solver(rows, values, 2, covar_module=covariance).eval()
        model.likelihood.noise = torch.tensor([0.05, 0.1], dtype=torch.float64)
        models.append(model.requires_grad_(False))
    return rows, values, torch.where(values <= bound, bound, torch.inf), models


def test_expectation_propagation_is_near_the_exact_posterior():
    """That of truncated draws of the readings that are censored, and their probability."""
    rows, values, bounds, models = problem(bound := -0.8)
    first = models[0]
    K, noise = dense_covariance(first.covar_module, rows).numpy(), first.noise().numpy()
    mean, C, at = first.mean_module(rows).numpy(), K + np.diag(noise), np.isfinite(bounds.numpy())
    gain = np.linalg.solve(C[np.ix_(~at, ~at)], C[np.ix_(~at, at)])
    centre = mean[at] + (values.numpy()[~at] - mean[~at]) @ gain
    below = multivariate_normal(centre, C[np.ix_(at, at)] - C[np.ix_(at, ~at)] @ gain)
    evidence = multivariate_normal(mean[~at], C[np.ix_(~at, ~at)]).logpdf(values.numpy()[~at])
    evidence += np.log(below.cdf(np.full(at.sum(), bound), rng=np.random.default_rng(0)))
    draws = below.rvs(400_000, random_state=0)
    draws = draws[(draws <= bound).all(1)]
    assert at.sum() > 1
    assert len(draws) > 20_000
    readings = np.tile(values.numpy(), (len(draws), 1))
    readings[:, at] = draws
    functions = mean + (readings - mean) @ np.linalg.solve(C, K)
    variance = functions.var(0) + np.diag(K - K @ np.linalg.solve(C, K))
    for model in models:
        other = censored_model(model, bounds)
        found = other.moments(rows)
        np.testing.assert_allclose(found.mean, functions.mean(0), atol=0.01)
        np.testing.assert_allclose(found.variance, variance, rtol=0.06)
        assert float(censored_evidence(other, bounds)) == pytest.approx(evidence, abs=0.03)
        assert model.further_noise is None
        again = other.of_rows(torch.arange(len(rows)))
        np.testing.assert_allclose(again.moments(rows).mean, found.mean, atol=1e-9)


def test_one_censored_observation_is_exact():
    """Its site has the moments of the truncated Gaussian, and the evidence is the probability."""
    rows, values, _, (model, *_) = problem(-0.4)
    bounds = torch.full_like(values, torch.inf)
    bounds[5] = values[5]
    other = censored_model(model, bounds)
    left = model.leave_one_out()
    law = truncated_below(left.mean[5], left.variance[5], bounds[5])
    precision = other.further_noise[5].reciprocal()
    assert float(1.0 / (precision + 1.0 / left.variance[5])) == pytest.approx(float(law.variance), rel=1e-6)
    others = model.of_rows(torch.arange(len(rows)) != 5)
    assert float(censored_evidence(other, bounds)) == pytest.approx(
        float(others.log_evidence() + law.log_mass), abs=1e-8
    )


@pytest.fixture(scope="module")
def rain():
    """Rain that another column knows, recorded as 0 where it is below it; and what it would be."""
    rng = np.random.default_rng(0)
    t = np.arange(320.0)
    factor = np.linalg.cholesky(np.exp(-np.abs(t[:, None] - t) / 6.0) + 1e-9 * np.eye(320))
    known = factor @ rng.normal(size=320)
    latent = 0.8 * known + 0.6 * factor @ rng.normal(size=320) - 0.4 + 0.2 * rng.normal(size=320)
    return np.column_stack([latent.clip(0.0), known]), latent


@pytest.fixture(scope="module")
def imputers(rain):
    """Fitted with and without what zeros say, ten blocks of rain hidden."""
    table = rain[0].copy()
    for first in range(10, 320, 31):
        table[first : first + 6, 0] = np.nan
    options = {"structure": "coregionalised", "kernel": "matern12", "inference": "map", "random_state": 0}
    fitted = CorrelatedGPImputer(transforms={0: "rectified"}, **options).fit(table)
    x = np.arange(320.0)[:, None]
    return table, fitted, CorrelatedGPRegressor(**options).fit(x, table)


def test_zeros_are_below_the_end(rain, imputers):
    """The latent process is nearer to what it was than where zeros are values, as are the hidden readings."""
    table, fitted, plain = imputers
    dry = table[:, 0] == 0.0
    x = np.arange(320.0)[:, None]
    functions = [each.predict(x, include_noise=False)[:, 0] for each in (fitted.regressor_, plain)]
    errors = [np.sqrt(np.mean((each - rain[1])[dry] ** 2)) for each in functions]
    assert errors[0] < 0.7 * errors[1]
    assert functions[0][dry].mean() < -0.3
    hidden = np.isnan(table[:, 0])
    crps = fitted._filled.scored(rain[0]).crps[hidden, 0].mean()
    mean, sd = (part[hidden, 0] for part in plain.predict(x, return_std=True))
    assert crps < 0.85 * student_scores((mean - rain[0][hidden, 0]), sd, np.full(hidden.sum(), np.inf))[1].mean()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_zeros_go_with_samples_of_structures_that_are_compared(rain):
    """As a table of 51 to 199 values has them: the models with samples take zeros for values."""
    table = rain[0][:60].copy()
    table[20:26, 0] = np.nan
    imputer = CorrelatedGPImputer(transforms={0: "rectified"}, inference=Laplace(max_steps=5), random_state=0)
    filled = imputer.fit_transform(table)
    assert imputer.regressor_.posterior_.models[0].batch()
    assert (filled[20:26, 0] >= 0.0).all()


def test_what_stands_for_zeros_is_saved(imputers, tmp_path):
    table, fitted, _ = imputers
    fitted.save(tmp_path / "rain")
    again = CorrelatedGPImputer.load(tmp_path / "rain")
    np.testing.assert_allclose(again.transform(table), fitted.transform(table), atol=1e-9)
    further = np.array([[0.0, -1.0], [np.nan, -1.0], [0.0, -1.2], [np.nan, -1.0]])
    filled = [each.update(further)._filled.moments[0][-1, 0] for each in (again, fitted)]
    np.testing.assert_allclose(*filled, atol=1e-9)


def test_further_zeros_are_below_the_end_too(imputers):
    table, fitted, _ = imputers
    x = np.arange(320.0, 326.0)[:, None]
    zeros = np.column_stack([np.zeros(6), np.full(6, np.nan)])
    model = fitted.regressor_.conditioned(x, zeros).model_
    assert (model.further_noise[-6:] > 0.0).all()
    assert int((model.further_noise > 0.0).sum()) >= int((table[:, 0] == 0.0).sum()) + 6
    values = fitted.regressor_.conditioned(x, zeros + 1.0).model_
    assert (values.further_noise[-6:] == 0.0).all()
