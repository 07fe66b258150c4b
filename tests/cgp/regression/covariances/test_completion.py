import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import MultivariateNormal

from cgp.regression.covariances.completion import completed, ridge_by_hidden_stretches


def test_the_covariance_of_a_column_that_ends_is_that_of_its_regression():
    """In closed form: Anderson (1957), Maximum likelihood estimates for a normal distribution when some are missing."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=400)
    y = np.where(x < 0.5, 0.8 * x + 0.3 * generator.normal(size=400), np.nan)
    slope, level = np.polyfit(x[x < 0.5], y[x < 0.5], 1)
    left = np.mean((y - level - slope * x)[x < 0.5] ** 2)
    expected = x.var() * np.array([[1.0, slope], [slope, slope**2]]) + [[0.0, 0.0], [0.0, left]]
    table = torch.as_tensor(np.column_stack([x, y]))
    np.testing.assert_allclose(completed(table, tolerance=1e-9).covariance, expected, rtol=1e-6)
    full = torch.as_tensor(generator.normal(size=(50, 3)))
    ridged = (full.T.cov(correction=0) + 0.1 * torch.eye(3)) / 1.1
    torch.testing.assert_close(completed(full, ridge=0.1).covariance, ridged)


def test_rows_are_completed_by_the_regression_on_what_they_have():
    generator = np.random.default_rng(1)
    table = torch.as_tensor(generator.normal(size=(300, 4)) @ generator.normal(size=(4, 4)))
    table[torch.as_tensor(generator.random(table.shape) < 0.3)] = torch.nan
    found = completed(table, tolerance=1e-9)
    for row, filled in zip(table, found.values, strict=True):
        seen = ~row.isnan()
        slopes = torch.linalg.solve(found.covariance[seen][:, seen], (row - found.mean)[seen])
        expected = torch.where(seen, row, found.mean + found.covariance[:, seen] @ slopes)
        torch.testing.assert_close(filled, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.mean, found.values.mean(0))


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_a_column_of_few_values_has_the_most_likely_law(ridge):
    """By a general optimiser, with the prior that the ridge stands for; plain steps of EM need thousands."""
    generator = np.random.default_rng(2)
    table = torch.as_tensor(generator.normal(size=(120, 2)).cumsum(0) @ generator.normal(size=(2, 4)))
    table = table + 0.05 * torch.as_tensor(generator.normal(size=table.shape))
    table[:100, 0] = table[90:, 1] = torch.nan
    table = (table - table.nanmean(0)) / torch.as_tensor(np.nanstd(table, axis=0))

    def law(parameters):
        root = parameters[4:].reshape(4, 4)
        root = root.tril(-1) + root.diagonal().exp().diag()
        return parameters[:4], root @ root.mT

    def loss(parameters):
        parameters = torch.tensor(parameters, requires_grad=True)
        mean, covariance = law(parameters)
        value = 0.5 * ridge * len(table) * (covariance.logdet() + covariance.inverse().trace())
        for part in (table[:90], table[90:100], table[100:]):
            seen = ~part[0].isnan()
            value = value - MultivariateNormal(mean[seen], covariance[seen][:, seen]).log_prob(part[:, seen]).sum()
        (gradient,) = torch.autograd.grad(value, parameters)
        return value.item(), gradient.numpy()

    best = minimize(loss, np.zeros(20), jac=True, method="BFGS", options={"gtol": 1e-6, "maxiter": 1000})
    mean, covariance = law(torch.as_tensor(best.x))
    found = completed(table, ridge)
    torch.testing.assert_close(found.mean, mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.covariance, covariance, rtol=1e-3, atol=1e-3)


def a_table(common: float, noise: float, count: int = 400) -> torch.Tensor:
    """Six columns with a common walk, and each with one of its own and noise; 0.4 of the first one are missing."""
    generator = np.random.default_rng(0)
    walk, own = generator.normal(size=(count, 1)).cumsum(0), generator.normal(size=(count, 6)).cumsum(0)
    y = common * walk * generator.normal(size=6) + (1.0 - common) * own + noise * generator.normal(size=(count, 6))
    y = torch.as_tensor((y - y.mean(0)) / y.std(0))
    y[: int(0.4 * count), 0] = torch.nan
    return y


def test_the_ridge_is_as_small_as_columns_are_near_to_each_other():
    near, noisy = (ridge_by_hidden_stretches(a_table(*each, count=40)) for each in ((1.0, 1e-3), (0.5, 1.0)))
    assert near.value < 1e-3 <= noisy.value
    assert near.left < 1e-3 < noisy.left < 1.0


def test_columns_that_tell_nothing_of_each_other_leave_all():
    noise = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double()
    assert ridge_by_hidden_stretches(noise).left >= 1.0
    assert ridge_by_hidden_stretches(torch.zeros(20, 2).double()).left == 1.0


def test_the_ridge_is_the_smallest_that_is_near_to_hidden_quarters():
    """Of every column, one after the other; by geometric means of squared errors, in those around the mean."""
    for noise in (0.1, 1.0, 3.0):
        table, ridges = a_table(0.8, noise, 60), (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
        errors, around_mean = np.zeros((7, 6)), np.zeros(6)
        for fold in range(4):
            shown = table.clone()
            for p in range(6):
                known = np.flatnonzero(~table[:, p].isnan())
                shown[np.array_split(known, 4)[(p + fold) % 4], p] = torch.nan
            hidden = (shown.isnan() & ~table.isnan()).numpy()
            for p in range(6):
                around_mean[p] += float((table[hidden[:, p], p] - shown[:, p].nanmean()).square().sum())
            law = None
            for a in reversed(range(7)):
                law = completed(shown, ridges[a], start=law)
                errors[a] += (np.where(hidden, law.values - table, 0.0) ** 2).sum(0)
        ratios = np.exp(np.log(errors / around_mean).mean(1))
        expected = next(ridge for ridge, ratio in zip(ridges, ratios, strict=True) if ratio <= 1.02 * ratios.min())
        found = ridge_by_hidden_stretches(table)
        assert found.value == expected
        assert found.left == pytest.approx(ratios.min())


def test_columns_with_few_values_have_a_ridge_all_the_same():
    table = a_table(1.0, 0.1)
    table[:, 1:3] = torch.nan
    table[7, 1] = 1.0
    assert ridge_by_hidden_stretches(table).left < 1.0
