"""Weighted sums of what a regressor predicts, beside the covariance of all their terms."""

import numpy as np
import pytest

from cgp.regression import MAP, CorrelatedGPRegressor, Laplace, MultiScale, SeriesCorrelatedGPRegression, Windows
from cgp.regression.solvers.choice import SOLVERS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def observations(n=40):
    generator = np.random.default_rng(1)
    x = np.sort(generator.uniform(0, 6, n))
    x[5] = x[4]
    y = np.column_stack([np.sin(x), 40.0 + 5.0 * np.sin(x - 0.4)]) + 0.1 * generator.standard_normal((n, 2))
    y[12:20, 0] = y[17:30, 1] = np.nan
    return x[:, None], y


X, Y = observations()
KINDS = {
    "exact": {"kernel": "rbf", "structure": "coregionalised"},
    "linear": {"kernel": "matern32", "structure": "coregionalised"},
    "shifted": {"kernel": "matern32", "structure": "shifted"},
    "averaged": {"kernel": "matern32"},
    "samples": {"kernel": "matern32", "structure": "coregionalised", "inference": Laplace(num_mixture=3, max_steps=15)},
    "multiscale": {"structure": MultiScale(num_scales=2, periods=(2.0,)), "inference": Windows(num_steps=3)},
}


@pytest.fixture(params=KINDS)
def regressor(request, monkeypatch):
    """In linear time wherever that is possible."""
    if request.param != "exact":
        monkeypatch.setattr("cgp.regression.solvers.choice.SOLVERS", {"linear": SOLVERS["linear"]})
    inference = {"inference": MAP(max_steps=15)} | KINDS[request.param]
    fitted = CorrelatedGPRegressor(random_state=0, **inference).fit(X, Y)
    assert (request.param == "exact") != isinstance(fitted.model_, SeriesCorrelatedGPRegression)
    return fitted


def terms():
    """Of five sums: a gap of each output, both with others between them in time, scattered ones, a single place."""
    generator = np.random.default_rng(2)
    places = [np.arange(12, 20), np.arange(17, 30), np.arange(10, 25), generator.choice(40, 15, replace=False), [3]]
    outputs = [np.zeros(8), np.ones(13), np.arange(15) % 2, generator.integers(0, 2, 15), [1]]
    sums = np.repeat(np.arange(5), [len(each) for each in places])
    order = generator.permutation(len(sums))
    weights = generator.normal(size=len(sums))
    pieces = np.concatenate(places), np.concatenate(outputs).astype(int), weights, sums
    return tuple(piece[order] for piece in pieces)


@pytest.mark.parametrize("noisy", [False, True])
def test_sums_are_those_of_the_whole_covariance(regressor, noisy):
    rows, outputs, weights, sums = terms()
    mean, covariance = regressor.predict(X[rows], return_cov=True, include_noise=noisy)
    terms_of = np.arange(len(rows)), outputs
    means, variances = regressor.posterior_.totals(X[rows], outputs, weights, sums, include_noise=noisy)
    chosen = covariance[terms_of][:, *terms_of]
    for number in range(5):
        w = np.where(sums == number, weights, 0.0)
        assert means[number] == pytest.approx(w @ mean[terms_of], rel=1e-7)
        assert variances[number] == pytest.approx(w @ chosen @ w, rel=1e-6)


def expected_variance(covariance, coefficients):
    """Of a sum of functions, term by term of the series."""
    orders = np.arange(1, len(coefficients) + 1)
    pairs = np.einsum("ki,kj,ijk->ij", coefficients, coefficients, covariance[..., None] ** orders)
    return pairs.sum()


@pytest.mark.parametrize("noisy", [False, True])
def test_sums_of_functions_are_those_of_the_whole_covariance(regressor, noisy):
    """Of every member of a mixture, with deviations and coefficients of its own."""
    rows, outputs, _, sums = terms()
    posterior, generator = regressor.posterior_, np.random.default_rng(3)
    variances = posterior.members(X[rows], include_noise=True)[1]
    deviations = np.sqrt(variances)[:, np.arange(len(rows)), outputs]
    coefficients = generator.normal(size=(len(deviations), 5, len(rows)))
    coefficients[:, 1:, sums == 1] = 0.0  # a linear one
    covariances = posterior.joint_members(X[rows], include_noise=noisy)[1]
    functions = coefficients, deviations
    found = posterior.expansion_variances(X[rows], outputs, functions, sums, include_noise=noisy)
    places = np.arange(len(rows)) * 2 + outputs
    for member, covariance in enumerate(covariances):
        R = covariance[places][:, places] / np.outer(deviations[member], deviations[member])
        for number in range(5):
            mine = sums == number
            expected = expected_variance(R[mine][:, mine], coefficients[member][:, mine])
            assert found[member, number] == pytest.approx(expected, rel=1e-6)


def test_sums_of_draws_have_their_variance(regressor):
    rows, outputs, weights, sums = terms()
    means, variances = regressor.posterior_.totals(X[rows], outputs, weights, sums, include_noise=False)
    draws = regressor.posterior_.draw_at(X[rows], outputs, 4000, random_state=0).T
    totals = np.stack([np.where(sums == number, weights, 0.0) @ draws for number in range(5)])
    error = np.sqrt(variances / 4000)
    assert (np.abs(totals.mean(1) - means) < 4.0 * error).all()
    np.testing.assert_allclose(totals.var(1), variances, rtol=0.12)


def test_sums_after_the_last_observation_go_on_from_it(monkeypatch):
    monkeypatch.setattr("cgp.regression.solvers.choice.SOLVERS", {"linear": SOLVERS["linear"]})
    options = {"inference": MAP(max_steps=15), "random_state": 0}
    fitted = CorrelatedGPRegressor("matern32", structure="coregionalised", **options).fit(X, Y)
    later = X.max() + 0.1 + 0.2 * np.arange(6.0)[:, None]
    outputs, weights = np.arange(6) % 2, np.arange(1.0, 7.0)
    mean, covariance = fitted.predict(later, return_cov=True)
    chosen = covariance[np.arange(6), outputs][:, np.arange(6), outputs]
    means, variances = fitted.posterior_.totals(later, outputs, weights, np.zeros(6, dtype=int))
    assert means == pytest.approx([weights @ mean[np.arange(6), outputs]], rel=1e-9)
    assert variances == pytest.approx([weights @ chosen @ weights], rel=1e-8)


def test_places_are_checked():
    posterior = CorrelatedGPRegressor(structure="coregionalised", inference=MAP(max_steps=3)).fit(X, Y).posterior_
    with pytest.raises(ValueError, match="outputs: expected 2 integers, got float64"):
        posterior.draw_at(X[:2], [0.0, 1.0], 1)
    with pytest.raises(ValueError, match="outputs: expected 0 to 1, got 0 to 2"):
        posterior.totals(X[:2], [0, 2], [1.0, 1.0], [0, 0])
    with pytest.raises(ValueError, match=r"X: expected shape \(t, 1\), got \(2, 2\)"):
        posterior.marginals(np.column_stack([X[:2], X[:2]]))
