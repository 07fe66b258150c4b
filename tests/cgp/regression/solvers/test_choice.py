"""Which solver a problem takes, what it is expected to cost, and that it makes no difference otherwise."""

import time

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel
from sklearn.base import clone

import cgp.regression.solvers.choice as choice_module
from cgp.regression import MAP, NUTS, Auto, CorrelatedGPRegressor, Laplace, Minibatches, correlated_covariance
from cgp.regression.inference.maximum import evaluations_of
from cgp.regression.solvers.choice import SOLVERS, Cost, Problem, check_memory, choose_solver, machine_memory


def problem_of(n: int, *, outputs: int = 2, dim: int = 1, inputs: int | None = None, **options) -> Problem:
    num_inducing = options.pop("num_inducing", None)
    covariance = correlated_covariance(outputs, dim, **options).double()
    return Problem(covariance, n, n // outputs if inputs is None else inputs, num_inducing)


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (problem_of(200, kernel="matern32", structure="coregionalised"), "exact"),
        (problem_of(4_000, kernel="matern32", structure="coregionalised"), "linear"),
        (problem_of(4_000, kernel="matern32", structure="shifted"), "linear"),
        (problem_of(4_000, kernel="matern32", structure="shifted", num_components=2), "exact"),
        (problem_of(4_000, kernel="rbf", structure="coregionalised"), "exact"),
        (problem_of(4_000, kernel="matern32", structure="coregionalised", dim=2), "exact"),
        (problem_of(4_000, kernel="matern32", structure="coregionalised", num_inducing=50), "sparse"),
        (problem_of(4_000, kernel="matern32", num_inducing=50), "sparse"),
        (problem_of(400_000, kernel=LinearKernel() + MaternKernel(nu=0.5), structure="shared"), "linear"),
    ],
)
def test_solver_is_the_cheapest_that_can(problem, name):
    assert choose_solver(problem).name == name


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (problem_of(10_001, kernel="rbf"), "at most 10000; .* expected a Markov kernel, but RBFKernel is not one of"),
        (problem_of(10_001, kernel="matern32", dim=2), "expected one input, got 2"),
        (problem_of(10_001, kernel="matern32", structure="affine"), "lengthscale for outputs that are correlated"),
    ],
)
def test_problems_beyond_every_solver_are_refused_with_the_obstacle(problem, message):
    with pytest.raises(
        ValueError, match=f"num_inducing: expected a number for 10001 observations, got None: .*{message}"
    ):
        choose_solver(problem)


def series(n: int, outputs: int):
    generator = np.random.default_rng(0)
    t = np.arange(n) * 0.1
    y = np.column_stack([(1 + p) * np.sin(t) + 0.5 * np.cos(1.7 * t + p) for p in range(outputs)])
    y += 0.1 * generator.standard_normal(y.shape)
    if outputs > 1:
        y[generator.random(y.shape) < 0.2] = np.nan
    return t[:, None], y


@pytest.mark.parametrize(
    "options",
    [{"inference": "map"}, {"inference": Laplace(num_mixture=4, max_steps=30), "structure": "coregionalised"}],
)
def test_fits_of_both_forms_are_the_same(monkeypatch, options):
    x, y = series(30, 2)
    options = {"kernel": "matern32", "random_state": 0, **options}
    answers = []
    for name in ("exact", "linear"):
        with monkeypatch.context() as patch:
            patch.setattr("cgp.regression.inference.setting.choose_solver", lambda _, name=name: SOLVERS[name])
            regressor = CorrelatedGPRegressor(**options).fit(x, y)
        assert {type(model) for model in regressor.models_} == {SOLVERS[name]}
        mean, sd = regressor.predict(np.linspace(-1, 6, 20)[:, None], return_std=True)
        criteria = np.array(list(regressor.criteria_.values()))
        answers.append((mean, sd, criteria, *regressor.leave_one_out(), regressor.predict(x[:4], return_cov=True)[1]))
    for dense, linear in zip(*answers, strict=True):
        np.testing.assert_allclose(linear, dense, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The fit has not converged")
def test_more_than_ten_thousand_observations_are_fitted_in_linear_time():
    x, y = series(2_501, 5)
    y = np.nan_to_num(y)
    regressor = CorrelatedGPRegressor("matern32", structure="coregionalised", inference=MAP(max_steps=1)).fit(x, y)
    assert type(regressor.model_).__name__ == "SeriesCorrelatedGPRegression"
    mean, sd = regressor.predict(x[:50], return_std=True)
    assert np.mean(np.abs(mean - y[:50]) < 3 * sd) > 0.9
    further = regressor.partial_fit(np.array([[1500.0]]), np.full((1, 5), 7.0))
    assert further.model_.train_targets.shape == (12_510,)


def test_structures_that_no_form_fits_are_left_out():
    x, y = series(6_000, 2)
    regressor = CorrelatedGPRegressor("matern12", structure=Auto(2))
    solvers = regressor._planned(x, np.nan_to_num(y), None)[0].solvers
    assert {name: solver.name for name, (solver, _) in solvers.items()} == dict.fromkeys(
        ("coregionalised", "shared", "independent"), "linear"
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_structures_that_are_left_out_are_named(monkeypatch):
    monkeypatch.setattr("cgp.regression.solvers.choice._EXACT_LIMIT", 40)
    x, y = series(30, 2)
    regressor = CorrelatedGPRegressor("matern12", structure=Auto(2), inference=MAP(max_steps=2), random_state=0)
    with pytest.warns(
        UserWarning, match=r"structure: \['shifted'\] are not compared with \['coregionalised', 'shared'"
    ):
        regressor.fit(x, np.nan_to_num(y))
    assert "shifted" not in regressor.criteria_


def test_draws_of_a_linear_form_are_those_of_its_posterior():
    """Moments of draws at several inputs, noise included, within six standard errors."""
    x, y = series(40, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cgp.regression.inference.setting.choose_solver", lambda _: SOLVERS["linear"])
        regressor = CorrelatedGPRegressor("matern32", structure="coregionalised", inference=MAP(max_steps=20)).fit(x, y)
    new, count = np.array([[0.05], [3.0], [9.0]]), 20_000
    mean, covariance = regressor.predict(new, return_cov=True)
    draws = regressor.sample_y(new, count, include_noise=True).reshape(6, count)
    covariance = covariance.reshape(6, 6)
    variance = covariance.diagonal()
    assert (np.abs(draws.mean(1) - mean.flatten()) <= 6 * np.sqrt(variance / count)).all()
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert (np.abs(np.cov(draws) - covariance) <= 6 * spread).all()


def test_fit_beyond_the_memory_is_refused_with_the_number(monkeypatch):
    x, y = series(300, 2)
    monkeypatch.setattr(choice_module, "machine_memory", lambda: 1e5)
    with pytest.raises(
        ValueError, match=r"X, y: expected a fit within the machine's memory of 0.0 GB, got an estimated"
    ):
        CorrelatedGPRegressor().fit(x, y)
    with pytest.raises(ValueError, match=r"X, y: expected a fit within the machine's memory"):
        CorrelatedGPRegressor(structure="multiscale").fit(x, y)


def test_memory_is_that_of_the_container(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(choice_module, "_CGROUP", limit)
    whole = machine_memory()
    assert whole > 1e8
    limit.write_text("max\n")
    assert machine_memory() == whole
    limit.write_text("1000000\n")
    assert machine_memory() == 1e6
    check_memory(Cost(1.0, 9e5))


def cost_of(regressor, x, y):
    """What a fit is expected to take where nothing is measured."""
    setting, inference = clone(regressor)._planned(x, y, None)
    return inference.cost(setting)


def test_costs_grow_with_the_work_and_estimates_fit_nothing():
    x, y = series(200, 2)
    estimates = [
        cost_of(CorrelatedGPRegressor(**options), x, y)
        for options in (
            {"structure": "coregionalised"},
            {},
            {"inference": MAP(num_starts=3)},
            {"inference": Laplace(num_starts=3)},
            {"inference": NUTS(num_starts=3)},
        )
    ]
    assert [cost.seconds for cost in estimates] == sorted(cost.seconds for cost in estimates)
    assert len({cost.seconds for cost in estimates}) == len(estimates)
    regressor = CorrelatedGPRegressor()
    regressor.estimate(x, y)
    assert not vars(regressor).keys() - regressor.get_params().keys()


@pytest.mark.parametrize("name", ["exact", "linear"])
def test_cost_is_of_the_right_size(name):
    """Within a factor of thirty, on any machine that tests run on; the notes have the measured figures."""
    solver = SOLVERS[name]
    x, y = series(700, 1)
    rows = torch.as_tensor(np.column_stack([x / 20.0, np.zeros(700)]))
    problem = problem_of(700, outputs=1, inputs=700, kernel="matern32")
    model = solver(rows, torch.as_tensor(y[:, 0]), 1, covar_module=problem.covariance).eval()
    seconds = []
    for _ in range(3):
        start = time.process_time()
        model.log_evidence().backward()
        seconds.append(time.process_time() - start)
    assert solver.cost(problem).seconds / 30 < min(seconds) < solver.cost(problem).seconds * 30


@pytest.mark.parametrize(
    ("name", "sizes", "work", "memory"),
    [
        ("exact", {"n": 10**7}, 3, 2),
        ("compressed", {"n": 10**7}, 3, 2),
        ("linear", {"n": 10**7}, 1, 1),
        ("sparse", {"n": 10**7, "num_inducing": 50}, 1, 0),  # in parts
        ("sparse", {"num_inducing": 10**5, "n": 10**9}, 2, 2),
        ("stochastic", {"n": 10**7, "num_inducing": 50}, 1, 0),
    ],
)
def test_costs_grow_as_the_work_does(name, sizes, work, memory):
    """Where the first of the sizes is twice as large: powers of two."""
    grown = next(iter(sizes))
    few, many = (
        SOLVERS[name].cost(problem_of(kernel="matern32", structure="coregionalised", **each))
        for each in (sizes, sizes | {grown: 2 * sizes[grown]})
    )
    ratios = many.seconds / few.seconds, many.bytes / few.bytes
    assert np.log2(ratios) == pytest.approx([work, memory], abs=0.02)


def test_fits_of_many_parameters_are_expected_to_take_more_evaluations():
    """The first fit of 33 outputs, 561 correlations among them, took 388 evaluations, that of four outputs 98."""
    fits = {name: (None, problem_of(300, outputs=outputs, inputs=60)) for name, outputs in (("4", 4), ("33", 33))}
    expected = {name: evaluations_of({name: fits[name]}, num_starts=1, max_steps=1000)[name] for name in fits}
    assert 98 / 2 < expected["4"] < 98 * 2
    assert 388 / 2 < expected["33"] < 388 * 2
    following = evaluations_of(fits, num_starts=1, max_steps=1000)
    assert following["4"] == expected["4"]
    assert following["33"] < expected["33"]
    both = dict.fromkeys(("shared", "shifted"), fits["4"])  # the first of them was not possible
    assert evaluations_of(both, num_starts=3, max_steps=8) == {"shared": 30, "shifted": 30}


def test_chains_of_few_observations_and_minibatches_are_in_the_estimate():
    x, y = series(20, 1)
    assert (
        cost_of(CorrelatedGPRegressor(), x, y).seconds
        > 1.5 + cost_of(CorrelatedGPRegressor(inference="map"), x, y).seconds
    )
    options = {"num_inducing": 20, "structure": "coregionalised"}
    x, y = series(5_000, 1)
    short, long = (
        cost_of(CorrelatedGPRegressor(inference=Minibatches(num_epochs=count), **options), x, y).seconds
        for count in (10, 110)
    )
    batch = SOLVERS["stochastic"].cost(problem_of(1024, outputs=1, inputs=1024, num_inducing=20)).seconds
    assert long - short == pytest.approx(100 * 5 * (0.01 + batch))


def test_windows_with_few_observations_are_expected_to_take_less():
    x, y = series(1_500, 4)
    full = cost_of(CorrelatedGPRegressor(structure="multiscale"), x, np.nan_to_num(y)).seconds
    y[np.random.default_rng(1).random(y.shape) < 0.7] = np.nan
    assert cost_of(CorrelatedGPRegressor(structure="multiscale"), x, y).seconds < 0.8 * full


@pytest.mark.parametrize("options", [{"structure": "coregionalised"}, {"structure": "multiscale"}])
def test_estimates_have_the_pace_of_the_machine(options, monkeypatch):
    """One that takes three times as long is expected to take that; passes over the rows are counted."""
    x, y = series(800, 2)
    regressor = CorrelatedGPRegressor(**options)
    setting, inference = clone(regressor)._planned(x, y, None)
    assert 1 / 30 < inference.pace(setting) < 30
    expected, once = inference.cost(setting).seconds, inference.pass_seconds(setting)
    monkeypatch.setattr(type(inference), "pace", lambda *_: 3.0)
    assert regressor.estimate(x, y).seconds == pytest.approx(3.0 * expected, abs=1.0)  # and what the plan took
    more = regressor.estimate(x, y, passes=100).seconds
    assert more == pytest.approx(3.0 * (expected + 100 * once), abs=1.0)
    assert more > 3.0 * expected + 1.0


def test_costs_are_printed_in_three_digits():
    assert str(Cost(161.71095276931737, 84232089.6)) == "Cost(seconds=162, bytes=8.42e+07)"


def test_starts_are_compared_on_a_part():
    """Of 2,000 observations 80 evaluations are on 500: the estimate is not that of 114 on all."""
    x, y = series(1_000, 2)
    regressor = CorrelatedGPRegressor(structure="coregionalised", kernel="rbf")
    setting, inference = regressor._planned(x, np.nan_to_num(y), None)
    (solver, problem) = setting.solvers["coregionalised"]
    assert solver.name == "exact"
    evaluations = inference.expected_steps(setting)
    part = solver.cost(problem._replace(num_observations=500)).seconds
    whole = solver.cost(problem).seconds
    assert inference.cost(setting).seconds == pytest.approx(80 * part + (evaluations - 80) * whole)
