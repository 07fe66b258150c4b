"""The posterior by itself: that of a dense Gaussian process in the user's units, unchanged by what is asked of it."""

import numpy as np
import pytest
import torch

from cgp.regression import MAP, CorrelatedGPRegressor, Laplace

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

OPTIONS = {"structure": "coregionalised", "random_state": 0}
INFERENCES = {"one model": MAP(max_steps=5), "samples": Laplace(max_steps=5, num_mixture=3)}


def fitted(inference):
    generator = np.random.default_rng(0)
    x = np.linspace(0, 6, 20)[:, None]
    y = 100.0 + 30.0 * np.sin(x + np.array([0.0, 0.5])) + generator.standard_normal((20, 2))
    y[8:12, 1] = np.nan
    return x, y, CorrelatedGPRegressor(inference=INFERENCES[inference], **OPTIONS).fit(x, y)


def dense(posterior, x, y, at):
    """Mean and covariance of all outputs, output fastest, by the covariance of all rows and numpy."""
    (model,), (inputs, outputs, numbers) = posterior.models, posterior.units
    observed = ~np.isnan(y)
    rows = np.concatenate(
        [np.column_stack([inputs.apply(x)[observed[:, p]], [numbers[p]] * observed[:, p].sum()]) for p in (0, 1)]
    )
    new = np.column_stack([np.repeat(inputs.apply(at), 2, axis=0), np.tile(numbers, len(at))])
    with torch.no_grad():
        K, cross, prior = (
            model.covar_module(torch.as_tensor(a), torch.as_tensor(b)).to_dense().numpy()
            for a, b in ((rows, rows), (new, rows), (new, new))
        )
        mean = model.mean_module.constants.numpy()
    noise = model.likelihood.noise.numpy()
    targets = np.concatenate([outputs.apply(y)[observed[:, p], p] for p in (0, 1)]) - mean[rows[:, -1].astype(int)]
    inverse = np.linalg.inv(K + np.diag(noise[rows[:, -1].astype(int)]))
    unit = np.tile(outputs.unit, len(at))
    centre = outputs.undo((cross @ inverse @ targets + mean[new[:, -1].astype(int)]).reshape(-1, 2))
    covariance = prior - cross @ inverse @ cross.T + np.diag(noise[new[:, -1].astype(int)])
    return centre, covariance * unit[:, None] * unit


def test_it_is_that_of_a_dense_gaussian_process():
    x, y, regressor = fitted("one model")
    at, posterior = x[::5] + 0.1, regressor.posterior_
    mean, covariance = dense(posterior, x, y, at)
    found, sd = posterior.marginals(at)
    np.testing.assert_allclose(found, mean, rtol=1e-9)
    np.testing.assert_allclose(sd.ravel() ** 2, covariance.diagonal(), rtol=1e-8)
    joint, blocks = posterior.covariance(at)
    np.testing.assert_allclose(joint, mean, rtol=1e-9)
    np.testing.assert_allclose(blocks.reshape(8, 8), covariance, rtol=1e-7, atol=1e-7)
    weights = np.arange(1.0, 5.0)
    total, variance = posterior.totals(at, np.array([0, 1, 0, 1]), weights, np.zeros(4, dtype=int))
    chosen = np.array([0, 3, 4, 7])
    assert total == pytest.approx([weights @ mean.ravel()[chosen]])
    assert variance == pytest.approx([weights @ covariance[chosen][:, chosen] @ weights], rel=1e-7)


@pytest.mark.parametrize("inference", INFERENCES)
def test_the_estimator_asks_it(inference):
    x, y, regressor = fitted(inference)
    posterior = regressor.posterior_
    for ours, theirs in (
        (posterior.marginals(x, include_noise=False), regressor.predict(x, return_std=True, include_noise=False)),
        (posterior.leave_one_out(), regressor.leave_one_out()),
        (posterior.log_density(x, y), regressor.log_predictive_density(x, y)),
        (posterior.draw(x, 3, 1).transpose(1, 2, 0), regressor.sample_y(x, 3, 1)),
    ):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs))


@pytest.mark.parametrize("inference", INFERENCES)
def test_further_observations_make_another_one(inference):
    x, _, regressor = fitted(inference)
    posterior = regressor.posterior_
    before = posterior.marginals(x)
    further = posterior.conditioned(x[8:12], 100.0 + np.zeros((4, 2)))
    np.testing.assert_array_equal(posterior.marginals(x), before)
    assert further.observed.whole.shape == (24, 2)
    less, more = (each.members(x[8:12], include_noise=False)[1] for each in (further, posterior))
    assert (less < more).all()
    expected = regressor.conditioned(x[8:12], 100.0 + np.zeros((4, 2))).predict(x, return_std=True)
    np.testing.assert_array_equal(further.marginals(x), expected)
