"""Series that grow: updates and forecasts from the last state, against the dense form and against all at once."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cgp.regression import (
    MAP,
    CorrelatedGPRegression,
    CorrelatedGPRegressor,
    MultiScale,
    SeriesCorrelatedGPRegression,
    Windows,
)
from cgp.regression.inference.sampling import sample_laplace
from cgp.regression.observations import Observations, Parts
from cgp.regression.posterior import Posterior
from cgp.regression.solvers.choice import SOLVERS
from cgp.statespace import posterior as state_space_posterior
from tests.cgp.regression.data import shuffled
from tests.cgp.regression.solvers.test_series import KERNELS, PAIRS, STRUCTURES, observations, pair, places

CLOSE = partial(torch.testing.assert_close, atol=1e-8, rtol=1e-8)


@pytest.fixture
def filtered(monkeypatch):
    """The lengths of all chains that are gone through."""
    lengths, chain = [], state_space_posterior.Chain

    class Counted(chain):
        def __init__(self, space, variances, observed):
            lengths.append(len(observed))
            super().__init__(space, variances, observed)

    monkeypatch.setattr(state_space_posterior, "Chain", Counted)
    return lengths


def in_order(rows, targets):
    order = torch.argsort(rows[:, 0], stable=True)
    return rows[order], targets[order]


def streamed(model, rows, targets, sizes):
    """The model of the first rows, given the others bit by bit, and its condition."""
    model.set_train_data(rows[: sizes[0]], targets[: sizes[0]], strict=False)
    condition = model.condition()
    for start, size in zip(np.cumsum(sizes)[:-1], sizes[1:], strict=True):
        block = slice(start, start + size)
        model, condition = model.extended(rows[block], targets[block], condition)
    return model, condition


def assert_same_answers(dense, model, condition, new):
    """Later rows, earlier rows and both, jointly, too; and what is left out."""
    latest = dense.train_inputs[0][..., 0].max()
    for x in (new[new[:, 0] >= latest], new[new[:, 0] < latest], new):
        if not len(x):
            continue
        CLOSE(model.moments(x, condition, noisy=True), dense.moments(x, noisy=True))
        result, expected = model.posterior(x, condition), dense(x)
        CLOSE(result.mean, expected.mean)
        CLOSE(result.covariance_matrix, expected.covariance_matrix)
    CLOSE(model.leave_one_out(), dense.leave_one_out())
    torch.testing.assert_close(model.train_inputs[0], dense.train_inputs[0], rtol=0, atol=0)
    torch.testing.assert_close(model.train_targets, dense.train_targets, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize(("structure", "kernel"), PAIRS[1::2])
def test_series_that_grows_is_the_dense_form(structure, kernel):
    rows, targets = in_order(*observations(20, 3, regular=False))
    options = {"kernel": KERNELS[kernel](), "structure": structure, "num_components": STRUCTURES[structure]}
    dense, linear = pair(rows, targets, 3, **options)
    assert_same_answers(dense, *streamed(linear, rows, targets, [9, 1, 1, 5, 1, 3]), places(3))


@torch.no_grad()
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(STRUCTURES)),
    st.sampled_from(["matern12", "matern52"]),
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_series_that_grows_is_the_dense_form_whatever_is_observed(structure, kernel, outputs, sizes, regular, seed):
    rows, targets = in_order(*observations(sum(sizes), outputs, regular=regular, seed=seed))
    options = {"kernel": kernel, "structure": structure, "num_components": STRUCTURES[structure]}
    dense, linear = pair(rows, targets, outputs, seed=seed, **options)
    sizes = [*sizes[:-1], len(rows) - sum(sizes[:-1])]  # of a grid there may be fewer rows
    if min(sizes) > 0:
        assert_same_answers(dense, *streamed(linear, rows, targets, sizes), places(outputs, 4))


@torch.no_grad()
def test_samples_of_the_parameters_grow_alike():
    rows, targets = in_order(*observations(24, 2, regular=True))
    with torch.enable_grad():
        dense, linear = pair(rows, targets, 2, kernel="matern32", structure="shifted")
        samples = sample_laplace(dense, num_samples=3, seed=0)
    first = copy.deepcopy(linear)
    first.set_train_data(rows[:15], targets[:15], strict=False)
    model = first.with_samples(samples)
    condition = model.condition()
    for row in range(15, len(rows)):
        model, condition = model.extended(rows[row : row + 1], targets[row : row + 1], condition)
    assert_same_answers(dense.with_samples(samples), model, condition, places(2))


@torch.no_grad()
def test_earlier_observations_are_conditioned_on_with_all_others():
    rows, targets = observations(20, 2, regular=False)  # in no order
    dense, linear = pair(rows, targets, 2, kernel="matern32", structure="coregionalised")
    assert_same_answers(dense, *streamed(linear, rows, targets, [12, 4, 4]), places(2))


@torch.no_grad()
def test_a_model_does_not_change_when_another_goes_on_from_it():
    rows, targets = in_order(*observations(20, 2, regular=False))
    _, linear = pair(rows[:12], targets[:12], 2, kernel="matern32", structure="shifted")
    condition, before = linear.condition(), linear.moments(places(2))
    branches = [linear.extended(rows[12:k], targets[12:k], condition) for k in (14, 20)]
    assert [len(model.train_targets) for model, _ in branches] == [14, 20]
    CLOSE(linear.moments(places(2), condition), before)
    assert len(linear.train_targets) == 12


@torch.no_grad()
@pytest.mark.parametrize("structure", STRUCTURES)
def test_an_update_and_a_forecast_do_not_go_through_the_past(structure, filtered):
    """Rows that the filter goes through, for 100 and 400 observations before."""
    work = []
    for count in (100, 400):
        rows = torch.cartesian_prod(torch.arange(count // 2 + 5).double(), torch.arange(2).double())
        targets = torch.randn(len(rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        options = {"kernel": "matern32", "structure": structure, "num_components": STRUCTURES[structure]}
        _, model = pair(rows, targets, 2, **options)
        model.set_train_data(rows[:count], targets[:count], strict=False)
        condition = model.condition()
        model.moments(rows[-2:], condition)
        filtered.clear()
        for start in range(count, count + 8, 2):
            model, condition = model.extended(rows[start : start + 2], targets[start : start + 2], condition)
            model.moments(rows[-2:], condition)
            model.posterior(rows[-2:], condition)
            model.draw(rows[-2:], [3], condition)
        work.append(sum(filtered))
    assert work[0] == work[1]
    assert work[0] <= 4 * 6 * 20  # a few pending rows for outputs with delays


def table(count: int, seed: int = 0):
    """Irregular times, three outputs, a third of the values missing, and some rows of a single value."""
    generator = np.random.default_rng(seed)
    t = np.sort(generator.uniform(0.0, 30.0, count)).round(1)
    y = np.sin(t[:, None] / 3.0 + np.arange(3)) + 0.1 * generator.normal(size=(count, 3))
    y[generator.random(y.shape) < 0.3] = np.nan
    y[::7, 1:] = np.nan
    y[np.isnan(y).all(1), 0] = 0.0
    return t[:, None], y


@pytest.mark.filterwarnings("ignore:The fit has not converged")
@pytest.mark.parametrize(
    "options",
    [
        {"structure": "shifted", "kernel": "matern32", "inference": MAP(max_steps=3)},
        {"structure": MultiScale(num_scales=3, periods=[6.0]), "inference": Windows(num_steps=20)},
        {"structure": "auto", "kernel": "matern52", "inference": MAP(max_steps=3)},
    ],
    ids=("shifted", "multiscale", "auto"),
)
def test_regressors_take_rows_one_by_one(options, monkeypatch):
    """Equal to the model of all rows with the same parameters; pickled on the way."""
    x, y = table(90)
    with monkeypatch.context() as patch:
        patch.setattr("cgp.regression.inference.setting.choose_solver", lambda _: SOLVERS["linear"])
        regressor = CorrelatedGPRegressor(random_state=0, **options).fit(x[:70], y[:70])
    assert all(isinstance(model, SeriesCorrelatedGPRegression) for model in regressor.models_)
    for row in range(70, 90):
        regressor.partial_fit(x[row : row + 1], y[row : row + 1])
        regressor.predict(x[row : row + 1] + 0.5, return_std=True)
        if row == 80:
            regressor = pickle.loads(pickle.dumps(regressor))
    whole = copy.deepcopy(regressor)
    units = whole.posterior_.units
    given = Observations(units.inputs.apply(x), units.outputs.apply(y))
    for model in whole.models_:
        model.set_train_data(given.rows, given.targets, strict=False)
    observed = Parts.of(torch.as_tensor(given.observed), dim=0)
    whole.posterior_ = Posterior(whole.models_, units, observed)
    new = np.concatenate([x[::9], x[-1:] + np.arange(4)[:, None]])
    for some in (new, new[-4:]):
        for ask in ({"return_std": True}, {"return_cov": True}):
            for result, expected in zip(regressor.predict(some, **ask), whole.predict(some, **ask), strict=True):
                np.testing.assert_allclose(result, expected, atol=1e-8)
    for result, expected in zip(regressor.leave_one_out(), whole.leave_one_out(), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-8)
    assert np.isfinite(regressor.sample_y(new[-4:], 5)).all()


@torch.no_grad()
def test_multiscale_model_that_grows_is_the_dense_form():
    rows, targets = in_order(*observations(24, 3, regular=False))
    covariance = MultiScale(2, 1, [0.7]).between(3, 0.2, 3.0)
    dense = shuffled(CorrelatedGPRegression(rows, targets, 3, covar_module=covariance), 1)
    linear = SeriesCorrelatedGPRegression(rows, targets, 3, covar_module=covariance).eval()
    linear.load_state_dict(dense.state_dict())
    assert_same_answers(dense, *streamed(linear, rows, targets, [14, 1, 4, 1, 4]), places(3))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
@example([5, 4, 3, 2, 1])
def test_parts_are_few_and_in_order(sizes):
    values = torch.arange(sum(sizes)).expand(2, -1)
    parts = Parts.of(values[:, : sizes[0]], dim=-1)
    for block in values.split(sizes, dim=-1)[1:]:
        parts = parts.appended(block)
    assert torch.equal(parts.whole, values)
    assert len(parts.parts) <= sum(sizes).bit_length()
