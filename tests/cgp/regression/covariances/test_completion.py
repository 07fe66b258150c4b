import numpy as np
import pytest
import torch

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
    np.testing.assert_allclose(completed(table, num_steps=400).covariance, expected, rtol=1e-6)
    full = torch.as_tensor(generator.normal(size=(50, 3)))
    ridged = (full.T.cov(correction=0) + 0.1 * torch.eye(3)) / 1.1
    torch.testing.assert_close(completed(full, ridge=0.1).covariance, ridged)


def test_rows_are_completed_by_the_regression_on_what_they_have():
    generator = np.random.default_rng(1)
    table = torch.as_tensor(generator.normal(size=(300, 4)) @ generator.normal(size=(4, 4)))
    table[torch.as_tensor(generator.random(table.shape) < 0.3)] = torch.nan
    before, after = completed(table, num_steps=39), completed(table, num_steps=40)
    for row, filled in zip(table, after.values, strict=True):
        seen = ~row.isnan()
        slopes = torch.linalg.solve(before.covariance[seen][:, seen], (row - before.mean)[seen])
        expected = torch.where(seen, row, before.mean + before.covariance[:, seen] @ slopes)
        torch.testing.assert_close(filled, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.mean, after.values.mean(0))


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
                for a, ridge in enumerate(ridges):
                    errors[a, p] += float((completed(shown, ridge).values - table)[hidden[:, p], p].square().sum())
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
