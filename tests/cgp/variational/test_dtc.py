"""The closed-form DTC strategy against dense algebra, GPyTorch's SVGP and Titsias' bound."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.models import ApproximateGP
from scipy.stats import multivariate_normal

from cgp.kernels import CorrelatedKernel, HadamardCorrelatedKernel
from cgp.variational import DTCVariationalStrategy

NOISE = 0.05


def data(n=20):
    x = torch.linspace(-2, 2, n, dtype=torch.float64)[:, None]
    return x, (3 * x[:, 0]).sin() + 0.1 * torch.randn(n, dtype=torch.float64)


def make(x, y, num_inducing=6):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    step = max(len(x) // num_inducing, 1)
    mean = gpytorch.means.ConstantMean()
    return DTCVariationalStrategy(kernel, x[::step][:num_inducing], x, y, likelihood, mean).double(), likelihood


def dense(strategy):
    """The kernel as a numpy function of two sets."""
    return lambda a, b: strategy.covar_module(a, b).to_dense().detach().numpy()


def test_posterior_matches_dense_algebra():
    x, y = data()
    strategy, _ = make(x, y)
    with torch.no_grad():
        strategy.mean_module.constant.fill_(0.3)
        K, S, new = dense(strategy), strategy.inducing_points, torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
        inner = np.linalg.inv(K(S, S) + K(S, x) @ K(x, S) / NOISE)
        mean = 0.3 + K(new, S) @ inner @ K(S, x) @ (y.numpy() - 0.3) / NOISE
        D = np.diag(K(new, new)) - np.diag(K(new, S) @ np.linalg.inv(K(S, S)) @ K(S, new))
        posterior = ApproximateGP(strategy)(new)
        np.testing.assert_allclose(posterior.mean, mean, rtol=1e-5, atol=1e-6)
        expected = K(new, S) @ inner @ K(S, new) + np.diag(D)
        np.testing.assert_allclose(posterior.covariance_matrix, expected, rtol=1e-4, atol=1e-6)
        prior = ApproximateGP(strategy)(new, prior=True)
        np.testing.assert_allclose(prior.variance, np.diag(K(new, new)), rtol=1e-8)


def test_elbo_is_titsias_bound():
    x, y = data()
    strategy, likelihood = make(x, y)
    model = ApproximateGP(strategy)
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))(model(x), y)
    K, S = dense(strategy), strategy.inducing_points.detach()
    Q = K(x, S) @ np.linalg.inv(K(S, S)) @ K(S, x)
    bound = multivariate_normal(np.zeros(20), Q + NOISE * np.eye(20)).logpdf(y.numpy())
    bound -= np.trace(K(x, x) - Q) / (2 * NOISE)
    assert elbo.item() * len(y) == pytest.approx(bound, rel=1e-5)


def test_wrong_shapes_are_refused():
    x, y = data()
    with pytest.raises(ValueError, match=r"expected \(m, d\), \(n, d\) and \(n,\)"):
        DTCVariationalStrategy(gpytorch.kernels.RBFKernel(), x, x, y[:3], gpytorch.likelihoods.GaussianLikelihood())


@pytest.mark.parametrize("name", ["inducing_points", "train_inputs", "train_targets"])
def test_nan_is_refused(name):
    x, y = data()
    given = {"inducing_points": x[::5], "train_inputs": x, "train_targets": y}
    given[name] = given[name].index_fill(0, torch.tensor([1]), torch.nan)
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers, got 1 NaN or infinite of"):
        DTCVariationalStrategy(
            gpytorch.kernels.RBFKernel(), **given, likelihood=gpytorch.likelihoods.GaussianLikelihood()
        )


def test_what_would_fail_on_use_is_refused_at_once():
    x, y = data()
    kernel, gaussian = gpytorch.kernels.RBFKernel(), gpytorch.likelihoods.GaussianLikelihood()
    with pytest.raises(ValueError, match=r"inducing_points: expected points \(\*batch, n, 1\), got shape \(5, 3\)"):
        DTCVariationalStrategy(kernel, torch.rand(5, 3), x, y, gaussian)
    with pytest.raises(ValueError, match="likelihood: expected Gaussian noise, got BernoulliLikelihood"):
        DTCVariationalStrategy(kernel, x[::5], x, y, gpytorch.likelihoods.BernoulliLikelihood())
    strategy, _ = make(x, y)
    with pytest.raises(ValueError, match=r"x: expected points \(\*batch, n, 1\), got shape \(4, 2\)"):
        ApproximateGP(strategy)(torch.rand(4, 2))


def test_priors_are_counted_once():
    """GPyTorch adds the prior of every module below the objective, which holds the likelihood itself."""
    x, y = data()
    priors = [gpytorch.priors.GammaPrior(2.0, 3.0) for _ in range(2)]
    kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=priors[0])
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=priors[1]).double()
    strategy = DTCVariationalStrategy(kernel, x[:4], x, y, likelihood).double()
    model = ApproximateGP(strategy)
    without = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    value = without(model(x), y)
    expected = priors[0].log_prob(kernel.lengthscale).sum() + priors[1].log_prob(likelihood.noise).sum()
    for module in (kernel, likelihood.noise_covar):
        module._priors.clear()
    torch.testing.assert_close(value - without(model(x), y), expected / len(y))


def test_rows_as_inducing_inputs_of_processes_are_refused():
    """Their last column would be read as an input of the canonical process."""
    x, y = data()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    rows = torch.cat([x, (torch.arange(len(x))[:, None] % 2).double()], 1)
    kernel = HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 1)).double()
    with pytest.raises(ValueError, match=r"inducing_points: expected points of the canonical space, \(m, 1\), .* got"):
        DTCVariationalStrategy(kernel, rows[::4], rows, y, likelihood)
    strategy = DTCVariationalStrategy(kernel, rows[::4, :1], rows, y, likelihood)
    assert ApproximateGP(strategy)(rows).variance.shape == (len(x),)


def test_sgpr_of_gpytorch_differs_by_its_diagonal_correction():
    """In eval mode SGPR adds to the noise what inducing inputs do not explain of each observation, as FITC does."""
    x, y = data()
    strategy, likelihood = make(x, y)
    new, kernel, S = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None], strategy.covar_module, x[::3][:6]

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.covar_module = gpytorch.kernels.InducingPointKernel(kernel, S.clone(), likelihood)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(x.new_zeros(len(x)), self.covar_module(x))

    def explained(a, b):
        return kernel(a, S).to_dense() @ torch.linalg.solve(kernel(S, S).to_dense(), kernel(S, b).to_dense())

    with torch.no_grad():
        ours = ApproximateGP(strategy).eval()(new).mean
        unexplained = kernel(x, diag=True) - explained(x, x).diagonal()
        noisy = explained(x, x) + torch.diag(unexplained + NOISE)
        with gpytorch.settings.sgpr_diagonal_correction(False):
            torch.testing.assert_close(SGPR().eval()(new).mean, ours, rtol=1e-5, atol=1e-6)
        theirs = SGPR().eval()(new).mean
        torch.testing.assert_close(theirs, explained(new, x) @ torch.linalg.solve(noisy, y), rtol=1e-5, atol=1e-5)
    assert (theirs - ours).abs().max() > 0.01


def test_a_likelihood_of_more_precision_is_refused():
    """It is no submodule, so that ``float()`` leaves it behind."""
    strategy, likelihood = make(*data())
    model, x = ApproximateGP(strategy.float()), torch.zeros(3, 1)
    with pytest.raises(ValueError, match=r"likelihood: .* got torch.float64: .* likelihood.to\(torch.float32\)"):
        model(x)
    likelihood.float()
    assert model(x).variance.dtype == torch.float32
