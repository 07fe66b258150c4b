"""The law of tables with gaps, against dense algebra, scipy's densities and its own objective."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, multivariate_t

from cgp.functional.gappy_tables import Cells, TableLaw, covariance_of_cells

D, B = 7, 6


def _tables(seed: int = 0) -> tuple[TableLaw, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(D, D + 2, generator=generator, dtype=torch.float64)
    tables = torch.randn(B, D, generator=generator, dtype=torch.float64)
    tables[torch.rand(B, D, generator=generator) < 0.4] = torch.nan
    tables[1], tables[2, 1:] = torch.nan, torch.nan  # nothing, and one value, observed
    return TableLaw(torch.linspace(-1, 1, D, dtype=torch.float64), root @ root.mT / D), tables


@pytest.mark.parametrize("freedom", [math.inf, 5.0])
def test_evidence_is_that_of_scipy(freedom: float) -> None:
    law, tables = _tables()
    law = law._replace(freedom=freedom)
    evidence = law.log_evidence(tables)
    for row, value in zip(tables, evidence, strict=True):
        seen = ~row.isnan()
        x, mean, scale = row[seen].numpy(), law.mean[seen].numpy(), law.covariance[seen][:, seen].numpy()
        if not len(x):
            assert value == pytest.approx(0.0, abs=1e-12)
            continue
        density = multivariate_normal(mean, scale) if freedom == math.inf else multivariate_t(mean, scale, freedom)
        assert value == pytest.approx(density.logpdf(x), abs=1e-10)


@pytest.mark.parametrize("freedom", [math.inf, 5.0])
def test_filled_is_dense_conditioning(freedom: float) -> None:
    law, tables = _tables()
    filled = law._replace(freedom=freedom).filled(tables)
    for number, row in enumerate(tables):
        seen, gaps = (~row.isnan()).numpy(), row.isnan().numpy()
        C, mean, x = law.covariance.numpy(), law.mean.numpy(), row.numpy()
        inverse = np.linalg.inv(C[np.ix_(seen, seen)])
        error = x[seen] - mean[seen]
        expected = mean[gaps] + C[np.ix_(gaps, seen)] @ inverse @ error
        left = C[np.ix_(gaps, gaps)] - C[np.ix_(gaps, seen)] @ inverse @ C[np.ix_(seen, gaps)]
        scale = 1.0 if freedom == math.inf else (freedom + error @ inverse @ error) / (freedom + seen.sum() - 2.0)
        np.testing.assert_allclose(filled.mean[number, gaps], expected, atol=1e-10)
        np.testing.assert_array_equal(filled.mean[number, seen], x[seen])
        np.testing.assert_allclose(filled.covariance(number), scale * left, atol=1e-10)
        np.testing.assert_allclose(filled.variances[number, gaps], scale * left.diagonal(), atol=1e-10)
        assert (filled.variances[number, seen] == 0.0).all()


def test_variances_are_those_of_draws() -> None:
    """Given a value, the variance of a t vector's other entry is the moment of its conditional density."""
    law = TableLaw(torch.zeros(2), torch.tensor([[1.0, 0.6], [0.6, 2.0]]), 5.0)
    filled = law.filled(torch.tensor([[1.5, torch.nan]]))
    x = np.linspace(-400, 400, 800_001)
    density = multivariate_t([0, 0], law.covariance.numpy(), 5.0).pdf(np.column_stack([np.full_like(x, 1.5), x]))
    mean = (x * density).sum() / density.sum()
    assert float(filled.mean[0, 1]) == pytest.approx(mean, abs=1e-5)
    assert float(filled.variances[0, 1]) == pytest.approx(((x - mean) ** 2 * density).sum() / density.sum(), rel=1e-4)


def test_tables_with_laws_of_their_own() -> None:
    law, tables = _tables()
    shared = law.filled(tables)
    each = law._replace(covariance=law.covariance.expand(B, D, D)).filled(tables)
    torch.testing.assert_close(shared.mean, each.mean)
    torch.testing.assert_close(shared.variances, each.variances)


def test_batch_is_loop() -> None:
    law, tables = _tables()
    law = law._replace(freedom=9.0)
    filled, alone = law.filled(tables), [law.filled(row[None]) for row in tables]
    torch.testing.assert_close(filled.mean, torch.cat([one.mean for one in alone]), atol=1e-12, rtol=0)
    torch.testing.assert_close(filled.variances, torch.cat([one.variances for one in alone]), atol=1e-12, rtol=0)
    torch.testing.assert_close(law.log_evidence(tables), torch.cat([law.log_evidence(row[None]) for row in tables]))


@pytest.mark.parametrize("freedom", [math.inf, 6.0])
def test_steps_of_em_raise_their_objective(freedom: float) -> None:
    centre, tables = _tables(3)
    centre = centre._replace(freedom=freedom)
    weight, mean_weight, law, values = 4.0, 2.0, centre, []
    for _ in range(200):
        shift = law.mean - centre.mean
        inverse = torch.linalg.inv(law.covariance)
        penalty = weight * (torch.logdet(law.covariance) + torch.trace(centre.covariance @ inverse))
        values.append(
            float(law.log_evidence(tables).sum() - 0.5 * penalty - 0.5 * mean_weight * shift @ inverse @ shift)
        )
        law = law.refined(centre, tuple(tables.split(2)), weight, mean_weight)
    assert (np.diff(values) > -1e-9).all()
    assert values[-1] - values[-2] < 1e-6 < values[1] - values[0]


def test_refined_of_whole_tables_is_the_mean_of_an_inverse_wishart() -> None:
    centre, _ = _tables()
    tables = torch.randn(20, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    law = centre.refined(centre, (tables,), 5.0, 3.0)
    mean = (3.0 * centre.mean + tables.sum(0)) / 23.0
    torch.testing.assert_close(law.mean, mean)
    errors, shift = tables - mean, mean - centre.mean
    scatter = 5.0 * centre.covariance + errors.mT @ errors + 3.0 * torch.outer(shift, shift)
    torch.testing.assert_close(law.covariance, scatter / 25.0)
    kept = centre.refined(centre, (tables,), math.inf, 3.0)
    assert kept.covariance is centre.covariance
    torch.testing.assert_close(kept.mean, mean)


def test_gradient_of_the_covariance_of_cells() -> None:
    law, tables = _tables()
    cells, gaps = Cells.of(~tables.isnan()), Cells.of(tables.isnan())
    covariance = law.covariance.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda C: covariance_of_cells(C, cells), (covariance,))
    assert torch.autograd.gradcheck(lambda C: covariance_of_cells(C, cells, gaps), (covariance,))


def test_varying_keeps_the_covariance_of_readings() -> None:
    law, _ = _tables()
    nothing = torch.full((1, D), torch.nan, dtype=torch.float64)
    torch.testing.assert_close(law.varying(8.0).filled(nothing).covariance(0), law.covariance)
