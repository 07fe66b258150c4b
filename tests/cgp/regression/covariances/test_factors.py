"""Many outputs by few processes: the compressed form against the exact one, and how many processes are taken."""

import numpy as np
import pytest
import torch

from cgp.regression import MAP, CorrelatedGPRegression, CorrelatedGPRegressor, Factors, correlated_covariance
from cgp.regression.covariances.factors import (
    factor_counts,
    factor_covariance,
    start_at_components,
)
from cgp.regression.observations import Observations
from cgp.regression.solvers.choice import Problem, choose_solver
from cgp.regression.solvers.compressed import CompressedCorrelatedGPRegression
from cgp.regression.storage import regressor_content, restored_regressor

OUTPUTS, DIM = 6, 2


def rows(seed=0):
    """Rows of a table with gaps, in any order, one cell observed twice."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(7, DIM, generator=generator, dtype=torch.float64)
    kept = torch.randperm(7 * OUTPUTS, generator=generator)[:29]
    kept = torch.cat([kept, kept[:1]])
    x = torch.cat([inputs[kept // OUTPUTS], (kept % OUTPUTS).double()[:, None]], dim=-1)
    return x, torch.randn(len(x), generator=generator, dtype=torch.float64)


def pair(structure="factors"):
    """The exact and the compressed model of one covariance, its parameters away from their start."""
    if structure == "factors":
        covariance = factor_covariance(OUTPUTS, DIM, 2, kernel="matern32")
    else:
        covariance = correlated_covariance(OUTPUTS, DIM, kernel="rbf", structure=structure).double()
    generator = torch.Generator().manual_seed(1)
    exact = CorrelatedGPRegression(*rows(), OUTPUTS, covar_module=covariance)
    with torch.no_grad():
        for parameter in exact.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    given = {"covar_module": covariance, "likelihood": exact.likelihood, "mean_module": exact.mean_module}
    return exact.eval(), CompressedCorrelatedGPRegression(*rows(), OUTPUTS, **given).eval()


@pytest.mark.parametrize("structure", ["factors", "coregionalised", "shared"])
def test_compressed_form_has_the_numbers_of_the_exact_one(structure):
    exact, compressed = pair(structure)
    new = torch.cat([rows()[0][:9], rows(seed=2)[0][:9]])
    for answer in (lambda m: m.leave_one_out(), lambda m: m.moments(new), lambda m: m.moments(new, noisy=True)):
        for one, other in zip(answer(exact), answer(compressed), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
    joints = [model(new) for model in (exact, compressed)]
    torch.testing.assert_close(joints[0].mean, joints[1].mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(joints[0].covariance_matrix, joints[1].covariance_matrix, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("structure", ["factors", "shared"])
def test_compressed_evidence_has_the_gradients_of_the_exact_one(structure):
    models = pair(structure)
    values = [model.log_evidence() for model in models]
    torch.testing.assert_close(*values, rtol=1e-10, atol=0.0)
    parameters = [parameter for parameter in models[0].parameters() if parameter.requires_grad]
    slopes = [torch.autograd.grad(value, parameters) for value in values]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_further_observations_are_conditioned_on():
    (exact, compressed), further = pair(), rows(seed=3)
    new = rows(seed=2)[0]
    one, other = (model.get_fantasy_model(*further).moments(new) for model in (exact, compressed))
    torch.testing.assert_close(one.variance, other.variance, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-8, atol=1e-8)


def test_shifted_outputs_cannot_be_compressed():
    covariance = correlated_covariance(OUTPUTS, DIM, structure="shifted").double()
    with pytest.raises(
        ValueError, match="covar_module: expected one set of lengthscales and no shifts for all outputs"
    ):
        CompressedCorrelatedGPRegression(*rows(), OUTPUTS, covar_module=covariance)


def test_solver_of_many_outputs_is_the_compressed_one():
    assert choose_solver(Problem(factor_covariance(40, 2, 2), 12_000, 300)).name == "compressed"
    assert choose_solver(Problem(factor_covariance(2, 2, 2), 400, 200)).name == "exact"


def test_processes_start_as_principal_components():
    covariance = factor_covariance(3, 1, 2)
    loadings = torch.tensor([[0.9, 0.1], [0.8, -0.3], [-0.2, 0.9]], dtype=torch.float64)
    start_at_components(covariance, loadings @ loadings.mT)
    start = torch.cat([component.loadings() for component in covariance.kernels], dim=-1)
    torch.testing.assert_close(start @ start.mT, loadings @ loadings.mT)
    assert start[:, 0].norm() > start[:, 1].norm()


def test_correlations_are_over_common_inputs():
    generator = np.random.default_rng(0)
    y = generator.standard_normal((30, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    seen = generator.random((30, 2)) < 0.8
    x = generator.standard_normal((30, 2))
    both = seen.all(axis=1)
    expected = np.corrcoef(y[both].T)[0, 1]
    found = Observations(x, np.where(seen, y, np.nan)).correlation()
    assert float(found[0, 1]) == pytest.approx(expected)


def test_numbers_of_processes_stay_below_outputs_and_what_is_cheap():
    assert factor_counts(100, 300) == [1, 2, 4, 8]
    assert factor_counts(5, 10) == [1, 2, 4]
    assert factor_counts(2, 10) == [1]
    assert factor_counts(50, 9000) == [1]


def table(outputs, processes, rows=40, seed=0):
    """Outputs over two columns as sums of smooth processes, with noise of 0.1 and gaps."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1.0, 1.0, (rows, 2))
    waves = [np.sin(2.0 * x[:, 0] + 1.0), np.cos(3.0 * x[:, 1]), x[:, 0] * x[:, 1]]
    y = np.column_stack(waves[:processes]) @ generator.standard_normal((processes, outputs))
    y += 0.1 * generator.standard_normal(y.shape)
    hidden = generator.random(y.shape) < 0.1
    return x, np.where(hidden, np.nan, y), y, hidden


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_criterion_takes_as_many_processes_as_there_are():
    x, seen, truth, hidden = table(12, 2)
    regressor = CorrelatedGPRegressor(structure="factors", random_state=0).fit(x, seen)
    assert regressor.structure_ == "factors"
    assert len(regressor.model_.covar_module.kernels) == 2
    assert isinstance(regressor.model_, CompressedCorrelatedGPRegression)
    mean, sd = regressor.predict(x, return_std=True)
    errors = ((mean - truth) / sd)[hidden]
    assert np.sqrt(np.mean((mean - truth)[hidden] ** 2)) < 0.2
    assert 0.85 < np.mean(np.abs(errors) < 1.96) <= 1.0
    kept = restored_regressor(CorrelatedGPRegressor(structure="factors"), *regressor_content(regressor), seen)
    np.testing.assert_allclose(kept.predict(x), mean, atol=1e-8)
    asked = CorrelatedGPRegressor(structure=Factors(1), inference=MAP(max_steps=20)).fit(x, seen)
    assert len(asked.model_.covar_module.kernels) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_outputs_over_two_columns_are_fitted_by_default(monkeypatch):
    monkeypatch.setattr("cgp.regression.inference.setting._LONG_EVALUATION", 0.0)
    x, seen, *_ = table(12, 2)
    regressor = CorrelatedGPRegressor(random_state=0, inference=MAP(max_steps=30))
    assert regressor.estimate(x, seen).seconds > 0.0
    regressor.fit(x, seen)
    assert regressor.structure_ == Factors.name
    assert list(regressor.criteria_) == [Factors.name]


def test_inducing_inputs_are_refused():
    x, seen, *_ = table(3, 1)
    with pytest.raises(ValueError, match="num_inducing: expected None, got 5, for structure='factors'"):
        CorrelatedGPRegressor(structure="factors", num_inducing=5).fit(x, seen)
