"""Series of many time scales: gross errors are found, gaps are filled better than by lines or by the mean."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from cgp.regression import CorrelatedGPRegressor, MultiScale, Windows
from cgp.regression.conventions import Accepted
from cgp.regression.covariances.multiscale import strongest_periods
from cgp.regression.inference.setting import Setting
from cgp.regression.likelihood import every_process
from cgp.regression.observations import Observations, Scaling


def a_table(count: int = 1500, seed: int = 0) -> np.ndarray:
    """Three outputs that share a fast and a slow process, each with a slow one of its own."""
    generator = np.random.default_rng(seed)

    def wander(step: float, decay: float) -> np.ndarray:
        values = np.zeros(count)
        for i in range(1, count):
            values[i] = decay * values[i - 1] + step * generator.normal()
        return values

    fast, slow = wander(0.3, 0.9), wander(0.1, 0.998)
    outputs = [(fast + slow) * weight + wander(0.02, 0.99) for weight in (1.0, 0.8, -0.6)]
    return np.column_stack(outputs) + 0.02 * generator.normal(size=(count, 3))


def test_a_stretch_of_one_output_is_filled_from_the_others_and_covered():
    truth = a_table()
    y = truth.copy()
    y[700:800, 1] = np.nan
    x = np.arange(len(y), dtype=float)[:, None]
    x_scaling, y_scaling = Scaling.of(x), Scaling.of(y)
    given = Observations(x_scaling.apply(x), y_scaling.apply(y))
    fits = Windows(num_steps=60).fit(Setting(given, MultiScale(num_scales=3, periods=())), seed=0)
    (model,) = fits.models
    assert fits.fit.converged
    places = every_process(torch.as_tensor(x_scaling.apply(x[700:800])), 3)[:, 1]
    with torch.no_grad():
        mean, variance = model.moments(places, noisy=True)
    error = (mean.numpy() * y_scaling.unit[1] + np.nanmean(y[:, 1])) - truth[700:800, 1]
    sd = variance.sqrt().numpy() * y_scaling.unit[1]
    line = np.interp(np.arange(700, 800), [699, 800], y[[699, 800], 1]) - truth[700:800, 1]
    assert np.square(error).mean() < 0.3 * np.square(line).mean()
    assert (np.abs(error) < 1.96 * sd).mean() > 0.8


def test_codes_of_failed_sensors_are_found_and_named():
    y = a_table()
    y[300:304, 2] = 575.8
    y[10, 0] = -999.0
    with pytest.warns(UserWarning, match=r"y: 5 values .* farthest by output: \{0: -999.0, 2: 575.8\}"):
        far = Accepted.of(y).errors(y)
    assert far.sum() == 5
    assert far[300:304, 2].all()
    assert far[10, 0]


@pytest.mark.parametrize(
    "values", [np.zeros(500), np.r_[np.zeros(499), 9.0], np.exp(np.linspace(0, 5, 500)), [1.0, np.nan]]
)
def test_constants_few_spikes_and_skewed_values_are_no_gross_errors(values: np.ndarray):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        column = np.asarray(values)[:, None]
        assert not Accepted.of(column).errors(column).any()


def test_time_scales_lie_between_those_of_the_lags_and_of_the_span():
    inputs = torch.cat([torch.tensor([-60.0]), torch.arange(100.0)]).double()
    given = Observations(inputs[:, None].numpy(), np.zeros((101, 2)))
    kernels = MultiScale(periods=()).covariance(given, "matern32").kernels
    lengthscales = [1.0 / float(kernel.input_maps.all_scales.detach().flatten()[0]) for kernel in kernels]
    assert min(lengthscales) == pytest.approx(2.0)  # median lags
    assert max(lengthscales) == pytest.approx(0.05 * 159.0)


def test_a_regressor_takes_long_series_for_many_scales_with_cycles(monkeypatch):
    monkeypatch.setattr(Windows, "num_windows", lambda *_: 20)
    generator = np.random.default_rng(0)
    t = np.arange(800.0)[:, None] / 4.0
    y = np.sin(2 * np.pi * t / 6.0) * [1.0, 0.7, 0.4] + 0.3 * generator.normal(size=(800, 3)).cumsum(0) / 10
    y[50, 1] = 1e5
    with pytest.warns(UserWarning, match="1 values"):
        regressor = CorrelatedGPRegressor(random_state=0).fit(t, y)
    assert regressor.structure_ == "multiscale"
    assert [round(period, 1) for period in regressor.periods_] == [6.0]
    assert len(regressor.model_.covar_module.kernels) == 6
    mean, sd = regressor.predict(t, return_std=True)
    assert abs(mean[50, 1]) < 10.0
    assert np.isfinite(sd).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf"}, "kernel: expected one of .*'matern32'.*, got 'rbf'"),
        ({"inference": "laplace"}, r"inference: expected 'auto' or 'windows' .*, got Laplace\("),
        ({"num_inducing": 5}, "num_inducing: expected None, got 5"),
        ({"structure": MultiScale(periods=["1D"])}, "periods: expected numbers in units of the input, got '1D'"),
    ],
)
def test_what_stands_against_many_scales_is_named(options: dict, message: str):
    x = np.linspace(0.0, 1.0, 20)[:, None]
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegressor(**{"structure": "multiscale", **options}).fit(x, x[:, 0])


@pytest.mark.parametrize(
    ("periods", "expected"), [("day", "'auto' or numbers, got 'day'"), ([24.0, 0.0], "positive numbers, got 0")]
)
def test_a_word_and_nothing_are_no_periods(periods: Any, expected: str):
    with pytest.raises(ValueError, match=f"periods: expected {expected}"):
        MultiScale(periods=periods)


def test_many_scales_need_one_input():
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="X: expected one column, got 2"):
        CorrelatedGPRegressor(structure="multiscale").fit(x, x[:, 0])


def test_summary_names_cycles_and_what_each_scale_is_worth(capsys):
    x = 0.5 * np.arange(600.0)[:, None]
    y = 5.0 * np.sin(2 * np.pi * x / 24.0) * [1.0, -2.0] + 0.1 * np.random.default_rng(0).normal(size=(600, 2))
    regressor = CorrelatedGPRegressor(
        structure=MultiScale(num_scales=2, periods=[24.0]),
        inference=Windows(num_steps=100),
        random_state=0,
        verbose=True,
    ).fit(x, y)
    assert re.search(r"windows, about \d+ s: 100%.* 100/100 \[\d\d:\d\d<00:00", capsys.readouterr().err)
    lines = regressor.summary().splitlines()
    assert lines[0] == "structure: multiscale"
    assert lines[1].startswith("fit: 100 windows of the series")
    shares = [float(line.split(", ")[-1].split("%")[0]) for line in lines if "component" in line]
    assert len(shares) == 2 * 3
    np.testing.assert_allclose([sum(shares[:3]), sum(shares[3:])], 100.0, atol=1.5)
    for output, cycle in enumerate((lines[5], lines[9])):
        assert re.match(r"  component 3: cycle of 24, drift over [\d.]+, \d+% of the variance$", cycle)
        drift = float(re.search(r"over ([\d.]+),", cycle).group(1))
        kernel = regressor.model_.covar_module.kernels[2].covar_module.kernels[0]
        expected = float(kernel.lengthscale) * regressor.posterior_.units.inputs.unit[0]
        np.testing.assert_allclose([drift, regressor.lengthscales_[2, output, 0]], expected, rtol=1e-3)
    assert min(shares[2], shares[5]) > 80.0


def test_a_cycle_of_one_output_is_found_beside_outputs_without_any():
    t, generator = np.arange(600.0), np.random.default_rng(0)
    walks = generator.normal(size=(600, 5)).cumsum(0)
    day = np.sin(2 * np.pi * t / 24) + walks[:, 0] / 30
    day[100:140] = np.nan
    for place in range(5):
        outputs = np.column_stack([*walks[:, 1 : place + 1].T, day, *walks[:, place + 1 :].T])
        assert strongest_periods(t, outputs) == [pytest.approx(24.0, rel=1e-3)]


def test_outputs_without_cycles_have_none():
    t, generator = np.arange(600.0), np.random.default_rng(0)
    for outputs in generator.normal(size=(30, 600, 5)):
        assert strongest_periods(t, outputs) == strongest_periods(t, outputs.cumsum(0)) == []


def test_periods_are_used_or_refused():
    """Cycles that are named are fitted to a short series, too; structures without cycles do not take them."""
    x = np.arange(60.0)[:, None]
    y = np.sin(2 * np.pi * x / 6)
    cycles = MultiScale(num_scales=1, periods=[6.0])
    regressor = CorrelatedGPRegressor(structure=cycles, random_state=0).fit(x, y)
    assert (regressor.structure_, regressor.periods_) == ("multiscale", [6.0])
    with pytest.raises(ValueError, match="inference: expected .* for structure='multiscale'"):
        CorrelatedGPRegressor(structure=cycles, inference="laplace").fit(x, y)


def test_one_time_is_no_series():
    with pytest.raises(ValueError, match="X: expected two distinct inputs or more, got one, for structure="):
        CorrelatedGPRegressor(structure="multiscale").fit(np.ones((5, 1)), np.arange(5.0))
