"""Tables of many columns: the number of factors, and where a fit starts."""

import numpy as np
import pytest
import torch

from cgp.regression import MultiScale
from cgp.regression.covariances.multiscale import _component
from cgp.regression.covariances.wide import WIDE, factor_start, factors_by_scale
from cgp.regression.inference.setting import Setting
from cgp.regression.inference.windows import Window, Windows, window_evidence
from cgp.regression.observations import Grid, Observations
from cgp.regression.solvers.exact import CorrelatedGPRegression

UNIT = _component(1, 0, "matern32", 1.0).base_kernel


def a_table(rows: int, columns: int, factors: int, slow: bool = False, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    common = generator.normal(size=(rows, factors))
    if slow:
        common = common.cumsum(0)
    values = common @ generator.normal(size=(factors, columns)) + 0.5 * generator.normal(size=(rows, columns))
    values = (values - values.mean(0)) / values.std(0)
    return np.where(generator.random(values.shape) < 0.2, np.nan, values)


@pytest.mark.parametrize("factors", [0, 3])
def test_the_number_of_factors_is_found(factors: int):
    counts = factors_by_scale(torch.as_tensor(a_table(150, 60, factors)), 4, UNIT)
    assert sum(counts) == factors
    assert counts[0] == factors  # rows are independent: the shortest scale


def test_slow_factors_are_in_long_scales_and_noise_is_noise():
    start = factor_start(torch.as_tensor(a_table(300, 60, 2, slow=True)), 2, 4, UNIT)
    assert [each.shape[-1] for each in start.factors][:2] == [0, 0]
    assert start.own.sum(0).median() < 0.1
    assert ((start.own > 0.0).sum(0) <= 2).all()


def test_rooms_of_components_are_kept():
    start = factor_start(torch.as_tensor(a_table(150, 60, 3)), (1, 0, 2, 0), 4, UNIT)
    assert [each.shape[-1] for each in start.factors] == [1, 0, 2, 0]


def a_model():
    values = a_table(40, WIDE + 4, 2)
    given = Observations(np.arange(40.0)[:, None], values).standardised()
    structure = MultiScale(3, periods=()).resolved(given)
    setting = Setting(given, structure)
    return setting, setting.model(structure, CorrelatedGPRegression)


def test_a_wide_window_s_evidence_is_that_of_its_observations():
    _, model = a_model()
    grid, window = Grid.of(model.train_inputs[0]), Window(np.arange(2, 14, 2), np.arange(1, 40, 3))
    cells = grid.numbers(model.num_processes)
    numbers = cells[np.ix_(*window)]
    numbers = torch.as_tensor(numbers[numbers >= 0])
    evidence, count = window_evidence(model, grid.inputs, cells, window)
    assert count == len(numbers)
    rows, targets = model.train_inputs[0][numbers], model.train_targets[numbers]
    alone = CorrelatedGPRegression(
        rows,
        targets,
        model.num_processes,
        covar_module=model.covar_module,
        likelihood=model.likelihood,
        mean_module=model.mean_module,
    )
    torch.testing.assert_close(evidence, alone.log_evidence(), rtol=1e-6, atol=1e-6)


def test_columns_without_a_process_of_their_own_have_no_states():
    setting, _ = a_model()
    fits = Windows(num_steps=5).fit(setting, seed=0)
    (model,) = fits.models
    given, noise = setting.observations, model.likelihood.noise
    assert noise.mean() > 0.05
    own = torch.stack([each.loadings.log_scales for each in model.covar_module.kernels]).detach()
    assert (own.exp().square() > 0.04 * noise).sum() < 0.7 * own.numel()
    mean = model.moments(given.rows, noisy=True).mean.detach()
    assert float((mean - given.targets).square().mean()) < 0.6
