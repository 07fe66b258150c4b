"""Components of factors and own processes, and cycles, against covariances written out."""

import math

import numpy as np
import pytest
import torch

from cgp.regression.covariances.completion import completed
from cgp.regression.covariances.factors import FactorLoadings
from cgp.regression.covariances.multiscale import MultiScale, start_at_factors
from cgp.regression.covariances.rows import Relations, dense_covariance, grid_covariances
from cgp.regression.likelihood import every_process
from cgp.regression.observations import Observations
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression


def a_covariance(related: bool = True):
    relations, generator = Relations(3) if related else None, torch.Generator().manual_seed(0)
    covariance = MultiScale(2, 2, (0.7,)).between(3, 0.2, 2.0, relations=relations)
    with torch.no_grad():
        for component in covariance.kernels:
            component.loadings.factors += torch.randn(3, 2, generator=generator, dtype=torch.float64)
            component.loadings.log_scales += torch.randn(3, generator=generator, dtype=torch.float64)
    if relations is not None:
        relations.initialize(parts=10 * torch.randn(3, 3, generator=generator, dtype=torch.float64))
    return covariance


def some_rows(count: int = 12, processes: int = 3) -> torch.Tensor:
    inputs = torch.rand(count, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    return every_process(inputs, processes).flatten(0, 1)


@pytest.mark.parametrize("related", [False, True], ids=["not related", "related"])
def test_components_are_factors_and_own_processes_at_each_scale(related: bool):
    covariance, rows = a_covariance(related), some_rows()
    lag = (rows[:, :1] - rows[:, 0]).abs().numpy()
    numbers = rows[:, 1].long().numpy()
    expected = np.zeros_like(lag)
    for component, lengthscale in zip(covariance.kernels, (0.2, 2.0), strict=False):
        r = math.sqrt(3.0) * lag / lengthscale
        expected += (1.0 + r) * np.exp(-r) * mixed(component.loadings, numbers)
    expected += np.exp(-lag / 7.0) * np.cos(2 * np.pi * lag / 0.7) * mixed(covariance.kernels[2].loadings, numbers)
    np.testing.assert_allclose(dense_covariance(covariance, rows).detach(), expected, rtol=1e-10, atol=1e-12)


def mixed(loadings: FactorLoadings, numbers: np.ndarray) -> np.ndarray:
    factors, scales = loadings.factors.detach().numpy(), loadings.log_scales.detach().exp().numpy()
    covariance = factors @ factors.T + np.diag(scales**2)
    if loadings.relations is not None:
        B = np.eye(len(covariance)) + np.tril(0.1 * loadings.relations.parts.detach().numpy(), -1)
        covariance = B @ covariance @ B.T
    return covariance[np.ix_(numbers, numbers)]


def test_only_the_period_and_the_scale_of_a_cycle_s_input_stay_as_they_are():
    fixed = {name for name, value in a_covariance().kernels[2].named_parameters() if not value.requires_grad}
    assert fixed == {"input_maps.log_scales", "covar_module.kernels.1.raw_period_length"}


def test_covariances_of_rows_are_products_of_those_of_a_grid():
    covariance = a_covariance()
    inputs = torch.rand(5, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows = every_process(inputs, 3).transpose(0, 1).flatten(0, 1)
    grams, mixing = grid_covariances(covariance, inputs)
    products = sum(torch.kron(b, a) for a, b in zip(grams, mixing, strict=True))
    torch.testing.assert_close(products, dense_covariance(covariance, rows), rtol=1e-12, atol=1e-13)


def test_the_linear_form_is_the_dense_one_in_evidence_and_posterior():
    rows = some_rows()
    generator = torch.Generator().manual_seed(3)
    keep = torch.rand(len(rows), generator=generator) > 0.3
    rows, targets = rows[keep], torch.randn(int(keep.sum()), generator=generator, dtype=torch.float64)
    dense, series = (
        kind(rows, targets, 3, covar_module=a_covariance())
        for kind in (CorrelatedGPRegression, SeriesCorrelatedGPRegression)
    )
    torch.testing.assert_close(series.log_evidence(), dense.log_evidence(), rtol=1e-9, atol=1e-9)
    slopes = [
        torch.autograd.grad(model.log_evidence(), [p for p in model.parameters() if p.requires_grad])
        for model in (series, dense)
    ]
    for linear, exact in zip(*slopes, strict=True):
        torch.testing.assert_close(linear, exact, rtol=1e-7, atol=1e-8)
    places = some_rows(4)
    with torch.no_grad():
        for linear, exact in zip(series.eval().moments(places), dense.eval().moments(places), strict=True):
            torch.testing.assert_close(linear, exact, rtol=1e-8, atol=1e-9)


def test_without_factors_processes_are_independent():
    covariance = MultiScale(num_factors=0, periods=()).between(2, 0.1, 1.0)
    start_at_factors(covariance, torch.eye(2, dtype=torch.float64))
    total = sum((kernel.loadings() @ kernel.loadings().mT).detach() for kernel in covariance.kernels)
    torch.testing.assert_close(total, torch.eye(2, dtype=torch.float64))


def test_start_has_the_correlations_principal_components():
    common = torch.tensor([0.9, 0.8, -0.7], dtype=torch.float64)
    correlation = torch.outer(common, common).fill_diagonal_(1.0)
    covariance = MultiScale(4, 1, periods=()).between(3, 0.1, 1.0)
    start_at_factors(covariance, correlation)
    total = sum((kernel.loadings() @ kernel.loadings().mT).detach() for kernel in covariance.kernels)
    assert (total - correlation).abs().max() < 0.25  # components start apart by a spread of 0.05
    assert torch.equal(total.sign(), correlation.sign())


def test_relations_and_what_they_leave_make_a_covariance_up_again():
    root, relations = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), Relations(4)
    left = relations.set_covariance(root @ root.mT)
    torch.testing.assert_close((relations() * left) @ relations().mT, root @ root.mT)
    assert torch.equal(relations(), relations().tril())
    assert (relations().diagonal() == 1.0).all()


def test_related_components_start_with_the_covariance_of_a_table():
    """Of values that are independent between rows, with gaps of a fifth."""
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(3, 3))
    y = generator.normal(size=(600, 3)) @ (mixing / np.linalg.norm(mixing, axis=0))
    y[generator.random(y.shape) < 0.2] = np.nan
    given = Observations(np.arange(600.0)[:, None], y).standardised()
    for factors, known, bound in (
        (0, completed(given.table, 0.01).covariance, 1e-9),
        (None, given.correlation(), 0.15),
    ):
        structure = MultiScale(num_factors=factors, related=True, periods=())
        covariance = structure.covariance(given, "matern32")
        structure.start(covariance, given)
        total = sum((kernel.loadings() @ kernel.loadings().mT).detach() for kernel in covariance.kernels)
        assert (total - known).abs().max() < bound


def test_noise_of_related_outputs_starts_at_a_tenth_of_what_is_left():
    """Of the variance of each given those before it; not below a ten-thousandth."""
    generator = np.random.default_rng(0)
    y = generator.normal(size=(300, 4)) @ generator.normal(size=(4, 4))
    y[:, 3] = 2.0 * y[:, 1]
    given = Observations(np.arange(300.0)[:, None], y).standardised()
    structure = MultiScale(num_factors=0, related=True, periods=(), ridge=1e-5)
    noise = structure.start(structure.covariance(given, "matern32"), given)
    S = completed(given.table, 1e-5).covariance.numpy()
    left = [S[p, p] - S[p, :p] @ np.linalg.solve(S[:p, :p], S[:p, p]) for p in range(4)]
    assert min(left) < 1e-4
    np.testing.assert_allclose(noise, np.maximum(0.1 * np.array(left), 1e-4), rtol=1e-6)


def in_common(noise: float, gap: slice):
    generator = np.random.default_rng(0)
    y = generator.normal(size=(100, 1)).cumsum(0) + noise * generator.normal(size=(100, 3))
    y[gap, 1] = np.nan
    return Observations(np.arange(100.0)[:, None], y)


@pytest.mark.parametrize(
    ("noise", "gap", "counts"),
    [
        (0.2, slice(10, 30), [0]),  # others leave less than a tenth
        (5.0, slice(10, 30), [0, 3]),
        (5.0, slice(10, 59), [0, 3]),
        (5.0, slice(10, 60), [0]),  # half of the rows
        (5.0, slice(0), [None]),  # not related
    ],
)
@pytest.mark.parametrize("related", [None, True])
def test_relations_are_averaged_with_and_without_factors(noise, gap, counts, related):
    given = in_common(noise, gap)
    resolved = MultiScale(related=related).resolved(given)
    if related:
        counts = [0, 3] if counts == [None] else counts
    variants = list(resolved.variants(given).values())
    assert [each.num_factors for each in variants] == counts
    assert all(each.related is (counts != [None]) and each.ridge == resolved.ridge for each in variants)


@pytest.mark.parametrize("count", [2, (1,) * 5])
def test_relations_are_beside_the_factors_that_are_asked_for(count: object):
    given = in_common(5.0, slice(10, 30))
    resolved = MultiScale(num_factors=count).resolved(given)
    assert resolved.related
    assert list(resolved.variants(given).values()) == [resolved]
    assert resolved.num_factors == count


@pytest.mark.parametrize(
    ("rows", "gap", "related"),
    [
        (100, slice(10, 19), False),
        (100, slice(10, 20), True),
        (100, slice(0, 10), True),
        (100, slice(90, 100), True),
        (100, slice(0), False),
        (256, slice(10, 34), False),
        (256, slice(10, 35), True),  # a tenth in whole rows
    ],
)
def test_outputs_are_related_where_one_has_a_gap_of_a_tenth(rows: int, gap: slice, related: bool):
    generator = np.random.default_rng(0)
    y = generator.normal(size=(rows, 1)).cumsum(0) + generator.normal(size=(rows, 3))
    y[gap, 1] = np.nan
    given = Observations(np.arange(float(rows))[:, None], y)
    resolved = MultiScale().resolved(given)
    assert resolved.related is related
    assert (resolved.ridge is not None) is related
    assert MultiScale(num_factors=0).resolved(given).related is False  # independent, as was asked for


@pytest.mark.parametrize(("noise", "related"), [(0.05, True), (0.5, False)])
def test_outputs_that_are_told_by_the_others_are_related_whatever_gaps(noise: float, related: bool):
    generator = np.random.default_rng(0)
    walks, shares = generator.normal(size=(100, 2)).cumsum(0), generator.normal(size=(2, 5))
    y = walks @ shares + noise * generator.normal(size=(100, 5))
    y[20:23, 1] = np.nan
    resolved = MultiScale().resolved(Observations(np.arange(100.0)[:, None], y))
    assert resolved.related is related
    assert resolved.num_factors == (0 if related else None)


def test_outputs_that_tell_nothing_of_each_other_are_not_related():
    y = np.random.default_rng(0).normal(size=(100, 3))
    y[:40, 1] = np.nan
    given = Observations(np.arange(100.0)[:, None], y)
    assert MultiScale().resolved(given).related is False
    assert MultiScale(related=True).resolved(given).ridge == 0.01
    assert MultiScale(related=True, ridge=0.2).resolved(given).ridge == 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_scales": 0}, "num_scales: expected an integer of at least 1, got 0"),
        ({"num_factors": -1}, "num_factors: expected an integer of at least 0, got -1"),
        ({"periods": ()}, "shortest, longest: expected 0 < shortest <= longest, got 2 and 1"),
        ({"periods": [-1.0]}, "periods: expected positive numbers, got -1"),
        ({"ridge": 0.0}, "ridge: expected a positive number or None, got 0.0"),
    ],
)
def test_lengths_and_counts_that_make_no_covariance_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        MultiScale(**options).between(2, 2.0 if "shortest" in message else 0.1, 1.0)
