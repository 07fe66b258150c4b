"""Learning from panels: what is drawn, what is chosen, and that the columns' order changes nothing."""

import math

import numpy as np
import pytest
import torch

from cgp.functional.gappy_tables import TableLaw
from cgp.kernels.canonical_kernel import log_prior
from cgp.regression.covariances import MultiScale
from cgp.regression.inference import panels
from cgp.regression.inference.panels import FREEDOM, PanelCovariance, _Windows, fit_covariance, fitted_law

T, P = 5, 2
TIMES = torch.arange(float(T), dtype=torch.float64)


def _covariance() -> PanelCovariance:
    return PanelCovariance(MultiScale(num_scales=2, num_factors=1, periods=[]), "matern32", P, T - 1.0).double()


def _tables(count: int, law: TableLaw, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, len(law.mean), generator=generator, dtype=torch.float64)
    tables = law.mean + normal @ torch.linalg.cholesky(law.covariance).mT
    return torch.where(torch.rand(tables.shape, generator=generator) < 0.3, torch.nan, tables)


def test_a_fit_raises_the_evidence() -> None:
    truth = _covariance()
    with torch.no_grad():
        truth.covar_module.kernels[1].loadings.factors.fill_(1.5)
        law = TableLaw(torch.zeros(T * P, dtype=torch.float64), truth(TIMES))
    tables = _tables(40, law)
    before = _covariance()
    learned = fit_covariance(_covariance(), TIMES, tables.unflatten(-1, (T, P)), num_steps=60)
    zero = torch.zeros(T * P, dtype=torch.float64)
    evidence = [float(TableLaw(zero, each(TIMES).detach()).log_evidence(tables).sum()) for each in (before, learned)]
    assert evidence[1] > evidence[0] + 20.0
    assert evidence[1] > float(law.log_evidence(tables).sum()) - 20.0
    assert torch.isfinite(log_prior(learned))


def test_few_tables_keep_the_parametric_law() -> None:
    law = TableLaw(torch.zeros(T * P, dtype=torch.float64), _covariance()(TIMES).detach())
    choice = fitted_law(law.covariance, _tables(20, law))
    assert (choice.weight, choice.has_means) == (math.inf, False)


@pytest.mark.parametrize("varies", [False, True])
def test_scales_are_chosen_where_tables_vary(varies: bool) -> None:
    law = TableLaw(torch.zeros(T * P, dtype=torch.float64), _covariance()(TIMES).detach())
    tables = _tables(300, law)
    if varies:
        tables = tables * torch.as_tensor(np.random.default_rng(0).choice([0.4, 1.6], (300, 1)))
    assert fitted_law(law.covariance, tables).law.freedom == (FREEDOM if varies else math.inf)


def test_another_covariance_is_learned_where_tables_have_one() -> None:
    mean, other = torch.linspace(-2, 2, T * P, dtype=torch.float64), torch.eye(T * P, dtype=torch.float64)
    other[0, -1] = other[-1, 0] = 0.95  # first and last cell, which no stationary covariance joins alone
    parametric = _covariance()(TIMES).detach()
    tables = _tables(300, TableLaw(mean, other))
    choice = fitted_law(parametric, tables)
    assert choice.has_means
    assert choice.weight < math.inf
    test = _tables(200, TableLaw(mean, other), seed=1)
    zero = torch.zeros(T * P, dtype=torch.float64)
    assert (
        float(choice.law.log_evidence(test).mean()) > float(TableLaw(zero, parametric).log_evidence(test).mean()) + 1.0
    )


def test_windows_of_long_tables_are_consecutive_rows() -> None:
    times = torch.arange(2000.0, dtype=torch.float64)
    windows = _Windows(times, times[None, :, None].expand(10, -1, P), torch.Generator().manual_seed(0))
    at, tables = next(windows)
    assert len(at) * P == 600
    assert (at.diff() == 1.0).all()
    torch.testing.assert_close(tables.unflatten(-1, (-1, P))[0, :, 0], at)


def test_parameters_follow_the_columns() -> None:
    law = TableLaw(torch.zeros(T * P, dtype=torch.float64), _covariance()(TIMES).detach())
    values = _tables(20, law).unflatten(-1, (T, P))
    one = fit_covariance(_covariance(), TIMES, values, num_steps=5)
    other = fit_covariance(_covariance(), TIMES, values.flip(-1), num_steps=5)
    torch.testing.assert_close(one.log_noise, other.log_noise.flip(-1))


def test_batches_of_like_tables_have_the_same_law_with_less_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    covariance = _covariance()(TIMES).detach()
    tables = _tables(60, TableLaw(torch.linspace(-1, 1, T * P, dtype=torch.float64), covariance))
    tables[::2] = torch.where(torch.arange(T * P) < 7, torch.nan, tables[::2])  # every other one shows little
    monkeypatch.setattr(panels, "_ENTRIES", 500)  # five tables a batch
    seen: list[torch.Tensor] = []
    learned = panels._learned
    monkeypatch.setattr(
        panels, "_learned", lambda law, at, batches, *rest: seen.extend(batches) or learned(law, at, batches, *rest)
    )
    law = fitted_law(covariance, tables).law
    counts = [(~batch.isnan()).sum(-1) for batch in seen]
    assert len(seen) > 10
    assert all(int(each.max() - each.min()) <= 4 for each in counts)
    monkeypatch.setattr(panels, "_sorted_batches", panels.batches_of)
    other = fitted_law(covariance, tables).law
    torch.testing.assert_close(law.covariance, other.covariance)
    torch.testing.assert_close(law.mean, other.mean)
