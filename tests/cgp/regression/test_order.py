"""The order of the outputs changes nothing."""

import numpy as np
import pytest

from cgp.regression import CorrelatedGPRegressor, MultiScale, Windows

ORDERS = ([2, 0, 1], [1, 0, 2])


def walks(seed=3, count=60):
    """Three random walks with something in common, each with a gap."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=(count, 3)), axis=0) + np.cumsum(rng.normal(size=(count, 1)), axis=0)
    values[10:20, 0] = values[30:45, 1] = values[5:9, 2] = np.nan
    return np.arange(float(count))[:, None], values


def answers(regressor, columns):
    """What a regressor says, outputs put back where they were; columns are those that it was fitted to."""
    back, x = np.argsort(columns), np.arange(5.0)[:, None] + 0.3
    outputs = back[[0, 1, 2, 0, 1]]
    mean, sd = regressor.predict(x, return_std=True)
    covariance = regressor.predict(x, return_cov=True)[1][:, back][..., back]
    new = np.array([[1.0, np.nan, 2.0]])[:, columns]
    delays = regressor.delays_[:, back]
    return {
        "mean": mean[:, back],
        "sd": sd[:, back],
        "covariance": covariance,
        "draws": regressor.posterior_.draw_at(x, outputs, 3, random_state=1),
        "totals": np.array(regressor.posterior_.totals(x, outputs, np.ones(5), np.zeros(5, dtype=int))),
        "left out": np.array(regressor.leave_one_out())[..., back],
        "conditioned": regressor.conditioned(x[-1:] + 90.0, new).predict(x + 91.0)[:, back],
        "noise": regressor.noise_[back],
        "correlation": regressor.correlation_[np.ix_(back, back)],
        "lengthscales": regressor.lengthscales_[:, back],
        "delays": delays - delays[:, :1],
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"structure": "shifted", "inference": "map"},
        {"structure": "affine", "inference": "map"},
        {"structure": "factors", "inference": "map"},
        {"structure": MultiScale(num_scales=2, periods=()), "kernel": "matern32"},
    ],
    ids=["auto", "shifted", "affine", "factors", "multiscale"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_order_of_the_outputs_changes_nothing(options, monkeypatch, tmp_path):
    monkeypatch.setattr(Windows, "num_windows", lambda *_: 3)
    x, values = walks()
    options = {"random_state": 0, **options}
    expected = answers(CorrelatedGPRegressor(**options).fit(x, values), [0, 1, 2])
    for columns in ORDERS:
        regressor = CorrelatedGPRegressor(**options).fit(x, values[:, columns])
        found = answers(regressor, columns)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
    regressor.save(tmp_path)
    again = answers(CorrelatedGPRegressor.load(tmp_path), columns)
    np.testing.assert_allclose(again["mean"], expected["mean"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again["conditioned"], expected["conditioned"], rtol=1e-9, atol=1e-9)


def test_a_process_for_few_processes_is_told_of_further_rows():
    """Samples of the parameters beside compressed rows, and a row that comes later."""
    x, values = walks(count=30)
    regressor = CorrelatedGPRegressor(structure="factors", inference="laplace", random_state=0).fit(x, values)
    target = values[-1] + 1.0
    later = regressor.conditioned([[30.0]], target[None])
    assert abs(later.predict([[30.0]]) - target).max() < abs(regressor.predict([[30.0]]) - target).max()
