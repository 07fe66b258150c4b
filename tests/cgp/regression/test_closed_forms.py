"""The exact and the sparse regressor against dense numpy and against GPyTorch's own models."""

import pickle

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.stats import multivariate_normal

import cgp.regression.solvers.exact as exact_module
import cgp.regression.solvers.sparse as sparse_module
from cgp.functional.clusters import cluster_centres
from cgp.regression import (
    CorrelatedGPRegression,
    ProcessGaussianLikelihood,
    SparseCorrelatedGPRegression,
    correlated_covariance,
)
from cgp.regression.covariances.correlated import STRUCTURES
from tests.cgp.regression.data import (
    TWO_SHIFTED,
    Evidence,
    dense_prior,
    model_of,
    noise_and_mean,
    nystrom,
    regression,
    rows,
    shuffled,
)

CASES = [
    ("exact", {}),
    ("exact", {"num_components": 2}),
    *(("exact", {"structure": name}) for name in STRUCTURES[:-1]),
    ("sparse", {}),
    ("sparse", TWO_SHIFTED),
]


def observed_prior(model, x1, x2):
    """The covariance by which observations inform a prediction."""
    return (nystrom if isinstance(model, SparseCorrelatedGPRegression) else dense_prior)(model, x1, x2)


@pytest.mark.parametrize(("kind", "covariance"), CASES)
def test_evidence_is_the_dense_density(kind, covariance):
    model, (x, y) = regression(kind, **covariance), rows(15)
    noise, mean = noise_and_mean(model, x)
    Q = observed_prior(model, x, x)
    expected = multivariate_normal(mean, Q + np.diag(noise)).logpdf(y.numpy())
    trace = ((dense_prior(model, x, x).diagonal() - Q.diagonal()) / noise).sum()  # zero for the exact one
    tolerance = 1e-10 if kind == "exact" else 1e-7
    assert float(model.log_evidence().detach()) == pytest.approx(expected - 0.5 * trace, rel=tolerance)


@pytest.mark.parametrize(("kind", "covariance"), CASES)
def test_posterior_is_the_dense_conditional(kind, covariance):
    model, (x, y), new = regression(kind, **covariance), rows(15), rows(7, seed=5)[0]
    (noise, mean), (new_noise, new_mean) = noise_and_mean(model, x), noise_and_mean(model, new)
    inverse = np.linalg.inv(observed_prior(model, x, x) + np.diag(noise))
    cross = observed_prior(model, new, x)
    expected_mean = new_mean + cross @ inverse @ (y.numpy() - mean)
    expected = dense_prior(model, new, new) - cross @ inverse @ cross.T
    posterior, noisy = model(new), model.moments(new, noisy=True)
    tolerance = 1e-9 if kind == "exact" else 1e-7
    np.testing.assert_allclose(posterior.mean.detach(), expected_mean, atol=tolerance)
    np.testing.assert_allclose(posterior.covariance_matrix.detach(), expected, atol=tolerance)
    np.testing.assert_allclose(noisy.mean.detach(), expected_mean, atol=tolerance)
    np.testing.assert_allclose(noisy.variance.detach(), expected.diagonal() + new_noise, atol=tolerance)
    observed = model.likelihood(posterior, new).covariance_matrix.detach()
    np.testing.assert_allclose(observed, expected + np.diag(new_noise), atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "covariance"),
    [
        ("exact", {}),
        ("exact", {"structure": "independent", "num_components": 2}),
        ("sparse", {}),
        ("sparse", TWO_SHIFTED),
    ],
)
def test_gradients_are_those_of_finite_differences(kind, covariance):
    model = regression(kind, n=6, m=4, **covariance)
    learned = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters() if p.requires_grad}

    def evidence(*values):
        renamed = {f"model.{name}": value for name, value in zip(learned, values, strict=True)}
        return torch.func.functional_call(Evidence(model), renamed)

    assert torch.autograd.gradcheck(evidence, list(learned.values()), atol=1e-5)


def test_every_parameter_has_a_gradient():
    model = regression(num_components=2)
    (model.log_evidence() + model.log_prior()).backward()
    learned = [(name, p.grad) for name, p in model.named_parameters() if p.requires_grad]
    assert not [name for name, grad in learned if grad is None or not grad.abs().sum() > 0]


def test_objective_is_gpytorchs():
    model, (x, y) = regression().train(), rows(15)
    objective = ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y, x)
    torch.testing.assert_close(objective * len(y), model.log_evidence() + model.log_prior())


class Stock(gpytorch.models.ExactGP):
    """GPyTorch's model of one process."""

    def __init__(self, x, y):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_one_process_is_gpytorchs_exact_gp():
    (x, y), new = rows(25, processes=1), rows(6, processes=1, seed=3)[0]
    model = shuffled(model_of("exact", x, y, 1))
    component = model.covar_module.kernels[0]
    stock = Stock(x[:, :-1], y).double().eval()
    stock.likelihood.noise = model.likelihood.noise.detach()
    stock.mean_module.constant = model.mean_module.constants.detach().squeeze()
    stock.covar_module.outputscale = component.loadings.scales.detach().square().squeeze()
    stock.covar_module.base_kernel.lengthscale = component.input_maps.scales.detach().reciprocal()
    expected = stock(new[:, :-1])
    torch.testing.assert_close(model(new).mean, expected.mean)
    torch.testing.assert_close(model(new).covariance_matrix, expected.covariance_matrix, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_second_derivatives_of_the_mean_are_those_of_finite_differences(kernel, kind):
    x, y = rows(10, processes=2, dim=1)
    model = shuffled(model_of(kind, x, y, 2, kernel=kernel))
    condition = model.condition()

    def mean(place):
        return model.posterior(torch.stack([place, torch.ones_like(place)], dim=-1), condition).mean

    # At an observation, too: there a clamped distance would lose its second derivative.
    place = torch.cat([x[1:2, 0], torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)]).requires_grad_()
    (first,) = torch.autograd.grad(mean(place).sum(), place, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), place)
    step = 1e-4
    with torch.no_grad():
        around = [mean(place + shift * step) for shift in (-1, 0, 1)]
    torch.testing.assert_close(first.detach(), (around[2] - around[0]) / (2 * step), atol=1e-5, rtol=1e-4)
    expected = (around[0] - 2 * around[1] + around[2]) / step**2
    torch.testing.assert_close(second, expected, atol=2e-3, rtol=2e-3)


def test_stock_likelihood_and_batches_of_rows():
    x, y = rows(12, processes=1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    model = CorrelatedGPRegression(x, y, likelihood=likelihood).eval()
    own_likelihood = CorrelatedGPRegression(x, y).eval()
    new = torch.stack([rows(5, processes=1, seed=s)[0] for s in (1, 2, 3)])
    expected = [own_likelihood.moments(batch, noisy=True) for batch in new]
    torch.testing.assert_close(
        model.moments(new, noisy=True).variance, torch.stack([posterior.variance for posterior in expected])
    )
    torch.testing.assert_close(model(new).mean, torch.stack([posterior.mean for posterior in expected]))
    observed = own_likelihood.likelihood(own_likelihood(new))  # one process: the noise needs no rows
    torch.testing.assert_close(observed.variance, model.likelihood(model(new)).variance)


def without(x, y, i):
    keep = [j for j in range(len(y)) if j != i]
    return x[keep], y[keep]


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_leaving_one_out_is_conditioning_on_the_others(kind):
    (x, y), model = rows(8), regression(kind, n=8)
    result = model.leave_one_out()
    for i in range(8):
        model.set_train_data(*without(x, y, i), strict=False)
        expected = model.moments(x[i : i + 1], noisy=True)
        torch.testing.assert_close(result.mean[i], expected.mean[0])
        torch.testing.assert_close(result.variance[i], expected.variance[0])


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_further_observations_are_conditioned_on(kind):
    (x, y), model, new = rows(15), regression(kind), rows(4, seed=9)[0]
    expected = model(new)
    model.set_train_data(x[:10], y[:10], strict=False)
    before = model(new).mean
    result = model.get_fantasy_model(x[10:], y[10:])(new)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.covariance_matrix, expected.covariance_matrix)
    torch.testing.assert_close(model(new).mean, before)  # the model itself stays as it is
    with pytest.raises(ValueError, match="expected processes 0 to 2 in the last column, got 3"):
        model.get_fantasy_model(torch.full((1, 3), 3.0, dtype=torch.float64), y[:1])


def test_exact_above_gpytorchs_threshold():
    x, y = rows(900, processes=2)
    model = CorrelatedGPRegression(x, y).eval()
    noise, mean = noise_and_mean(model, x)
    factor = np.linalg.cholesky(dense_prior(model, x, x) + np.diag(noise))
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y.numpy() - mean))
    new = rows(5, processes=2, seed=2)[0]
    np.testing.assert_allclose(model(new).mean.detach(), dense_prior(model, new, x) @ weights, atol=1e-8)


def evidence_and_gradients(model):
    model.zero_grad()
    value = model.log_evidence()
    value.backward()
    return [value.detach(), *(p.grad for p in model.parameters() if p.requires_grad)]


@pytest.mark.parametrize("stored", [0, 10**9])
def test_chunks_change_nothing(monkeypatch, stored):
    model = regression("sparse")
    expected = evidence_and_gradients(model)
    moments = model.moments(rows(15)[0])
    monkeypatch.setattr(exact_module, "_ENTRIES", 4)
    monkeypatch.setattr(sparse_module, "_CHUNK", 4)
    monkeypatch.setattr(sparse_module, "_STORED", stored)
    for result, value in zip(evidence_and_gradients(model), expected, strict=True):
        torch.testing.assert_close(result, value)
    torch.testing.assert_close(model.moments(rows(15)[0]), moments)


def test_centres_of_clusters():
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]], dtype=torch.float64)
    points = truth.repeat(50, 1) + 0.1 * torch.randn(150, 2, generator=generator, dtype=torch.float64)
    assert torch.cdist(truth, cluster_centres(points, 3)).min(dim=1).values.max() < 0.1
    assert cluster_centres(torch.randn(9000, 2, generator=generator), 7).shape == (7, 2)


ONES, NAN = torch.ones(3), torch.nan


@pytest.mark.parametrize(
    ("inputs", "targets", "processes", "message"),
    [
        (torch.ones(3), ONES, None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(3, 1), ONES, None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(0, 2), torch.ones(0), None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(3, 2), torch.ones(2), None, r"train_targets: expected shape \(3,\), got \(2,\)"),
        (torch.full((3, 2), NAN), ONES, None, "train_inputs: expected finite values, got 6"),
        (torch.ones(3, 2), torch.full((3,), torch.inf), None, "train_targets: expected finite values, got 3"),
        (torch.ones(3, 2, dtype=torch.long), ONES, None, "train_inputs: expected float32 or float64"),
        (torch.ones(3, 2), ONES, 1, "expected processes 0 to 0 in the last column, got 1"),
        (torch.ones(3, 2) * 0.5, ONES, 2, "expected processes 0 to 1 in the last column, got 0.5"),
        (-torch.ones(3, 2), ONES, None, "num_processes: expected at least 1, got 0"),
        (
            torch.zeros(3, 2),
            torch.ones(3, requires_grad=True),
            None,
            "train_targets: expected values without a history",
        ),
    ],
)
def test_refuses_data(inputs, targets, processes, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegression(inputs, targets, processes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regression(num_components=0), "num_components: expected an integer of at least 1"),
        (lambda: regression(structure="free"), "structure: expected one of .*, got 'free'"),
        (lambda: correlated_covariance(2, 1, structure="coregionalized"), "; did you mean 'coregionalised'"),
        (
            lambda: correlated_covariance(3, 1)(ONES[:, None].expand(3, 3)).to_dense(),
            "x: expected rows of 2 columns, .* got 3",
        ),
        (lambda: ProcessGaussianLikelihood(2).noise_covar(ONES[:, None] * 0.5), "rows: expected processes 0 to 1"),
        (lambda: regression(kernel="cosine"), "kernel: expected a kernel or one of"),
        (lambda: regression(kernel=gpytorch.kernels.CosineKernel()), "CosineKernel is not positive semi-definite"),
        (lambda: regression("sparse", m=16), "num_inducing: expected at most 15, the number of distinct rows, got 16"),
        (lambda: regression("sparse", m=0), "num_inducing: expected an integer of at least 1, got 0"),
        (lambda: regression("sparse", m=5.5), "num_inducing: expected an integer of at least 1, got 5.5"),
        (lambda: regression("sparse", m="50"), "num_inducing: expected an integer of at least 1, got '50'"),
        (lambda: regression("sparse", m=1, num_components=2), "num_inducing: expected an integer of at least 2"),
        (
            lambda: CorrelatedGPRegression(*rows(), covar_module=correlated_covariance(2, 2)),
            r"covar_module: expected \(3, 2\) processes and inputs, got \(2, 2\)",
        ),
        (
            lambda: CorrelatedGPRegression(*rows(), covar_module=RBFKernel()),
            "covar_module: expected what correlated_covariance gives, got RBFKernel",
        ),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def table_rows(dim=2, seed=3):
    """Rows of a table with gaps in any order; one output is observed twice at one of its inputs."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(6, dim, generator=generator, dtype=torch.float64)
    kept = torch.randperm(18, generator=generator)[:13]
    kept = torch.cat([kept, kept[:1]])
    x = torch.cat([inputs[kept // 3], (kept % 3).double()[:, None]], dim=-1)
    return x, torch.randn(len(x), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("structure", ["coregionalised", "shared", "independent"])
@pytest.mark.parametrize("num_components", [1, 2])
def test_evidence_of_a_table_needs_no_covariance_of_all_pairs(structure, num_components, monkeypatch):
    x, y = table_rows()
    model = shuffled(model_of("exact", x, y, structure=structure, num_components=num_components))
    noise, mean = noise_and_mean(model, x)
    expected = multivariate_normal(mean, dense_prior(model, x, x) + np.diag(noise)).logpdf(y.numpy())
    sizes, dense = [], exact_module.dense_covariance
    monkeypatch.setattr(exact_module, "dense_covariance", lambda c, rows: sizes.append(len(rows)) or dense(c, rows))
    assert float(model.log_evidence().detach()) == pytest.approx(expected, rel=1e-10)
    assert max(sizes, default=0) < len(x) / 2


def test_gradients_of_a_table_are_those_of_the_dense_covariance():
    x, y = table_rows()
    model = shuffled(model_of("exact", x, y, structure="shared"))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    table = torch.autograd.grad(model.log_evidence(), parameters)
    with torch.enable_grad():
        covariance = exact_module.dense_covariance(model.covar_module, x) + torch.diag(model.noise())
        dense = torch.autograd.grad(exact_module.dense_log_evidence(covariance, model.residual()), parameters)
    for one, other in zip(table, dense, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_table_follows_the_data_and_is_not_kept():
    x, y = table_rows()
    model = shuffled(model_of("exact", x, y, structure="coregionalised"))
    model.log_evidence()
    assert "_cells" in model.__dict__
    assert not {"_cells", "_rows_of_outputs"} & set(pickle.loads(pickle.dumps(model)).__dict__)
    other = shuffled(model_of("exact", x[:10], y[:10], structure="coregionalised"))
    model.set_train_data(x[:10], y[:10], strict=False)
    torch.testing.assert_close(model.log_evidence(), other.log_evidence())
