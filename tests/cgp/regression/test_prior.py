"""Learned priors: mixtures by hand, steps that raise the density, files, and learning."""

import json

import numpy as np
import pytest
import torch
from gpytorch.kernels import PeriodicKernel
from scipy.stats import multivariate_normal, norm
from torch.utils._python_dispatch import TorchDispatchMode

from cgp.regression import CorrelatedGPRegressor, LearnedPrior, ParameterSet, PriorComponent, learn_prior
from cgp.regression.forms import FORMS
from cgp.regression.prior import gram_of
from cgp.regression.prior_models import covariance_of
from cgp.regression.prior_tables import tables_of
from cgp.regression.saving import regressor_content, restored_regressor
from cgp.regression.series import series_obstacle
from cgp.regression.variances import Places, Variances, VariancesPrior, adapted, delay_step, total_covariance


def a_prior(**options) -> LearnedPrior:
    sets = (
        ParameterSet((PriorComponent("matern32", 0.7, 1.0), PriorComponent("matern32", 0.1, 0.1, None, False)), 0.5),
        ParameterSet((PriorComponent("rbf", 0.5, 0.8),), 0.3),
        ParameterSet((PriorComponent("matern32", 1.5, 1.2),), 0.2),
    )
    return LearnedPrior(sets, (0.01, 0.1), (0.4, 0.6), **options)


def a_mixed_prior() -> LearnedPrior:
    """With components of two kernels, which only a mixture of sets can have."""
    components = PriorComponent("matern32", 0.7, 1.0), PriorComponent("periodic", 0.7, 0.5, 1.3)
    return LearnedPrior((ParameterSet(components, 1.0),), (0.01,), (1.0,), standardised=False)


def a_table(count: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = np.sort(generator.uniform(0, 6, count))[:, None]
    y = np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0]) - 1.5]) + 0.1 * generator.normal(size=(count, 2))
    y[generator.random(y.shape) < 0.25] = np.nan
    return x, y


def pretrained(x, y, prior=None) -> CorrelatedGPRegressor:
    return CorrelatedGPRegressor(inference="pretrained", prior=prior or a_prior()).fit(x, y)


def test_a_prior_is_what_it_was_saved_as(tmp_path):
    prior = a_prior(level=0.3, strength=1.5, noise_strength=3.0, standardised=False)
    prior.save(tmp_path / "prior.json")
    assert LearnedPrior.load(tmp_path / "prior.json") == prior
    assert [path.name for path in tmp_path.iterdir()] == ["prior.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"version": 1', '"version": 7'), "format version 1, got version 7"),
        (('"lengthscale": 0.7', '"lengthscale": -0.7'), "positive numbers as lengthscale"),
        (('"rbf"', '"cubic"'), "kernels among"),
        (('"noises"', '"levels"'), "fields of a prior"),
        (("{", "", 1), "expected JSON"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    path = tmp_path / "prior.json"
    path.write_text(a_prior().to_json().replace(*change))
    with pytest.raises(ValueError, match=message):
        LearnedPrior.load(path)


def test_a_periodic_component_is_the_periodic_kernel():
    component = PriorComponent("periodic", 0.6, 1.0, 1.7)
    x = torch.linspace(0, 4, 9, dtype=torch.float64)[:, None]
    kernel = PeriodicKernel().double()
    kernel.lengthscale, kernel.period_length = (
        torch.tensor(0.36, dtype=torch.float64),
        torch.tensor(1.7, dtype=torch.float64),
    )
    torch.testing.assert_close(gram_of(component, x), kernel(x).to_dense())


def a_problem(seed: int = 0) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(15, 1, generator=generator).double()
    grams = torch.stack([gram_of(PriorComponent("matern32", length, 1.0), x) for length in (0.1, 0.8)])
    keep = torch.rand(45, generator=generator) < 0.8
    places = Places(torch.arange(15).repeat(3)[keep], torch.arange(3).repeat_interleave(15)[keep])
    values = torch.randn(int(keep.sum()), generator=generator).double()
    eye = torch.eye(3).double()
    correlated = torch.stack([torch.eye(3), torch.ones(3, 3)]).double()
    prior = VariancesPrior(torch.stack([0.2 * eye, eye]), correlated, torch.full((3,), 0.1).double(), 0.7, 0.5, 1.5)
    return grams, places, values, prior


def test_the_covariance_of_observations_is_that_of_loops():
    grams, places, _, prior = a_problem()
    A = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    variances = Variances(A @ A.mT, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
    S = total_covariance(grams, places, variances, prior.level)
    for i, (t, p) in enumerate(zip(*places, strict=True)):
        for j, (u, r) in enumerate(zip(*places, strict=True)):
            expected = sum(variances.outputs[c, p, r] * grams[c, t, u] for c in range(2)) + prior.level * float(p == r)
            assert float(S[i, j]) == pytest.approx(float(expected + variances.noise[p] * float(i == j)), rel=1e-12)


def log_posterior(grams, places, values, prior, variances) -> float:
    """Of the variances, dense, up to a constant."""
    S = total_covariance(grams, places, variances, prior.level).numpy()
    total = multivariate_normal.logpdf(values.numpy(), cov=S)
    for B, mode in zip(variances.outputs.numpy(), prior.outputs.numpy(), strict=True):
        total -= 0.5 * prior.strength * (np.linalg.slogdet(B)[1] + np.trace(np.linalg.pinv(B, hermitian=True) @ mode))
    ratio = (prior.noise / variances.noise).numpy()
    return total - 0.5 * prior.noise_strength * float((np.log(variances.noise.numpy()) + ratio).sum())


def test_steps_raise_the_density_of_the_variances_to_a_stationary_point():
    problem = a_problem()
    start = Variances(problem[3].outputs, problem[3].noise)
    values = [log_posterior(*problem, adapted(*problem[:3], start, problem[3], num_steps=steps)) for steps in range(12)]
    assert np.all(np.diff(values) > -1e-9)
    best = adapted(*problem[:3], start, problem[3], num_steps=400)
    top = log_posterior(*problem, best)
    generator = torch.Generator().manual_seed(3)
    for _ in range(10):  # no lower in any direction, to second order
        step = 1e-4 * torch.randn(2, 3, 3, generator=generator).double()
        step = (step + step.mT) * problem[3].correlated
        noise = best.noise * (1e-4 * torch.randn(3, generator=generator).double()).exp()
        assert log_posterior(*problem, Variances(best.outputs + step, noise)) < top + 1e-6
    assert torch.all(best.outputs[0] == torch.diag(best.outputs[0].diagonal()))


def test_the_slope_by_delays_is_that_of_a_dense_density():
    generator = torch.Generator().manual_seed(0)
    x, outputs = torch.rand(20, generator=generator).double(), torch.arange(20) % 3
    values = torch.randn(20, generator=generator).double()
    A = torch.randn(3, 3, generator=generator).double()
    variances = Variances((A @ A.mT)[None], torch.full((3,), 0.1, dtype=torch.float64))
    places, component = Places(torch.arange(20), outputs), PriorComponent("matern52", 0.4, 1.0)

    def log_density(delays: torch.Tensor) -> torch.Tensor:
        z = (x + delays[outputs])[:, None]
        S = total_covariance(gram_of(component, z)[None], places, variances, 0.5)
        return torch.distributions.MultivariateNormal(torch.zeros(20).double(), S).log_prob(values)

    delays = torch.tensor([0.0, 0.1, -0.2], dtype=torch.float64)
    z, h = (x + delays[outputs])[:, None], 1e-5
    slopes = (gram_of(component, z + h, z) - gram_of(component, z - h, z))[None] / (2 * h)
    gradient, information = delay_step(gram_of(component, z)[None], slopes, places, values, variances, 0.5)
    expected = torch.autograd.functional.jacobian(log_density, delays)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
    S = total_covariance(gram_of(component, z)[None], places, variances, 0.5)
    L = torch.linalg.cholesky(S)
    alpha = torch.cholesky_solve(values[:, None], L)[:, 0]
    moved = []
    for p in range(3):  # of the covariance by a delay, by differences
        ahead, behind = ((x + (delays + s * h * torch.eye(3)[p])[outputs])[:, None] for s in (1, -1))
        S_p = [total_covariance(gram_of(component, each)[None], places, variances, 0.5) for each in (ahead, behind)]
        moved.append((S_p[0] - S_p[1]) / (2 * h) @ alpha)
    U = torch.stack(moved, dim=-1)
    torch.testing.assert_close(information, 0.5 * U.mT @ torch.cholesky_solve(U, L), rtol=1e-4, atol=1e-5)


def test_an_output_that_follows_another_is_filled_with_its_delay():
    x = np.arange(60.0)[:, None]
    signal = [np.sin((x[:, 0] - lag) / 5.0) + 0.5 * np.sin((x[:, 0] - lag) / 2.3) for lag in (0.0, 1.5)]
    truth = np.column_stack(signal) + 0.02 * np.random.default_rng(0).normal(size=(60, 2))
    y = truth.copy()
    y[25:40, 1] = np.nan
    sets = tuple(ParameterSet((PriorComponent("matern52", length, 1.0),), 1 / 3) for length in (0.2, 0.5, 1.0))
    prior = LearnedPrior(sets, (3e-4, 0.03), (0.5, 0.5), strength=0.2, noise_strength=0.2)
    regressor = pretrained(x, y, prior)
    assert regressor.delays_[0, 1, 0] == pytest.approx(1.5, abs=0.1)
    error = regressor.predict(x)[25:40, 1] - truth[25:40, 1]
    assert np.sqrt(np.mean(error**2)) < 0.1
    still = pretrained(x, np.where(np.isnan(y), np.nan, np.column_stack([signal[0], -2.0 * signal[0]])), prior)
    assert np.all(still.delays_ == 0.0)


def test_weights_are_normalised_evidences_and_predictions_their_mixture():
    x, y = a_table()
    regressor = pretrained(x, y)
    weights, models = regressor.weights_, regressor.models_
    assert len(models) > 1
    assert weights.sum() == pytest.approx(1.0)
    new = np.linspace(-1, 7, 9)[:, None]
    means, variances, densities = [], [], []
    for model in models:
        rows = np.column_stack([regressor.x_scaling_.apply(new), np.ones(9)])
        with torch.no_grad():
            moments = model.moments(torch.as_tensor(rows), noisy=True)
        unit = regressor.y_scaling_.unit[1]
        means.append(regressor.y_scaling_.undo(np.column_stack([moments.mean] * 2))[:, 1])
        variances.append(moments.variance.numpy() * unit**2)
        densities.append(norm.pdf(0.3, means[-1], np.sqrt(variances[-1])))
    mean, sd = regressor.predict(new, return_std=True)
    np.testing.assert_allclose(mean[:, 1], weights @ means)
    np.testing.assert_allclose(sd[:, 1] ** 2, weights @ (np.array(variances) + (means - weights @ means) ** 2))
    density = regressor.log_predictive_density(new, np.full((9, 2), 0.3))[:, 1]
    np.testing.assert_allclose(density, np.log(weights @ np.array(densities)))
    _, covariance = regressor.predict(new, return_cov=True)
    np.testing.assert_allclose(np.diag(covariance[:, 1, :, 1]), sd[:, 1] ** 2, rtol=1e-6)


def test_weights_of_one_output_are_those_of_a_dense_process():
    x, y = a_table(12)
    y = y[:, :1]
    prior = a_prior(strength=1e9, noise_strength=1e9)  # variances stay where the sets have them
    sets = (prior.sets[1]._replace(weight=0.6), prior.sets[2]._replace(weight=0.4))
    prior = prior._replace(sets=sets, noises=(0.05,), noise_weights=(1.0,))
    regressor = pretrained(x, y, prior)
    seen = ~np.isnan(y[:, 0])
    t = torch.as_tensor(regressor.x_scaling_.apply(x[seen]))
    values = regressor.y_scaling_.apply(y[seen])[:, 0]
    logs = []
    for each in prior.sets:
        S = each.components[0].share * gram_of(each.components[0], t).numpy() + 0.05 * np.eye(seen.sum()) + prior.level
        logs.append(multivariate_normal.logpdf(values, cov=S) + np.log(each.weight))
    expected = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(np.sort(regressor.weights_), np.sort(expected), rtol=1e-5)


def test_the_order_of_rows_and_units_do_not_matter():
    x, y = a_table()
    mean, sd = pretrained(x, y).predict(x, return_std=True)
    order = np.random.default_rng(1).permutation(len(x))
    other, other_sd = pretrained(3.0 * x[order] - 7.0, 1e3 * y[order] + 5.0).predict(3.0 * x - 7.0, return_std=True)
    np.testing.assert_allclose((other - 5.0) / 1e3, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other_sd / 1e3, sd, rtol=1e-4)


def test_a_prior_in_the_tables_units_is_used_in_them():
    x, y = a_table()
    regressor = pretrained(x, y, a_prior(standardised=False))
    assert min(abs(float(regressor.lengthscales_[0, 0, 0]) - length) for length in (0.7, 0.5, 1.5)) < 1e-6
    far = regressor.predict(np.array([[1e3]]), return_std=True, include_noise=False)[1]
    assert np.all(far < 3.0)


def test_a_regressor_by_a_prior_is_restored_from_plain_values():
    x, y = a_table()
    regressor = pretrained(x, y)
    plain, tensors = regressor_content(regressor)
    fresh = CorrelatedGPRegressor(inference="pretrained", prior=a_prior())
    other = restored_regressor(fresh, json.loads(json.dumps(plain)), tensors, y)
    for mine, theirs in zip(regressor.predict(x, return_std=True), other.predict(x, return_std=True), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-8)


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_a_fit_that_a_prior_started_is_restored_with_its_kernel(inference):
    x, y = a_table(30)
    prior = a_prior().of_kernel("matern32")
    options = {"num_mixture": 4} if inference == "laplace" else {}
    regressor = CorrelatedGPRegressor(inference=inference, prior=prior, random_state=0, **options).fit(x, y)
    plain, tensors = regressor_content(regressor)
    other = restored_regressor(CorrelatedGPRegressor(inference=inference, prior=prior, **options), plain, tensors, y)
    for mine, theirs in zip(regressor.predict(x, return_std=True), other.predict(x, return_std=True), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-6)


class LargestTensor(TorchDispatchMode):
    """Records the number of entries of the largest tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [each.untyped_storage().nbytes() // 8 for each in (result,) if isinstance(each, torch.Tensor)]
        self.entries = max(self.entries, *sizes, 0)
        return result


def test_twenty_thousand_rows_are_answered_without_their_matrix():
    count = 20_000
    x = np.arange(float(count))[:, None]
    y = np.sin(x / 300.0) + 0.1 * np.random.default_rng(0).normal(size=(count, 1))
    y[5_000:5_050] = np.nan
    sets = (PriorComponent("matern32", 0.05, 1.0), PriorComponent("rbf", 0.05, 1.0))  # the second has no linear form
    prior = LearnedPrior(tuple(ParameterSet((component,), 0.5) for component in sets), (0.01,), (1.0,))
    with LargestTensor() as largest:
        regressor = pretrained(x, y, prior)
        mean, sd = regressor.predict(x[5_000:5_050], return_std=True)
    assert largest.entries < 100 * count < count**2 / 100
    assert [each.components[0].kernel for each in regressor.sets_] == ["matern32"]
    assert np.abs(mean - np.sin(x[5_000:5_050] / 300.0)).max() < 0.1
    assert np.all((sd > 0.05) & (sd < 0.2))


@pytest.mark.parametrize("lag", [0.0, 1.5])
def test_in_linear_time_a_prior_gives_what_it_gives_by_matrices(lag, monkeypatch):
    x = np.arange(60.0)[:, None]
    y = np.column_stack([np.sin((x[:, 0] - each) / 5.0) + 0.5 * np.sin((x[:, 0] - each) / 2.3) for each in (0.0, lag)])
    y = y + 0.02 * np.random.default_rng(0).normal(size=y.shape)
    y[25:40, 1] = np.nan
    components = PriorComponent("matern52", 0.5, 1.0), PriorComponent("matern32", 0.05, 0.05, None, False)
    prior = LearnedPrior((ParameterSet(components, 1.0),), (3e-4, 0.03), (0.5, 0.5), strength=0.2, noise_strength=0.2)
    answers, new = [], np.linspace(-5.0, 70.0, 40)[:, None]
    for form in ("exact", "linear"):
        (only,) = [each for each in FORMS if each.name == form]
        monkeypatch.setattr("cgp.regression.prior_models.choose_form", lambda task, only=only: only)
        regressor = pretrained(x, y, prior)
        assert {type(model) for model in regressor.models_} == {only.model}
        assert (regressor.delays_[0, 1, 0] != 0.0) == (lag > 0.0)
        means = regressor.model_.mean_module.constants.detach().numpy()
        answers.append((means, *regressor.predict(new, return_std=True), regressor.model_.log_evidence().item()))
    for dense, linear in zip(*answers, strict=True):
        np.testing.assert_allclose(linear, dense, rtol=1e-6, atol=1e-6)


def test_delays_that_are_learned_or_differ_are_no_one_order():
    components = PriorComponent("matern32", 0.5, 1.0), PriorComponent("matern32", 0.1, 0.1)
    covariance = covariance_of(ParameterSet(components, 1.0), 2, 1, is_delayed=True)
    maps = [component.input_maps for component in covariance.kernels]
    for each in maps:
        each.initialize(shifts=(0.3 * each.scales)[:, None])
    assert series_obstacle(covariance) is None
    maps[0].shifts.requires_grad_(True)
    assert "fixed delays" in series_obstacle(covariance)
    maps[0].shifts.requires_grad_(False)
    maps[0].initialize(shifts=(0.4 * maps[0].scales)[:, None])
    assert "fixed delays" in series_obstacle(covariance)


def test_few_observations_far_apart_do_not_collapse():
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 6, 40))[:, None]
    y = np.column_stack([np.sin(x[:, 0] + phase) for phase in (0, 0.2, 0.4, 0.6)])
    known = np.full_like(y, np.nan)
    for p in range(4):
        chosen = generator.choice(40, 2, replace=False)
        known[chosen, p] = y[chosen, p]
    density = pretrained(x, known).log_predictive_density(x, y)
    assert density.mean() > -3.0


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_a_fit_starts_at_the_prior_and_has_its_densities(inference):
    x, y = a_table(30)
    options = {"num_mixture": 4} if inference == "laplace" else {}
    regressor = CorrelatedGPRegressor(inference=inference, prior=a_prior(), random_state=0, **options).fit(x, y)
    model = regressor._compared["coregionalised"]
    normal = model.covar_module.kernels[0].input_maps.log_scales_prior
    kernel = regressor._base
    lengths = [(s.components[0].lengthscale, s.weight) for s in a_prior().of_kernel(kernel).sets]
    total = sum(weight for _, weight in lengths)
    assert float(normal.loc) == pytest.approx(-sum(w * np.log(length) for length, w in lengths) / total)
    assert np.isfinite(regressor.predict(x)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "pretrained"}, "prior: expected one of learn_prior"),
        ({"prior": "prior.json"}, "prior: expected a LearnedPrior"),
        ({"prior": a_prior(), "kernel": "matern12"}, "kernel: expected None or one of the prior's"),
        ({"prior": a_prior(), "kernel": PeriodicKernel()}, "kernel: expected a name or None"),
        ({"prior": a_prior(), "structure": "factors"}, "structure: expected one of"),
        ({"prior": a_prior(), "inference": "pretrained", "structure": "shared"}, "structure: expected one of"),
        ({"prior": a_prior(), "num_inducing": 5}, "num_inducing: expected None"),
        ({"prior": a_prior()._replace(noises=(-0.1, 0.1))}, "prior: expected positive numbers as noises"),
        ({"prior": a_prior()._replace(noise_weights=(1.0, 1.0))}, "weights of noises that sum to 1, got 2"),
        ({"prior": a_prior(), "inference": "map", "kernel": "matern12"}, "kernel: expected None or one of the prior's"),
        ({"prior": a_mixed_prior()}, r"prior: expected sets of a single kernel .* got \['matern32 \+ periodic'\]"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegressor(**options).fit(*a_table())


def draws(count: int, lengthscale: float, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(seed)
    tables = []
    for _ in range(count):
        x = np.sort(generator.uniform(-2, 2, 40))[:, None]
        K = gram_of(PriorComponent("matern32", lengthscale, 1.0), torch.as_tensor(x)).numpy()
        tables.append((x, generator.multivariate_normal(np.zeros(40), K + 0.01 * np.eye(40))[:, None]))
    return tables


@pytest.mark.parametrize("lengthscale", [0.15, 1.0])
def test_a_learned_prior_predicts_nearly_as_the_true_process(lengthscale):
    options = {"num_sets": 3, "kernels": ["matern32", "rbf"], "standardised": False}
    prior = learn_prior(draws(8, lengthscale), num_steps=10, **options)
    truth = ParameterSet((PriorComponent("matern32", lengthscale, 1.0),), 1.0)
    true = LearnedPrior((truth,), (0.01,), (1.0,), 1e-9, 1e9, 1e9, standardised=False)
    behind = []
    for x, y in draws(8, lengthscale, seed=1):
        known = np.where(np.arange(40)[:, None] % 3 < 2, y, np.nan)
        hidden = np.isnan(known)
        densities = [pretrained(x, known, each).log_predictive_density(x, y)[hidden] for each in (true, prior)]
        behind.append(np.mean(densities[0] - densities[1]))
    assert np.mean(behind) < 0.1
    lengths = {each.components[0].lengthscale for each in prior.sets}
    assert min(abs(np.log(length / lengthscale)) for length in lengths) < 1.5


def test_a_finer_choice_of_lengthscales_is_nearer_to_the_truth():
    generator, tables = np.random.default_rng(0), []
    for _ in range(3):
        x = np.sort(generator.uniform(-2.0, 2.0, 30))[:, None]
        K = np.exp(-0.5 * ((x - x.T) / 0.25) ** 2) + 4e-4 * np.eye(30)
        tables.append((x, np.linalg.cholesky(K) @ generator.normal(size=30)))
    options = {"kernels": ["rbf"], "standardised": False, "num_steps": 0, "num_sets": 1}
    coarse, fine = (learn_prior(tables, num_lengthscales=count, **options).sets[0].components[0] for count in (7, 13))
    assert fine.lengthscale == pytest.approx(0.25, rel=0.15)
    assert abs(coarse.lengthscale - 0.25) > 0.05
    with pytest.raises(ValueError, match="num_lengthscales: expected an integer"):
        learn_prior(tables, num_lengthscales=0)


def test_windows_of_a_frame_are_tables():
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-01-01", periods=120, freq="h")
    values = np.sin(np.arange(120) / 5.0)
    frame = pandas.DataFrame({"a": values, "b": np.where(np.arange(120) % 7 < 2, np.nan, values)}, index=index)
    prior = learn_prior(frame, window="1D", num_sets=1, kernels=["rbf"], num_steps=2)
    assert len(prior.sets) == 1
    with pytest.raises(ValueError, match="window: expected a positive duration"):
        learn_prior(frame)


QUICK = {"num_sets": 2, "kernels": ["rbf"], "num_steps": 0}


@pytest.mark.parametrize("by", ["times", "numbers"])
def test_windows_of_a_frame_are_in_days_or_units_of_its_index(by):
    """So that what is learned fits tables in these units, in any order of the rows."""
    pandas = pytest.importorskip("pandas")
    hours, times = np.arange(60.0), by == "times"
    index = pandas.date_range("2024-01-01", periods=60, freq="h") if times else pandas.Index(hours)
    values, x = np.sin(hours / 4.0), hours[:, None] / (24.0 if times else 1.0)
    frame = pandas.DataFrame({"a": values}, index=index)
    parts = [slice(start, start + 20) for start in (0, 20, 40)]
    expected = learn_prior([(x[part], values[part]) for part in parts], standardised=False, **QUICK)
    assert learn_prior(frame, window="20h" if times else 20, standardised=False, **QUICK) == expected


def test_rows_before_the_first_one_are_not_in_its_window():
    frame = pytest.importorskip("pandas").DataFrame({"a": np.arange(15.0)}, index=[5, *range(5), *range(6, 15)])
    assert [x.ravel().tolist() for x, _ in tables_of(frame, 5)] == [
        [-5.0, -4.0, -3.0, -2.0, -1.0],
        [0.0, 1.0, 2.0, 3.0, 4.0],
        [5.0, 6.0, 7.0, 8.0, 9.0],
    ]


def test_a_prior_of_no_steps_has_the_numbers_of_its_grid_in_any_units():
    """In float64: variances of values about 1e-24 are below the smallest number of float32."""
    x = np.linspace(0, 6, 25)[:, None]
    tables = [(x, 1e-24 * np.sin(x[:, 0] + phase)) for phase in range(2)]
    prior = learn_prior(tables, standardised=False, **QUICK)
    assert all(1e-49 < each.components[0].share < 1e-47 for each in prior.sets)
    assert all(each.weight == 1.0 / len(prior.sets) for each in prior.sets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": [(np.full((9, 1), np.nan), np.ones(9))]}, "tables: expected finite inputs, .* in table 0"),
        ({"tables": [(np.ones((9, 1)), np.full(9, np.inf))]}, "tables: expected finite inputs, .* in table 0"),
        ({"periods": (0.0,), "standardised": False}, r"periods: expected positive numbers, got \(0.0,\)"),
        ({"window": 5}, "window: expected None for a list of tables, got 5"),
    ],
)
def test_what_nothing_is_learned_from_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        learn_prior(**{"tables": draws(1, 1.0)} | QUICK | change)


@pytest.mark.parametrize(("window", "times"), [(0, False), ("3D", False), (3, True), ("soon", True), ("0h", True)])
def test_windows_that_do_not_fit_an_index_are_refused(window, times):
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-01-01", periods=9) if times else None
    wanted = "a positive duration such as '3D' for times" if times else "a positive number for an index of numbers"
    with pytest.raises(ValueError, match=f"window: expected {wanted}, got {window!r}"):
        learn_prior(pandas.DataFrame({"a": np.ones(9)}, index=index), window=window)
