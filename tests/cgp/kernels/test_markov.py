"""Markov kernels in GPyTorch's ExactGP against the same kernels, dense, in float64."""

import copy
import operator
from functools import partial

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    IndexKernel,
    LCMKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DenseLinearOperator

from cgp.kernels import DampedOscillatorKernel, IntegratedWienerKernel, Markov, leave_out_missing, markov, markov_memory
from cgp.operators import markov_posterior
from cgp.operators.markov_promised import PromisedMarkovLinearOperator
from cgp.statespace.kernels import MarkovKernel
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import MarkovProcess

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)
EXACT = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)


@pytest.fixture(autouse=True)
def exact():
    """Float64, one seed, and GPyTorch's own exact algebra."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


class Model(ExactGP):
    def __init__(self, x, y, kernel, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class MultitaskModel(ExactGP):
    def __init__(self, x, y, kernel, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), y.shape[-1])
        self.covar_module = kernel

    def forward(self, x):
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class OwnMatern(MaternKernel):
    """A subclass that changes nothing of the covariance."""


class Squared(MaternKernel):
    """A subclass that changes the covariance."""

    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params) ** 2


class Exponential(gpytorch.kernels.Kernel):
    """A stranger's kernel: its covariance for GPyTorch, and which process it is."""

    class Form(MarkovKernel):
        def process(self, steps):
            A = torch.exp(-steps.lags)[..., None, None]
            return MarkovProcess(A, 1.0 - A**2, torch.ones(1, 1).to(A))

    def markov_form(self):
        return self.Form()

    def forward(self, x1, x2, diag=False, **params):
        return torch.exp(-self.covar_dist(x1, x2, diag=diag))


def index(**options):
    return IndexKernel(num_tasks=3, rank=2, active_dims=[1], **options)


KERNELS = {
    "matern12": lambda: ScaleKernel(MaternKernel(nu=0.5)),
    "matern32": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "matern52": lambda: ScaleKernel(MaternKernel(nu=2.5)),
    "oscillator": lambda: ScaleKernel(DampedOscillatorKernel()) + MaternKernel(nu=0.5),
    "cosine that decays": lambda: MaternKernel(nu=0.5) * CosineKernel(),
    "quasi-periodic": lambda: MaternKernel(nu=1.5) * PeriodicKernel(),
    "sum": lambda: ScaleKernel(MaternKernel(nu=2.5)) + ScaleKernel(MaternKernel(nu=0.5)) + ConstantKernel(),
    "line": lambda: ScaleKernel(MaternKernel(nu=1.5)) + LinearKernel() + ConstantKernel(),
    "spline": lambda: ScaleKernel(IntegratedWienerKernel()) + LinearKernel() + ConstantKernel(),
    "subclass": OwnMatern,
    "stranger": lambda: ScaleKernel(Exponential()) + MaternKernel(nu=1.5),
}
ROWS = {
    "icm": lambda: MaternKernel(nu=1.5, active_dims=[0]) * index(),
    "lmc": lambda: (
        MaternKernel(nu=1.5, active_dims=[0]) * index() + ScaleKernel(MaternKernel(nu=0.5, active_dims=[0]) * index())
    ),
    "shared": lambda: MaternKernel(nu=0.5, active_dims=[0]) + MaternKernel(nu=1.5, active_dims=[0]) * index(),
}


def times(n, seed=1):
    """Unsorted and repeated inputs."""
    x = 5.0 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed))
    x[n // 2 :: 3] = x[: len(x[n // 2 :: 3])]
    return x


def data(kind):
    if kind in ROWS:
        x, new = (torch.cat([times(n, n), torch.arange(n)[:, None] % 3.0], dim=-1) for n in (24, 9))
    else:
        x, new = times(20), torch.cat([times(6, 2), times(20)[:2]])
    return x, x[:, 0].sin() + 0.3 * torch.randn(len(x)), new


def pair(kind, likelihood=GaussianLikelihood, model=Model):
    """The dense and the linear model with the same parameters, which are not those they start from."""
    kernel = (KERNELS | ROWS)[kind]()
    for parameter in kernel.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    x, y, new = data(kind)
    models = []
    for each in (kernel, Markov(copy.deepcopy(kernel))):
        models.append(model(x, y, each, likelihood()))
        models[-1].mean_module.initialize(constant=0.4)
        models[-1].likelihood.initialize(noise=0.1)
    return *models, x, y, new


def evidence(model, x, y):
    model.train()
    return gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)


def slopes(model, value):
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.autograd.grad(value, parameters, allow_unused=True)


@pytest.mark.parametrize("kind", [*KERNELS, *ROWS])
def test_models_are_the_dense_ones(kind):
    dense, linear, x, y, new = pair(kind)
    expected, value = evidence(dense, x, y), evidence(linear, x, y)
    CLOSE(value, expected)
    CLOSE(slopes(linear, value), slopes(dense, expected), rtol=1e-6, atol=1e-8)
    dense.eval(), linear.eval()
    with torch.no_grad():
        expected, predicted = dense(new), linear(new)
        CLOSE(predicted.mean, expected.mean)
        CLOSE(predicted.variance, expected.variance, rtol=1e-7, atol=1e-8)
        CLOSE(predicted.covariance_matrix, expected.covariance_matrix)
        CLOSE(linear.likelihood(linear(new)).variance, dense.likelihood(dense(new)).variance)
        CLOSE(linear(x).mean, dense(x).mean)


@pytest.mark.parametrize("kind", [*KERNELS, *ROWS])
def test_kernels_are_the_dense_ones(kind):
    dense, linear, x, _, new = pair(kind)
    with torch.no_grad():
        CLOSE(linear.covar_module(x).to_dense(), dense.covar_module(x).to_dense())
        CLOSE(linear.covar_module(new, x).to_dense(), dense.covar_module(new, x).to_dense())
        CLOSE(linear.covar_module(x, diag=True), dense.covar_module(x, diag=True))
        CLOSE(linear.covar_module(x).evaluate_kernel().diagonal(), dense.covar_module(x, diag=True))
        CLOSE(linear.covar_module(new, x).mT.to_dense(), dense.covar_module(x, new).to_dense())


def spread(kind):
    """New inputs before all rows, between them, at some and after all, in no order."""
    x, _, new = data(kind)
    more = torch.linspace(0.0, 6.0, 12)[torch.randperm(12), None]
    if kind in ROWS:
        more = torch.cat([more, torch.arange(12)[:, None] % 3.0], dim=-1)
    return torch.cat([more, new, x[:3]])


@pytest.mark.parametrize("kind", [kind for kind in [*KERNELS, *ROWS] if kind != "quasi-periodic"])
def test_a_further_prediction_does_not_go_through_the_rows_again(kind, monkeypatch):
    """It is the dense one, and so is its covariance; the quasi-periodic kernel has too many states to keep."""
    dense, linear, _, _, _ = pair(kind)
    new = spread(kind)
    with torch.no_grad():
        dense.eval(), linear.eval()(new[:1])
        monkeypatch.delattr(markov, "_moments")
        monkeypatch.delattr(markov_memory, "kept_rows")
        monkeypatch.delattr(markov_memory, "observed_rows")
        monkeypatch.delattr(PromisedMarkovLinearOperator, "made")
        expected, predicted = dense(new), linear(new)
        EXACT(predicted.mean, expected.mean)
        EXACT(predicted.variance, expected.variance)
        EXACT(linear.likelihood(predicted).covariance_matrix, dense.likelihood(expected).covariance_matrix)
        assert predicted.sample(torch.Size([3])).shape == (3, len(new))


def test_many_new_rows_go_through_all(monkeypatch):
    """Their states would take more memory at once."""
    dense, linear, _, _, _ = pair("matern32")
    new, taken = spread("matern32"), []
    moments = markov._moments
    monkeypatch.setattr(markov, "_moments", lambda *given: taken.append(given) or moments(*given))
    monkeypatch.setattr(markov_memory, "MOST_ENTRIES", 4 * (len(new) - 1))
    with torch.no_grad():
        CLOSE(linear.eval()(new[1:]).variance, dense.eval()(new[1:]).variance)
        assert not taken
        CLOSE(linear(new).variance, dense(new).variance)
        assert len(taken) == 1


@pytest.mark.parametrize("kind", ["matern32", "line", "lmc"])
def test_what_is_kept_is_of_the_present_parameters(kind):
    """And gradients are as without it."""
    dense, linear, _, _, new = pair(kind)
    with torch.no_grad():
        linear.eval()(new)
        for model in (dense, linear):
            for parameter in model.covar_module.parameters():
                parameter.data += 0.2
        EXACT(linear(new).mean, dense.eval()(new).mean)
        EXACT(linear(new).variance, dense(new).variance)
    with gpytorch.settings.detach_test_caches(False):
        dense.train(), dense.eval()
        CLOSE(*[slopes(model.covar_module, model(new).mean.sum()) for model in (linear, dense)], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["matern32", "spline", "icm"])
def test_fantasies_after_the_last_row_take_their_own_time(kind, monkeypatch):
    """Predictions after it go through the new rows only; earlier ones are of all rows."""
    dense, linear, _, _, _ = pair(kind)
    new, taken = spread(kind), []
    later = new[:5].clone()
    later[:, 0] = torch.tensor([7.0, 6.5, 8.0, 7.5, 9.0])

    def rows(terms, layout, x, before=None):
        taken.append(len(x))
        return observed_rows(terms, layout, x, before)

    observed_rows = markov_memory.observed_rows
    with torch.no_grad():
        models = [model.eval() for model in (dense, linear)]
        monkeypatch.setattr(markov_memory, "observed_rows", rows)
        for some, targets in ((later[:2], torch.tensor([0.3, -0.2])), (later[2:3], torch.tensor([0.7]))):
            for model in models:
                model(later[-1:])
            models = [model.get_fantasy_model(some, targets) for model in models]
        EXACT(models[1](later[3:]).mean, models[0](later[3:]).mean)
        EXACT(models[1](later[3:]).covariance_matrix, models[0](later[3:]).covariance_matrix)
        assert taken == [len(linear.train_targets), 2, 1]
        EXACT(models[1](new).mean, models[0](new).mean)
        EXACT(models[1](new).variance, models[0](new).variance)


@pytest.mark.parametrize("kind", ["matern32", "line", "icm"])
def test_predictions_have_gradients_by_new_inputs(kind):
    dense, linear, _, _, new = pair(kind)
    results = []
    for model in (dense.eval(), linear.eval()):
        inputs = (new + 0.01).requires_grad_() if kind != "icm" else new.clone().requires_grad_()
        predicted = model(inputs)
        objective = (predicted.mean + predicted.variance.sqrt()).sum()
        (slope,) = torch.autograd.grad(objective, inputs)
        results.append((predicted.mean.detach(), predicted.variance.detach(), slope[:, 0]))
    CLOSE(*results, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [*KERNELS, *ROWS])
def test_predictions_have_gradients_by_parameters(kind):
    """By those of the kernel, the noise and the mean; at new inputs, of which some are observed."""
    dense, linear, _, _, new = pair(kind)
    slopes_of = []
    for model in (dense.eval(), linear.eval()):
        with gpytorch.settings.detach_test_caches(False):  # by GPyTorch's default half of a gradient is left out
            predicted = model.likelihood(model(new))
        weights = torch.linspace(-1, 1, len(new))
        slopes_of.append(slopes(model, (weights * (predicted.mean + predicted.variance)).sum()))
    assert all((slope is None) == (other is None) for slope, other in zip(*slopes_of, strict=True))
    known = [[slope for slope in each if slope is not None] for each in slopes_of]
    CLOSE(*known, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["matern32", "icm"])
def test_rows_left_out(kind):
    """In evidence, its gradients, mean and variance."""
    dense, linear, x, y, new = pair(kind)
    seen = torch.rand(len(y)) < 0.6
    holes = torch.where(seen, y, torch.nan)
    dense.set_train_data(x[seen], y[seen], strict=False)
    linear.set_train_data(x, holes, strict=False)
    with leave_out_missing():
        expected, value = evidence(dense, x[seen], y[seen]) * seen.sum(), evidence(linear, x, holes) * len(y)
        CLOSE(value, expected)
        CLOSE(slopes(linear, value), slopes(dense, expected), rtol=1e-6, atol=1e-8)
        dense.eval(), linear.eval()
        with torch.no_grad():
            CLOSE(linear(new).mean, dense(new).mean)
            CLOSE(linear(new).variance, dense(new).variance)
            CLOSE(linear(new).covariance_matrix, dense(new).covariance_matrix)
    linear.train(), linear.eval()
    with pytest.raises(ValueError, match=r"train_targets: expected numbers, got \d+ NaN of"):
        linear(new)
    with pytest.raises(ValueError, match="NaN"):
        evidence(linear, x, holes)


def test_several_outputs_at_each_input():
    x, new = times(12), times(5, 3)
    y = torch.cat([x.sin(), x.cos()], dim=-1) + 0.1 * torch.randn(12, 2)
    lcm = LCMKernel([MaternKernel(nu=1.5), MaternKernel(nu=0.5)], num_tasks=2, rank=1)
    for kernel in (MultitaskKernel(MaternKernel(nu=2.5), num_tasks=2, rank=1), lcm):
        models = [
            MultitaskModel(x, y, each, MultitaskGaussianLikelihood(num_tasks=2))
            for each in (kernel, Markov(copy.deepcopy(kernel)))
        ]
        expected, value = (evidence(model, x, y) for model in models)
        CLOSE(value, expected)
        CLOSE(slopes(models[1], value), slopes(models[0], expected), rtol=1e-6, atol=1e-8)
        with torch.no_grad():
            dense, linear = (model.eval()(new) for model in models)
            CLOSE(linear.mean, dense.mean)
            CLOSE(linear.variance, dense.variance)
            CLOSE(linear.covariance_matrix, dense.covariance_matrix)
            noisy = [model.likelihood(model(new)).variance for model in models]
            CLOSE(*noisy)


def test_several_outputs_with_gaps():
    x, new = times(12), times(5, 3)
    y = torch.cat([x.sin(), x.cos()], dim=-1) + 0.1 * torch.randn(12, 2)
    kernel, likelihood = MultitaskKernel(MaternKernel(nu=1.5), num_tasks=2), MultitaskGaussianLikelihood(num_tasks=2)
    seen = torch.rand(12, 2) < 0.7
    linear = MultitaskModel(x, torch.where(seen, y, torch.nan), Markov(kernel), likelihood)
    with leave_out_missing(), torch.no_grad():
        value = evidence(linear, x, torch.where(seen, y, torch.nan)) * 24
        predicted = linear.eval()(new)
    with torch.no_grad():
        K = kernel(torch.cat([x, new])).to_dense()
        cells, count = seen.flatten().nonzero()[:, 0], 24
        noise = likelihood._shaped_noise_covar(torch.Size([12, 2])).diagonal()[cells]
        noisy = K[cells][:, cells] + noise.diag()
        expected = MultivariateNormal(torch.zeros(len(cells)), noisy).log_prob(y.flatten()[cells])
        cross = K[count:][:, cells]
        CLOSE(value, expected)
        CLOSE(predicted.mean.flatten(), cross @ torch.linalg.solve(noisy, y.flatten()[cells]))
        CLOSE(predicted.covariance_matrix, K[count:, count:] - cross @ torch.linalg.solve(noisy, cross.mT))


@pytest.mark.parametrize("kind", ["matern32", "icm"])
def test_fantasies(kind):
    dense, linear, _, _, new = pair(kind)
    targets = torch.randn(4, 3)
    with torch.no_grad():
        models = [model.eval() for model in (dense, linear)]
        for model in models:
            model(new)
        one = [model.get_fantasy_model(new[:3], targets[0]) for model in models]
        CLOSE(one[1](new).mean, one[0](new).mean)
        CLOSE(one[1](new).variance, one[0](new).variance, rtol=1e-6, atol=1e-7)
        several = [model.get_fantasy_model(new[:3], targets) for model in models]
        CLOSE(several[1](new).mean, several[0](new).mean, rtol=1e-6, atol=1e-7)
        CLOSE(several[1](new).variance, several[0](new).variance, rtol=1e-6, atol=1e-7)


class HadamardModel(ExactGP):
    """GPyTorch's example "Hadamard multitask GP regression", as it is there but for the kernel that it is given."""

    def __init__(self, train_x, train_y, likelihood, kernel):
        super().__init__(train_x, train_y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel  # there gpytorch.kernels.RBFKernel()
        self.task_covar_module = IndexKernel(num_tasks=2, rank=1)

    def forward(self, x, i):
        mean_x = self.mean_module(x)
        covar_x = self.covar_module(x)
        covar_i = self.task_covar_module(i)
        covar = covar_x.mul(covar_i)
        return MultivariateNormal(mean_x, covar)


def hadamard(n, kernel):
    """The data of the example: each task at times of its own."""
    torch.manual_seed(1)
    x = torch.rand(n), torch.rand(n)
    y = [f(6.28 * each) + 0.2 * torch.randn(n) for f, each in zip((torch.sin, torch.cos), x, strict=True)]
    i = torch.arange(2).repeat_interleave(n)[:, None]
    likelihood = GaussianLikelihood()
    model = HadamardModel((torch.cat(x)[:, None], i), torch.cat(y), likelihood, kernel)
    return model, (torch.cat(x)[:, None], i), torch.cat(y)


def test_the_hadamard_example_is_linear_by_one_line():
    models = []
    for kernel in (MaternKernel(nu=2.5), Markov(MaternKernel(nu=2.5))):
        torch.manual_seed(0)
        model, x, y = hadamard(20, kernel)
        value = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(*x), y)
        models.append((model, value, slopes(model, value)))
    (dense, expected, wanted), (linear, value, found) = models
    CLOSE(value, expected)
    CLOSE(found, wanted, rtol=1e-6, atol=1e-8)
    new, task = torch.linspace(0, 1, 7), torch.tensor([0, 1, 0, 1, 1, 0, 0])[:, None]
    with torch.no_grad():
        expected, predicted = dense.eval()(new, task), linear.eval()(new, task)
        CLOSE(predicted.mean, expected.mean)
        CLOSE(predicted.covariance_matrix, expected.covariance_matrix)
        fantasies = [each.get_fantasy_model([new[:2], task[:2]], torch.ones(2)) for each in (dense, linear)]
        CLOSE(*(each(new, task).variance for each in fantasies), rtol=1e-6, atol=1e-7)


def test_the_hadamard_example_of_many_rows():
    """A dense covariance would take 80 GB."""
    model, x, y = hadamard(50_000, Markov(MaternKernel(nu=2.5)))
    loss = -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(*x), y)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    new, model = torch.linspace(0, 1, 51), model.eval()
    with torch.no_grad():
        predicted = model(new, torch.zeros(51, 1, dtype=torch.long))
    assert predicted.variance.max() < 0.05


def test_fantasies_with_noise_of_their_own():
    x, y, new = data("matern32")
    noise = 0.05 + 0.1 * torch.rand(len(y))
    models = []
    for kernel in (ScaleKernel(MaternKernel(nu=1.5)), Markov(ScaleKernel(MaternKernel(nu=1.5)))):
        models.append(Model(x, y, kernel, FixedNoiseGaussianLikelihood(noise)).eval())
    with torch.no_grad():
        for model in models:
            model(new)
        CLOSE(models[1](new).variance, models[0](new).variance)
        more = [model.get_fantasy_model(new[:3], torch.ones(3), noise=torch.full((3,), 0.01)) for model in models]
        CLOSE(more[1](new).mean, more[0](new).mean)
        CLOSE(more[1](new).variance, more[0](new).variance, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("same", [True, False])
def test_batches(same):
    """Of kernels on one time line, and of inputs of their own."""
    batch = torch.Size([3])
    x = times(10).expand(3, 10, 1) if same else torch.stack([times(10, seed) for seed in range(3)])
    y, new = torch.randn(3, 10), times(4, 5).expand(3, 4, 1)
    kernel = ScaleKernel(MaternKernel(nu=1.5, batch_shape=batch), batch_shape=batch)
    kernel.base_kernel.lengthscale = torch.tensor([0.3, 1.0, 2.0])[:, None, None]
    models = []
    for each in (kernel, Markov(copy.deepcopy(kernel))):
        models.append(Model(x, y, each, GaussianLikelihood(batch_shape=batch)))
        models[-1].mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
    expected, value = (evidence(model, x, y).sum() for model in models)
    CLOSE(value, expected)
    CLOSE(slopes(models[1], value), slopes(models[0], expected), rtol=1e-6, atol=1e-8)
    with torch.no_grad():
        dense, linear = (model.eval()(new) for model in models)
        CLOSE(linear.mean, dense.mean)
        CLOSE(linear.variance, dense.variance)


@pytest.mark.parametrize("few", [128, 0])
def test_draws_are_of_the_posterior(few, monkeypatch):
    """Within six standard errors of every mean and covariance, by the dense matrix of few entries or the smoother."""
    monkeypatch.setattr(markov_posterior, "_FEW", few)
    _, linear, _, _, new = pair("matern32")
    count = 20_000
    with torch.no_grad():
        predicted = linear.eval()(new[:6])
        draws, covariance = predicted.sample(torch.Size([count])), predicted.covariance_matrix
        variance = covariance.diagonal()
        assert ((draws.mean(0) - predicted.mean).abs() <= 6 * (variance / count).sqrt()).all()
        spread = ((variance[:, None] * variance + covariance**2) / count).sqrt()
        assert ((draws.T.cov() - covariance).abs() <= 6 * spread).all()
        prior = linear.covar_module(new[:6]).evaluate_kernel()
        draws, covariance = prior.zero_mean_mvn_samples(count), prior.to_dense()
        variance = covariance.diagonal()
        spread = ((variance[:, None] * variance + covariance**2) / count).sqrt()
        assert ((draws.T.cov() - covariance).abs() <= 6 * spread).all()


def test_draws_of_few_entries_go_through_the_rows_once(monkeypatch):
    """And entries that repeat, whose covariance is singular, need no jitter."""
    _, linear, _, _, new = pair("matern32")
    monkeypatch.delattr(StateSpacePosterior, "draw")
    with torch.no_grad():
        draws = linear.eval()(torch.cat([new[:2], new[:2]])).sample(torch.Size([3]))
    CLOSE(draws[:, :2], draws[:, 2:], atol=1e-6)


def test_sums_and_scales_of_markov_kernels():
    x, y, new = data("matern32")
    parts = [ScaleKernel(MaternKernel(nu=nu)) for nu in (0.5, 1.5)]
    both = Markov(parts[0]) + Markov(parts[1])
    assert isinstance(both, Markov)
    dense, linear = (Model(x, y, kernel, GaussianLikelihood()).eval() for kernel in (parts[0] + parts[1], both))
    scaled = Model(x, y, ScaleKernel(Markov(MaternKernel(nu=0.5))), GaussianLikelihood()).eval()
    plain = Model(x, y, ScaleKernel(MaternKernel(nu=0.5)), GaussianLikelihood()).eval()
    with torch.no_grad():
        CLOSE(linear(new).variance, dense(new).variance)
        CLOSE(scaled(new).variance, plain(new).variance)
    assert isinstance(Markov(MaternKernel(nu=0.5)) * CosineKernel(), Markov)


@pytest.mark.parametrize("join", [AdditiveKernel, ProductKernel, operator.add, operator.mul])
@pytest.mark.parametrize("other", [RBFKernel, MaternKernel])
@pytest.mark.parametrize("is_first", [False, True])
def test_sums_and_products_of_gpytorch_are_the_dense_ones(join, other, is_first):
    x, new = times(60), torch.linspace(0.01, 9.0, 7)
    y = x[:, 0].sin()
    wrap = Markov if other is MaternKernel else (lambda kernel: kernel)
    pairs = (other(), MaternKernel(nu=1.5)), (wrap(other()), Markov(MaternKernel(nu=1.5)))
    kernels = (join(*(pair[::-1] if is_first else pair)) for pair in pairs)
    dense, linear = (Model(x, y, kernel, GaussianLikelihood()) for kernel in kernels)
    for model in (dense, linear):
        model.value = evidence(model, x, y)
    CLOSE(linear.value, dense.value)
    for pair in zip(slopes(linear, linear.value), slopes(dense, dense.value), strict=True):
        CLOSE(*pair)
    with torch.no_grad():
        predicted = [model.eval()(new) for model in (linear, dense)]
    CLOSE(*(each.mean for each in predicted))
    CLOSE(*(each.variance for each in predicted))


@pytest.mark.parametrize("join", [operator.add, operator.mul])
def test_markov_around_a_sum_with_markov_is_linear(join):
    x, y, new = data("matern32")
    parts = [ScaleKernel(MaternKernel(nu=nu)) for nu in (0.5, 1.5)]
    nested = Markov(ScaleKernel(join(parts[0], Markov(parts[1]))))
    dense, linear = (Model(x, y, kernel, GaussianLikelihood()).eval() for kernel in (ScaleKernel(join(*parts)), nested))
    with torch.no_grad():
        CLOSE(linear(new).variance, dense(new).variance)
    assert {id(part) for part in parts[1].parameters()} < {id(part) for part in nested.parameters()}


def test_a_dense_sum_with_markov_says_how_to_write_it(monkeypatch):
    monkeypatch.setattr(markov, "_MANY", 20)
    x, matern = times(20), MaternKernel(nu=1.5)
    with pytest.warns(UserWarning, match="20 rows in a sum or product .* write Markov.* first") as caught:
        (matern + Markov(matern))(x).evaluate_kernel()
    assert caught[0].filename == __file__
    for kernel in (Markov(matern), Markov(matern) + matern, ScaleKernel(Markov(matern))):  # pytest refuses warnings
        kernel(x).evaluate_kernel()
    (matern + Markov(matern))(x[1:]).evaluate_kernel()


def test_products_over_other_features_are_the_dense_ones():
    """Of GPyTorch's; they are dense at once, where GPyTorch would factor both covariances."""
    x, new = (torch.rand(count, 2) for count in (40, 7))
    parts = [ScaleKernel(MaternKernel(nu=1.5, active_dims=[feature])) for feature in (0, 1)]
    dense = Model(x, x.sum(-1).sin(), ProductKernel(*parts), GaussianLikelihood())
    linear = Model(x, x.sum(-1).sin(), ProductKernel(*map(Markov, parts)), GaussianLikelihood())
    assert isinstance(linear.covar_module(x).evaluate_kernel(), DenseLinearOperator)
    CLOSE(evidence(linear, x, linear.train_targets), evidence(dense, x, dense.train_targets))
    with torch.no_grad():
        predicted = [model.eval()(new) for model in (linear, dense)]
    CLOSE(*(each.mean for each in predicted))
    CLOSE(*(each.variance for each in predicted))


def test_a_chosen_first_feature_may_have_others_beside_it():
    x = torch.rand(9, 2)
    kernel = MaternKernel(nu=1.5, active_dims=[0])
    CLOSE(Markov(kernel)(x).to_dense(), kernel(x).to_dense())
    with pytest.raises(ValueError, match="x: expected 1 features, got 2"):
        Markov(MaternKernel(nu=1.5))(x).to_dense()


def test_float32_models_compute_in_float64():
    torch.set_default_dtype(torch.float32)
    x = torch.linspace(0, 10, 50)
    model = Model(x, x.sin(), Markov(ScaleKernel(MaternKernel(nu=2.5))), GaussianLikelihood())
    value = evidence(model, x, x.sin())
    value.backward()
    assert value.dtype == torch.float32
    assert model.eval()(x).variance.dtype == torch.float32


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBFKernel, r"RBFKernel is not one of .* and has no markov_form: MaternKernel\(nu=2.5\) is the smoothest"),
        (lambda: "matern", "base_kernel: expected a kernel, such as .*, got 'matern'"),
        (Squared, "Squared has a forward of its own, and no markov_form"),
        (lambda: MaternKernel(nu=1.5) * LinearKernel(), "LinearKernel is a factor of a product"),
        (lambda: MaternKernel(nu=1.5, ard_num_dims=2), "several or chosen inputs"),
        (lambda: MaternKernel(active_dims=[0]) + MaternKernel(active_dims=[1]), r"one ordered input, .* \[0, 1\]"),
        (lambda: MaternKernel(nu=1.5) * IndexKernel(num_tasks=2), "active_dims that say which feature"),
    ],
)
def test_other_kernels_are_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        Markov(kernel())


def test_rows_of_other_outputs_are_refused():
    kernel = Markov(MaternKernel(active_dims=[0]) * index())
    with pytest.raises(ValueError, match="expected outputs 0 to 2 in feature 1, got 3"):
        kernel(torch.tensor([[0.0, 3.0]])).to_dense()
    with pytest.raises(ValueError, match="x: expected 1 features, got 2"):
        Markov(MaternKernel())(torch.zeros(3, 2)).to_dense()


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_rows_without_a_place_are_refused(wrong):
    x, message = times(9), "x: expected finite numbers, got 1 NaN or infinite of"
    holed = x.index_fill(0, torch.tensor([4]), wrong)
    with torch.no_grad(), pytest.raises(ValueError, match=message):
        Model(holed, x[:, 0].sin(), Markov(MaternKernel()), GaussianLikelihood()).double().eval()(x + 0.1)
    with torch.no_grad(), pytest.raises(ValueError, match=message):
        Model(x, x[:, 0].sin(), Markov(MaternKernel()), GaussianLikelihood()).double().eval()(holed + 0.1)


def test_the_sum_of_two_operators_is_linear_too():
    x = times(9)
    first, second = (Markov(kernel)(x).evaluate_kernel() for kernel in (MaternKernel(nu=2.5), MaternKernel(nu=0.5)))
    together = first + second
    assert type(together) is type(first)
    CLOSE(together.to_dense(), first.to_dense() + second.to_dense())


@pytest.mark.parametrize("batch", [(), (2,)])
def test_an_oscillator_has_one_frequency(batch):
    kernel = DampedOscillatorKernel(torch.Size(batch))
    assert kernel.frequency.shape == kernel.quality.shape == (*batch, 1, 1)


@pytest.mark.parametrize("kind", ["matern52", "oscillator", "icm"])
def test_many_rows_are_the_dense_model(kind):
    """Many steps in many lanes: unsorted, repeated, two outputs with times of their own."""
    kernel = (KERNELS | ROWS)[kind]()
    x = (16.0 * torch.rand(200, 1)).round(decimals=1)
    x = torch.cat([x, torch.randint(0, 3, (200, 1)).double()], dim=-1) if kind in ROWS else x
    y, new = x[:, 0].sin() + 0.3 * torch.randn(200), x[:50] + 0.05 * torch.tensor([1.0, 0.0])[: x.shape[-1]]
    dense, linear = (Model(x, y, each, GaussianLikelihood()) for each in (kernel, Markov(copy.deepcopy(kernel))))
    with gpytorch.settings.fast_computations(log_prob=False, solves=False):
        expected, value = evidence(dense, x, y), evidence(linear, x, y)
        CLOSE(value, expected)
        CLOSE(slopes(linear, value), slopes(dense, expected), rtol=1e-6, atol=1e-8)
        with torch.no_grad():
            predicted, expected = linear.eval()(new), dense.eval()(new)
            CLOSE(predicted.mean, expected.mean)
            CLOSE(predicted.variance, expected.variance)
            CLOSE(predicted.covariance_matrix, expected.covariance_matrix)
            noisy, truth = linear.likelihood(predicted), dense.likelihood(expected)
            CLOSE(noisy.log_prob(new[:, 0].sin()), truth.log_prob(new[:, 0].sin()))


@pytest.mark.parametrize("kind", ["matern32", "icm"])
def test_draws_have_gradients(kind):
    """Those of the prior in linear time, those of predictions by their dense covariance: as of the dense model."""
    dense, linear, x, _, new = pair(kind)
    normal, results = torch.randn(3, len(new)), []
    for model in (dense.eval(), linear.eval()):
        with gpytorch.settings.detach_test_caches(False):
            draws = model.likelihood(model(new)).rsample(torch.Size([3]), base_samples=normal)
        results.append((draws, *filter(lambda x: x is not None, slopes(model, draws.square().sum()))))
    CLOSE(*results, rtol=1e-6, atol=1e-7)
    torch.manual_seed(0)
    assert linear(new).rsample(torch.Size([2])).requires_grad
    prior = linear.likelihood(linear.train()(x))
    draws = prior.rsample(torch.Size([3]))
    assert draws.shape == (3, len(x))
    assert sum(slope is not None for slope in slopes(linear, draws.square().sum())) >= 3


def test_another_device_is_refused():
    kernel, x = Markov(MaternKernel(nu=1.5)), torch.linspace(0, 1, 5)[:, None]
    with pytest.raises(ValueError, match="Markov: expected inputs on the CPU, where its recursions run, got meta"):
        kernel.forward(x.to("meta"), x.to("meta"))
    with pytest.raises(ValueError, match="device: expected the CPU, .* got meta"):
        kernel(x).evaluate_kernel().to(device="meta")
