"""Series with known sums against the dense normal vector of readings and sums, in float64."""

from functools import partial

import numpy as np
import pytest
import torch

from cgp.regression.covariances.correlated import correlated_covariance
from cgp.regression.covariances.rows import dense_covariance
from cgp.regression.solvers.summed import SummedSeriesRegression
from cgp.regression.sums import Sums
from tests.cgp.helpers import moments_of_draws

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)


@pytest.fixture(autouse=True, params=[0, 100], ids=["states", "columns"])
def few_sums(request, monkeypatch):
    """Sums as states, or as columns."""
    monkeypatch.setattr("cgp.statespace.accumulators._FEW", request.param)


TIMES = np.array([0.0, 0.7, 1.1, 2.0, 2.2, 3.5, 4.1, 4.9, 6.0, 6.3])
BEYOND = np.array([-1.3, 7.5])  # where there are no readings


def sums(of_readings):
    """A total, one that overlaps it with weights over two outputs, and a noisy mean of an output without values.

    The last two reach over the ends of the readings.
    """
    parts = [(range(2, 7), [0], 1.0), ((4, 5, 6, 7, 8, 11), [0, 1], 0.5), (range(12), [2], 0.1)]
    times = np.concatenate([TIMES, BEYOND])
    terms = [
        (times[i], p, weight * (1 + 0.1 * i * (m == 1)), m)
        for m, (rows, outputs, weight) in enumerate(parts)
        for i in rows
        for p in outputs
    ]
    x, p, weights, numbers = (np.array(each) for each in zip(*terms, strict=True))
    values, noise = np.array([1.0, -0.5, 0.4]), np.array([0.0, 0.0, 0.05])
    kinds = np.full(3, of_readings)
    return Sums(np.column_stack([x, p]).astype(float), weights, numbers, values, noise, kinds, ("a", "b", "c"))


def model_of(structure, of_readings):
    rng = np.random.default_rng(0)
    rows = torch.tensor([(t, p) for p in range(2) for t in TIMES if rng.random() < 0.6], dtype=torch.float64)
    targets = torch.as_tensor(rng.normal(size=len(rows)))
    covariance = correlated_covariance(3, 1, kernel="matern32", structure=structure).double()
    model = SummedSeriesRegression(rows, targets, 3, covar_module=covariance, totals=sums(of_readings)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.4 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
    return model


class Dense:
    """The normal vector of readings, then sums; and its covariances with the process, or readings, at places."""

    def __init__(self, model):
        rows, known = model.train_inputs[0], model.totals
        self.model, self.places = model, torch.cat([rows, torch.as_tensor(known.places)]).unique(dim=0)
        self.K = dense_covariance(model.covar_module, self.places)
        noise = model.likelihood.noise[self.places[:, 1].long()]

        def at(x):
            return (x[:, None] == self.places).all(-1).double()

        W = torch.zeros(len(known.values), len(self.places), dtype=torch.float64)
        for m, w, one in zip(known.sums, known.weights, at(torch.as_tensor(known.places)), strict=True):
            W[int(m)] += float(w) * one
        noisy = torch.as_tensor(known.of_readings).double()[:, None] * W
        read = torch.cat([at(rows), noisy])
        self.effect = torch.cat([at(rows), W])
        self.noise = noise.diag() @ read.mT
        own = torch.cat([torch.zeros(len(rows)), torch.as_tensor(known.noise)]).double().diag()
        self.covariance = self.effect @ self.K @ self.effect.mT + read @ self.noise + own
        mean = model.mean_module(self.places)
        self.mean, self.error = (
            mean,
            torch.cat([model.train_targets, torch.as_tensor(known.values)]) - self.effect @ mean,
        )

    def evidence(self):
        return torch.distributions.MultivariateNormal(torch.zeros_like(self.error), self.covariance).log_prob(
            self.error
        )

    def moments(self, noisy):
        cross = self.K @ self.effect.mT + noisy * self.noise
        noise = self.model.likelihood.noise[self.places[:, 1].long()].diag() * noisy
        mean = self.mean + cross @ torch.linalg.solve(self.covariance, self.error)
        return mean, self.K + noise - cross @ torch.linalg.solve(self.covariance, cross.mT)


CASES = pytest.mark.parametrize(
    ("structure", "of_readings"),
    [("coregionalised", True), ("coregionalised", False), ("shared", True), ("shifted", True), ("shifted", False)],
)


@CASES
def test_evidence_and_its_gradients_are_dense(structure, of_readings):
    """In the dense vector known readings are part of sums; the model subtracts them, which is the same density."""
    model = model_of(structure, of_readings)
    parameters = [value for value in model.parameters() if value.requires_grad]
    value, expected = model.log_evidence(), Dense(model).evidence()
    CLOSE(value, expected)
    slopes = [torch.autograd.grad(each, parameters, materialize_grads=True) for each in (value, expected)]
    CLOSE(*slopes, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        CLOSE(model.requires_grad_(False).log_evidence(), expected)


@CASES
@pytest.mark.parametrize("noisy", [False, True])
def test_moments_totals_and_draws_are_dense(structure, of_readings, noisy):
    model = model_of(structure, of_readings)
    dense, condition, x = Dense(model), model.condition(), Dense(model).places
    fresh = (x[:, None] != torch.cat([model.train_inputs[0], torch.as_tensor(model.totals.places)])).any(-1).all(-1)
    assert not fresh.any()
    seen = (x[:, None] == model.train_inputs[0]).all(-1).any(-1)
    x, (mean, covariance) = x[~seen], dense.moments(noisy)  # a known reading is no reading to predict
    mean, covariance = (each.detach() for each in (mean[~seen], covariance[~seen][:, ~seen]))
    found = model.moments(x, condition, noisy=noisy)
    CLOSE(found.mean.detach(), mean)
    CLOSE(found.variance.detach(), covariance.diagonal())
    joint = model.joint_readings(x, condition) if noisy else None
    other = joint[1] if noisy else model.posterior(x, condition).covariance_matrix
    CLOSE(other.detach(), covariance)
    weights = torch.linspace(-1.0, 2.0, len(x), dtype=torch.float64)
    ask = model.reading_total_variances if noisy else model.total_variances
    CLOSE(ask(x, weights, torch.zeros(len(x), dtype=torch.long), condition)[0].detach(), weights @ covariance @ weights)
    coefficients = torch.as_tensor(np.random.default_rng(2).normal(size=(1, 4, len(x))))
    deviations = model.moments(x, condition, noisy=True).variance.sqrt()[None]
    functions, zero = (coefficients, deviations), torch.zeros(len(x), dtype=torch.long)
    R = covariance / (deviations.mT * deviations)
    powers = sum(each @ R ** (k + 1) @ each for k, each in enumerate(coefficients[0]))
    CLOSE(model.expansion_variances(x, functions, zero, condition, noisy=noisy)[0], powers)
    draw = model.draw_readings if noisy else model.draw
    CLOSE(moments_of_draws(lambda count: draw(x, [count], condition)), (mean, covariance))


@CASES
def test_leaving_one_out_is_dense(structure, of_readings):
    model = model_of(structure, of_readings)
    dense, count = Dense(model), len(model.train_targets)
    inverse = torch.linalg.inv(dense.covariance)
    variance = 1.0 / inverse.diagonal()[:count]
    found = model.leave_one_out()
    CLOSE(found.mean, (model.train_targets - variance * (inverse @ dense.error)[:count]).detach())
    CLOSE(found.variance, variance.detach())


def test_readings_that_come_later_are_taken_from_the_sums():
    model = model_of("coregionalised", of_readings=True)
    x = torch.tensor([[TIMES[3], 2.0], [TIMES[9] + 1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0.3, -0.2], dtype=torch.float64)
    later, condition = model.extended(x, y, model.condition())
    dense = Dense(later)
    CLOSE(later.log_evidence(), dense.evidence())
    seen = (dense.places[:, None] == later.train_inputs[0]).all(-1).any(-1)
    found = later.moments(dense.places[~seen], condition, noisy=True)
    CLOSE(found.mean.detach(), dense.moments(True)[0][~seen].detach())
