"""Windows of a series: parts of the observations, their evidence that of the same model, and what they learn."""

import numpy as np
import pytest
import torch

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.covariances.multiscale import MultiScale, start_at_factors
from cgp.regression.inference.setting import Setting
from cgp.regression.inference.windows import (
    Window,
    Windows,
    WindowSampler,
    fit_windows,
    starting_noise,
    window_evidence,
)
from cgp.regression.likelihood import every_process
from cgp.regression.observations import Grid, Observations
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression


def a_series(count: int, processes: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and targets of outputs that share a slow oscillation, some entries missing."""
    generator = np.random.default_rng(seed)
    t = np.arange(count) / 50.0
    common = np.sin(t) + np.cumsum(generator.normal(size=count)) * 0.05
    values = common[:, None] * np.linspace(1.0, -0.5, processes) + 0.1 * generator.normal(size=(count, processes))
    seen = generator.random(values.shape) > 0.2
    rows = np.concatenate([np.column_stack([t[seen[:, p]], np.full(seen[:, p].sum(), p)]) for p in range(processes)])
    return torch.as_tensor(rows), torch.as_tensor(values.T[seen.T])


def a_model(rows: torch.Tensor, targets: torch.Tensor, kind=SeriesCorrelatedGPRegression):
    processes = int(rows[:, 1].max()) + 1
    covariance = MultiScale(2, 1, periods=()).between(processes, 0.05, 1.0)
    start_at_factors(covariance, torch.eye(processes, dtype=torch.float64))
    return kind(rows, targets, processes, covar_module=covariance)


def test_a_window_s_evidence_is_that_of_its_observations():
    rows, targets = a_series(40)
    model, grid = a_model(rows, targets), Grid.of(rows)
    window = Window(np.arange(3, 33, 3), np.array([0, 1]))
    cells = grid.numbers(2)
    numbers = cells[np.ix_(*window)]
    numbers = torch.as_tensor(numbers[numbers >= 0])
    alone = a_model(rows[numbers], targets[numbers], CorrelatedGPRegression)
    evidence, count = window_evidence(model, grid.inputs, cells, window)
    assert count == len(numbers)
    torch.testing.assert_close(evidence, alone.log_evidence(), rtol=1e-10, atol=1e-10)
    parameters = [p for p in model.parameters() if p.requires_grad]
    mine = torch.autograd.grad(evidence, parameters)
    its = torch.autograd.grad(alone.log_evidence(), [p for p in alone.parameters() if p.requires_grad])
    for value, other in zip(mine, its, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-8, atol=1e-9)


def test_windows_lie_inside_the_table_and_reach_all_of_it():
    rows, _ = a_series(6000, 3)
    windows = WindowSampler(Grid.of(rows).numbers(3) >= 0, seed=0)
    drawn = [windows.draw() for _ in range(200)]
    assert windows.strides == [1, 3, 6]
    assert min(w.rows.min() for w in drawn) < 300
    assert max(w.rows.max() for w in drawn) in range(5700, 6000)
    assert {int(np.diff(w.rows)[0]) for w in drawn} == {1, 3, 6}


def test_a_third_of_the_windows_are_of_consecutive_rows():
    windows = WindowSampler(np.ones((20_000, 3), dtype=bool), seed=0)
    drawn = [int(np.diff(windows.draw().rows)[0]) for _ in range(600)]
    shares = {stride: drawn.count(stride) / 600 for stride in windows.strides}
    assert 0.29 < shares.pop(1) < 0.41
    assert len(shares) == 4
    assert all(0.11 < share < 0.22 for share in shares.values())


@pytest.mark.parametrize("shape", [(3, 1), (2000, 1), (40, 30)])
def test_windows_of_few_rows_and_many_outputs_have_observations(shape: tuple[int, int]):
    observed = np.zeros(shape, dtype=bool)
    observed[shape[0] // 2, -1] = True
    windows = WindowSampler(observed, seed=0)
    for _ in range(20):
        window = windows.draw()
        assert observed[np.ix_(*window)].any()


def test_learning_wins_evidence_of_the_whole_series_and_repeats_itself():
    rows, targets = a_series(600)
    model, again = a_model(rows, targets), a_model(rows, targets)
    before = float(model.log_evidence().detach())
    fit = fit_windows(model, num_steps=30, seed=3)
    fit_windows(again, num_steps=30, seed=3)
    assert float(model.log_evidence().detach()) > before + 100.0
    assert fit.steps == 30
    for parameter, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter, other)


def test_noise_starts_at_what_second_differences_show():
    """Of a smooth and of a rough series, in any order of rows and with gaps; not of steps, and not of few values."""
    x, rng = np.linspace(-1.7, 1.7, 600)[:, None], np.random.default_rng(0)
    values = np.sin(3.0 * x) + rng.normal(size=(600, 4)) * [5e-2, 1e-5, 1.0, 1e-2]
    values[100:130, 0] = values[::2, 3] = np.nan
    values = np.column_stack([values, np.round(x)])
    order = rng.permutation(600)
    noise = starting_noise(Observations(x[order], values[order]), torch.full((5,), 0.1, dtype=torch.float64))
    assert noise[0] == pytest.approx(2.5e-3, rel=0.3)
    torch.testing.assert_close(noise[1:], torch.tensor([1e-3, 0.1, 0.1, 0.1], dtype=torch.float64))


def test_the_noise_of_a_smooth_series_is_learned():
    x, rng = np.linspace(-1.7, 1.7, 400)[:, None], np.random.default_rng(0)
    values = np.sin(4.0 * x + [0.0, 0.5]) * np.sqrt(2.0) + 2e-3 * rng.normal(size=(400, 2))
    setting = Setting(Observations(x, values), MultiScale(num_scales=2, num_factors=1, periods=()))
    (model,) = Windows(num_steps=60).fit(setting, seed=0).models
    assert (model.likelihood.noise.sqrt() < 0.03).all()  # 0.14 from a variance of 0.1


def test_a_relation_of_six_columns_is_known_beyond_a_short_stretch():
    """A sum of random walks, more than there are factors, that was observed at a third of the rows."""
    generator = np.random.default_rng(0)
    walks = np.cumsum(generator.normal(size=(200, 6)), axis=0)
    truth = np.column_stack([walks, walks @ generator.normal(size=6) + 0.2 * generator.normal(size=200)])
    y, hidden = truth.copy(), np.r_[0:70, 130:200]
    y[hidden, -1] = np.nan
    given, errors = Observations(np.arange(200.0)[:, None], y).standardised(), {}
    outputs, places = given.units.outputs, every_process(torch.as_tensor(given.inputs[hidden]), 7)[:, -1]
    for related in (True, False):
        structure = MultiScale(num_scales=3, num_factors=0 if related else 3, periods=(), related=related)
        (model,) = Windows(num_steps=300).fit(Setting(given, structure), seed=0).models
        with torch.no_grad():
            mean, variance = (each.numpy() for each in model.moments(places, noisy=True))
        error = mean - outputs.apply(truth)[hidden, -1]
        errors[related] = np.sqrt(np.mean(error**2))
        assert np.mean(np.abs(error) < 1.96 * np.sqrt(variance)) > 0.9
    assert errors[True] < 0.5 * errors[False]


def test_relations_alone_and_beside_factors_are_a_mixture(tmp_path):
    """Of both fits, with equal weights, in the time of both; a file has both."""
    x, rng = np.arange(80.0)[:, None], np.random.default_rng(0)
    y = rng.normal(size=(80, 1)).cumsum(0) + rng.normal(size=(80, 3)) * [1.0, 1.5, 2.0]
    y[20:40, 1] = np.nan

    def fitted(count):
        structure = MultiScale(num_scales=2, num_factors=count, periods=(), related=True, ridge=0.05)
        return CorrelatedGPRegressor(structure=structure, inference=Windows(num_steps=5), random_state=0).fit(x, y)

    mixture, alone, beside = fitted(None), fitted(0), fitted(3)
    means, deviations = zip(*(each.predict(x, return_std=True) for each in (alone, beside)), strict=True)
    mean, sd = mixture.predict(x, return_std=True)
    np.testing.assert_allclose(mean, np.mean(means, axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sd, np.sqrt(np.mean(np.square(deviations), axis=0) + np.var(means, axis=0)), rtol=1e-8)
    mixture.save(tmp_path)
    np.testing.assert_array_equal(CorrelatedGPRegressor.load(tmp_path).predict(x), mean)


def test_a_variant_more_is_counted_in_what_a_fit_is_expected_to_take():
    x, y = np.arange(200.0)[:, None], np.random.default_rng(0).normal(size=(200, 4))
    costs = {}
    for count in (None, 0, 3):
        structure = MultiScale(num_factors=count, periods=(), related=True, ridge=0.05)
        setting, fit = Setting(Observations(x, y).standardised(), structure), Windows()
        costs[count] = np.array([*fit.cost(setting), fit.pass_seconds(setting), fit.expected_steps(setting)])
    np.testing.assert_allclose(costs[None], costs[0] + costs[3], rtol=1e-12)
