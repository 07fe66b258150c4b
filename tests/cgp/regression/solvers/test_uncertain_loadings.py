"""Series of few rows whose loadings are uncertain: against a dense Gaussian process, and in extreme rows."""

import numpy as np
import pytest
import torch

from cgp.regression import MultiScale, SeriesCorrelatedGPRegression, Windows
from cgp.regression.inference.setting import Setting
from cgp.regression.likelihood import every_process
from cgp.regression.observations import Observations, Scaling
from cgp.regression.solvers.uncertain_loadings import UncertainLoadingsRegression
from tests.cgp.regression.data import shuffled

P, N = 3, 14


def the_pair(related=True):
    """The model and the same without uncertain loadings, of a table with gaps."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.linspace(-1.7, 1.7, N, dtype=torch.float64)
    rows = every_process(inputs[:, None], P).flatten(0, 1)
    rows = rows[torch.rand(len(rows), generator=generator) < 0.8]
    targets = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    structure = MultiScale(num_scales=2, num_factors=2, periods=[0.9], related=related)
    given = Observations.of_rows(every_process(inputs[:, None], P).flatten(0, 1), torch.zeros(P * N), P)
    covariance = structure.covariance(given, "matern32")
    model = shuffled(UncertainLoadingsRegression(rows, targets, P, covar_module=covariance), 1)
    model.learn_uncertainty()
    plain = SeriesCorrelatedGPRegression(rows, targets, P, covar_module=covariance).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    return model, plain


def own_covariance(model, p, places, others):
    """Covariance of an output's own processes."""
    parts = []
    for kernel in model.covar_module.kernels:
        scale, loadings = kernel.input_maps.all_scales.flatten()[0], kernel.loadings()
        gram = kernel.covar_module(places[:, :1] * scale, others[:, :1] * scale).to_dense()
        parts.append(loadings[p, loadings.shape[-1] - P + p] ** 2 * gram)
    return sum(parts)


def dense_features(model, places):
    """Posterior means of the shared processes at rows, and of what relations leave of each output."""
    rows, outputs = model.train_inputs[0], model.train_inputs[0][:, 1].long()
    K = sum(kernel(rows).to_dense() for kernel in model.covar_module.kernels) + torch.diag(model.noise())
    weights, parts, left = torch.linalg.solve(K, model.residual()[:, None])[:, 0], [], []
    for kernel in model.covar_module.kernels:
        scale, loadings = kernel.input_maps.all_scales.flatten()[0], kernel.loadings()
        gram = kernel.covar_module(places[:, :1] * scale, rows[:, :1] * scale).to_dense()
        parts += [(gram * loadings[outputs, r]) @ weights for r in range(loadings.shape[-1] - P)]
        if kernel.loadings.relations is not None:
            before = torch.linalg.solve(kernel.loadings.relations(), loadings)
            left.append(torch.stack([(gram * (loadings[outputs] @ before[q])) @ weights for q in range(P)], dim=-1))
    return torch.cat([torch.stack(parts, dim=-1), *([sum(left)] if left else [])], dim=-1)


def dense_outputs(model):
    """Of every output its rows, the covariance of its observations by itself, the features there, and V."""
    rows, outputs = model.train_inputs[0], model.train_inputs[0][:, 1].long()
    for p in range(P):
        seen = rows[outputs == p]
        K_p, F = own_covariance(model, p, seen, seen) + model.noise()[outputs == p].diag(), dense_features(model, seen)
        W = K_p.diagonal().reciprocal().diag()
        related = model.covar_module.kernels[0].loadings.relations is not None
        count = F.shape[-1] - (P - p) * related  # shared processes, and what is left of the preceding outputs
        V = torch.zeros(F.shape[-1], F.shape[-1], dtype=F.dtype)
        known, eye = F[:, :count], torch.eye(count, dtype=F.dtype)
        ridge = torch.linalg.solve(eye + known.mT @ W @ known, known.mT @ W)  # of residuals, to estimates of loadings
        bias = ridge @ known - eye
        V[:count, :count] = ridge @ K_p @ ridge.mT + bias @ bias.mT
        yield seen, K_p, F, V


def dense_uncertainty(model, x):
    """The covariance that uncertain loadings add at rows, from the equations, with dense matrices."""
    latest, added = model.train_inputs[0][:, 0].max(), torch.zeros(len(x), len(x), dtype=torch.float64)
    for p, (seen, K_p, F, V) in enumerate(dense_outputs(model)):
        kriged = own_covariance(model, p, x, seen) @ torch.linalg.solve(K_p, F)
        left, chosen = dense_features(model, x) - (x[:, :1] < latest) * kriged, x[:, 1] == p
        added += (left @ V @ left.mT) * chosen * chosen[:, None]
    return added


@torch.no_grad()
@pytest.mark.parametrize("related", [True, False], ids=["related", "not related"])
@pytest.mark.parametrize("start", [-1.5, 1.8], ids=["between the rows", "after them"])
def test_variances_and_covariances_are_those_of_the_equations(start: float, related: bool):
    model, plain = the_pair(related)
    x = every_process(torch.linspace(start, start + 0.6, 4, dtype=torch.float64)[:, None], P).flatten(0, 1)
    added = dense_uncertainty(model, x)
    assert added.diagonal().max() > 0.01
    torch.testing.assert_close(model.posterior(x).mean, plain.posterior(x).mean)
    torch.testing.assert_close(model.posterior(x).covariance_matrix, plain.posterior(x).covariance_matrix + added)
    torch.testing.assert_close(model.moments(x).variance, plain.moments(x).variance + added.diagonal())
    weights, sums = torch.linspace(-1.0, 2.0, len(x), dtype=torch.float64), torch.arange(len(x)) % 2
    of_sums = torch.stack([(weights * (sums == a)) @ added @ (weights * (sums == a)) for a in range(2)])
    totals = model.total_variances(x, weights, sums) - plain.total_variances(x, weights, sums)
    torch.testing.assert_close(totals, of_sums)
    coefficients = torch.stack([weights, weights.flip(0), weights.square()])
    covariance = plain.posterior(x).covariance_matrix + added
    powers = sum(torch.outer(c, c) * covariance ** (k + 1) for k, c in enumerate(coefficients))
    cubes = torch.stack([powers[sums == a][:, sums == a].sum() for a in range(2)])
    functions = coefficients[None], torch.ones(1, len(x), dtype=torch.float64)
    torch.testing.assert_close(model.expansion_variances(x, functions, sums), cubes)


@torch.no_grad()
def test_draws_and_leave_one_out_have_the_variance_of_the_equations():
    model, plain = the_pair()
    x = model.train_inputs[0]
    added = []
    for _, K_p, F, V in dense_outputs(model):
        for i in range(len(F)):
            rest = torch.arange(len(F)) != i
            left = F[i] - K_p[i, rest] @ torch.linalg.solve(K_p[rest][:, rest], F[rest])
            added.append(left @ V @ left)
    order = torch.argsort(x[:, 1], stable=True)
    together = plain.leave_one_out().variance.index_add(0, order, torch.stack(added))
    torch.testing.assert_close(model.leave_one_out().variance, together)
    draws = model.draw(x, [40_000], generator=torch.Generator().manual_seed(0))
    expected = model.posterior(x).covariance_matrix
    spread = (expected.diagonal()[:, None] * expected.diagonal() + expected.square()).sqrt() / 200.0
    assert ((draws.T.cov() - expected).abs() < 5.0 * spread).all()


@torch.no_grad()
def test_beside_observations_next_to_nothing_is_added():
    """As the output's own process follows what wrong loadings leave there."""
    model, plain = the_pair()
    x = model.train_inputs[0][model.train_inputs[0][:, 0] < 1.0]
    model.likelihood.noise = 1e-6
    model.learn_uncertainty()
    assert (model.moments(x).variance < plain.moments(x).variance + 1e-4).all()


@torch.no_grad()
def test_extreme_rows_are_within_their_intervals():
    """Shared processes with heavy tails, whose largest values are where outputs are hidden."""
    generator = np.random.default_rng(0)
    f = generator.normal(size=(40, 2))
    f[30:34] *= 15.0
    truth = f @ generator.normal(size=(2, 8)) + 0.1 * generator.normal(size=(40, 8))
    y = truth.copy()
    y[28:36, :3] = np.nan
    scaling, x = Scaling.of(y), np.linspace(-1.7, 1.7, 40)[:, None]
    structure = MultiScale(num_scales=2, num_factors=2, periods=())
    with torch.enable_grad():
        fits = Windows(num_steps=150).fit(Setting(Observations(x, scaling.apply(y)), structure), seed=0)
    (model,) = fits.models
    places = every_process(torch.as_tensor(x[30:34]), 8)[:, :3].flatten(0, 1)
    mean, variance = (values.numpy().reshape(4, 3) for values in model.moments(places, noisy=True))
    z = (scaling.apply(truth)[30:34, :3] - mean) / np.sqrt(variance)
    assert np.square(z).mean() < 15.0  # 59 if loadings count as known


def test_relations_are_uncertain_where_outputs_share_no_factors():
    generator = np.random.default_rng(0)
    y = generator.normal(size=(300, 1)).cumsum(0) + generator.normal(size=(300, 2))
    y[40:290, 1] = np.nan
    given = Observations(np.linspace(-1.7, 1.7, 300)[:, None], Scaling.of(y).apply(y))
    (model,) = Windows(num_steps=2).fit(Setting(given, MultiScale(num_scales=2, periods=()).resolved(given)), 0).models
    places = every_process(torch.linspace(-1.0, 1.5, 9, dtype=torch.float64)[:, None], 2)[:, 1]
    variance = model.moments(places).variance
    model.loading_roots.zero_()
    assert model.num_factors == 0
    assert (variance - model.moments(places).variance).max() > 0.01
