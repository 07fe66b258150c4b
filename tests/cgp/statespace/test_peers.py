"""Markov kernels beside the other libraries that have them: tinygp, celerite2 and statsmodels, to 1e-8."""

import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from cgp.kernels import DampedOscillatorKernel, Markov, leave_out_missing
from tests.cgp.kernels.test_markov import Model

pytestmark = pytest.mark.filterwarnings("ignore")

SCALE, LENGTH, NOISE = 1.7, 0.8, 0.1
OMEGA, QUALITY = 2.3, 1.9


@pytest.fixture(autouse=True)
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def series(n=200):
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 20, n))
    return x, np.sin(x) + 0.3 * generator.standard_normal(n), np.sort(generator.uniform(-1, 22, 30))


def model_of(kernel, x, y):
    model = Model(torch.as_tensor(x), torch.as_tensor(y), Markov(kernel), GaussianLikelihood())
    model.likelihood.noise = NOISE
    return model


def scaled(kernel, scale=SCALE):
    kernel = ScaleKernel(kernel)
    kernel.outputscale = scale
    return kernel


def matern(nu):
    kernel = MaternKernel(nu=nu)
    kernel.lengthscale = LENGTH
    return scaled(kernel)


def oscillator(quality=QUALITY):
    kernel = DampedOscillatorKernel()
    kernel.frequency, kernel.quality = OMEGA, quality
    return scaled(kernel)


def answers(model, x, y, new):
    """Log-density, and mean and variance at new inputs."""
    x, y, new = (torch.as_tensor(each) for each in (x, y, new))
    with torch.no_grad():
        value = model.likelihood(model.train()(x[:, None])).log_prob(y)
        predicted = model.eval()(new)
        return float(value), predicted.mean.numpy(), predicted.variance.numpy()


def assert_same(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-8)


TINY = {
    "matern12": (lambda: matern(0.5), lambda q: SCALE * q.Exp(scale=LENGTH)),
    "matern32": (lambda: matern(1.5), lambda q: SCALE * q.Matern32(scale=LENGTH)),
    "matern52": (lambda: matern(2.5), lambda q: SCALE * q.Matern52(scale=LENGTH)),
    "oscillator": (oscillator, lambda q: SCALE * q.SHO(omega=OMEGA, quality=QUALITY)),
    "overdamped": (lambda: oscillator(0.3), lambda q: SCALE * q.SHO(omega=OMEGA, quality=0.3)),
    "sum": (
        lambda: matern(2.5) + oscillator(),
        lambda q: SCALE * q.Matern52(scale=LENGTH) + SCALE * q.SHO(omega=OMEGA, quality=QUALITY),
    ),
    "product": (
        lambda: matern(0.5) * oscillator(),
        lambda q: (SCALE * q.Exp(scale=LENGTH)) * (SCALE * q.SHO(omega=OMEGA, quality=QUALITY)),
    ),
}


@pytest.mark.parametrize("name", TINY)
def test_tinygp(name):
    tinygp, jax = pytest.importorskip("tinygp"), pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    kernel, theirs = TINY[name]
    x, y, new = series()
    process = tinygp.GaussianProcess(theirs(tinygp.kernels.quasisep), x, diag=NOISE)
    value, conditioned = process.condition(y, new, diag=0.0)
    assert_same(answers(model_of(kernel(), x, y), x, y, new), (float(value), conditioned.loc, conditioned.variance))


def test_tinygp_gradients():
    tinygp, jax = pytest.importorskip("tinygp"), pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    x, y, _ = series()

    def log_density(scale, length, noise):
        kernel = scale * tinygp.kernels.quasisep.Matern32(scale=length)
        return tinygp.GaussianProcess(kernel, x, diag=noise).log_probability(y)

    model = model_of(matern(1.5), x, y)
    value = model.likelihood(model(torch.as_tensor(x)[:, None])).log_prob(torch.as_tensor(y))
    kernel, likelihood = model.covar_module.base_kernel, model.likelihood
    raw = kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale, likelihood.noise_covar.raw_noise
    slopes = torch.autograd.grad(value, raw)
    by_raw = [torch.sigmoid(each.detach()).flatten() for each in raw]  # of a softplus
    expected = jax.grad(log_density, argnums=(0, 1, 2))(SCALE, LENGTH, NOISE)
    for mine, inner, theirs in zip(slopes, by_raw, expected, strict=True):
        np.testing.assert_allclose(mine.flatten(), float(theirs) * inner, rtol=1e-8)


def test_celerite2():
    celerite2 = pytest.importorskip("celerite2")
    x, y, new = series()
    term = celerite2.terms.SHOTerm(sigma=SCALE**0.5, w0=OMEGA, Q=QUALITY)
    process = celerite2.GaussianProcess(term, mean=0.0)
    process.compute(x, diag=np.full(len(x), NOISE))
    mean, variance = process.predict(y, t=new, return_var=True)
    assert_same(answers(model_of(oscillator(), x, y), x, y, new), (process.log_likelihood(y), mean, variance))


def test_statsmodels_with_gaps():
    """An Ornstein-Uhlenbeck process on a grid is an autoregression of order one that is observed with noise."""
    sarimax = pytest.importorskip("statsmodels.api").tsa.SARIMAX
    x, (_, y, _) = np.arange(200) * 0.1, series()
    y[40:80], y[150] = np.nan, np.nan
    persistence = np.exp(-0.1 / LENGTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = sarimax(y, order=(1, 0, 0), measurement_error=True)
        result = theirs.smooth([persistence, NOISE, SCALE * (1.0 - persistence**2)])
    model = model_of(matern(0.5), x, y)
    with leave_out_missing():
        ours = answers(model, x, y, x)
    assert_same(ours, (result.llf, result.smoothed_state[0], result.smoothed_state_cov[0, 0]))


def test_botorch():
    """Its SingleTaskGP with the kernel: training, posterior, a fantasy, and an acquisition function's gradient."""
    botorch = pytest.importorskip("botorch")
    x, y, new = series(60)
    x, y, new = (torch.as_tensor(each)[:, None] for each in (x / 20, y, new / 22))
    results = []
    for make in (lambda kernel: kernel, Markov):
        torch.manual_seed(0)
        model = botorch.models.SingleTaskGP(x, y, covar_module=make(ScaleKernel(MaternKernel(nu=2.5))))
        loss = -botorch.fit.ExactMarginalLogLikelihood(model.likelihood, model)(
            model(*model.train_inputs), model.train_targets
        )
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        model.eval()
        posterior = model.posterior(new)
        batch = model.posterior(new[:20].reshape(5, 2, 2)[..., :1], observation_noise=True)
        inputs = new[:3, None].clone().requires_grad_()
        value = botorch.acquisition.LogExpectedImprovement(model, best_f=1.0)(inputs)
        draws = model.posterior(new[:4]).rsample_from_base_samples(torch.Size([2]), torch.ones(2, 4))
        fantasy = model.condition_on_observations(new[:2], torch.ones(2, 1)).posterior(new)
        found = [loss, *slopes, posterior.mean, posterior.variance, batch.mean, batch.variance, value]
        found += [*torch.autograd.grad(value.sum(), inputs), draws, fantasy.mean, fantasy.variance]
        results.append([each.detach().numpy() for each in found])
    for dense, linear in zip(*results, strict=True):
        np.testing.assert_allclose(linear, dense, rtol=1e-6, atol=1e-7)
