"""Factor models of many columns against dense algebra."""

import numpy as np
import torch
from torch.distributions import MultivariateNormal

from cgp.functional.factor_models import FactorAnalysis, factor_analysis, factor_log_evidence


def a_table(rows: int, columns: int, missing: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    gone = torch.rand(rows, columns, generator=generator) < missing
    return torch.where(gone, torch.nan, values)


def test_the_evidence_is_that_of_the_dense_covariance_with_its_gradients():
    values, x = a_table(7, 5, 0.3), torch.linspace(0.0, 2.0, 7, dtype=torch.float64)
    values[:, 3] = torch.nan
    grams = torch.stack([torch.exp(-(x[:, None] - x).abs() / length) for length in (0.3, 1.5)])
    loadings = a_table(5, 3, 0.0, 1).requires_grad_()
    own = a_table(2, 5, 0.0, 2).square().requires_grad_()
    noise = (0.1 + a_table(1, 5, 0.0, 3)[0].square()).requires_grad_()
    kinds = torch.tensor([0, 1, 1])
    mine = factor_log_evidence(grams, (loadings, kinds), own, noise, values)
    among = torch.stack([loadings[:, kinds == c] @ loadings[:, kinds == c].mT + own[c].diag() for c in range(2)])
    dense = torch.einsum("cts,cpq->tpsq", grams, among).reshape(35, 35) + noise.repeat(7).diag()
    seen = ~values.flatten().isnan()
    law = MultivariateNormal(torch.zeros(int(seen.sum())).double(), dense[seen][:, seen])
    its = law.log_prob(values.flatten()[seen])
    torch.testing.assert_close(mine, its, rtol=1e-8, atol=1e-7)
    for a, b in zip(*(torch.autograd.grad(each, [loadings, own, noise]) for each in (mine, its)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_without_factors_columns_are_alone():
    values, one = a_table(6, 3, 0.2), torch.eye(6, dtype=torch.float64)[None]
    nothing = torch.zeros(3, 0, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
    own, noise = torch.full((1, 3), 0.5).double(), torch.full((3,), 0.7).double()
    evidence = factor_log_evidence(one, nothing, own, noise, values)
    known = values[~values.isnan()]
    expected = torch.distributions.Normal(0.0, 1.2**0.5).log_prob(known).sum()
    torch.testing.assert_close(evidence, expected)


def test_scores_are_the_conditional_mean_and_covariance():
    values = a_table(4, 6, 0.4)
    analysis = FactorAnalysis(a_table(6, 2, 0.0, 1), torch.linspace(0.2, 0.9, 6).double())
    means, covariances = analysis.scores(values)
    for row, mean, covariance in zip(values, means, covariances, strict=True):
        seen = ~row.isnan()
        some = analysis.loadings[seen]
        gain = some.mT @ torch.linalg.inv(some @ some.mT + analysis.noise[seen].diag())
        torch.testing.assert_close(mean, gain @ row[seen])
        torch.testing.assert_close(covariance, torch.eye(2).double() - gain @ some)


def test_steps_of_em_win_likelihood_and_find_the_noise():
    generator = np.random.default_rng(0)
    truth = generator.normal(size=(40, 2))
    values = generator.normal(size=(300, 2)) @ truth.T + 0.3 * generator.normal(size=(300, 40))
    table = torch.as_tensor(np.where(generator.random(values.shape) < 0.3, np.nan, values))
    start = torch.as_tensor(truth + generator.normal(size=truth.shape))

    def evidence(steps: int) -> float:
        found = factor_analysis(table, start, steps)
        grams, kinds = torch.eye(300, dtype=torch.float64)[None], torch.zeros(2, dtype=torch.long)
        own = torch.zeros(1, 40).double()
        rows = [
            factor_log_evidence(grams[:, :30, :30], (found.loadings, kinds), own, found.noise, part)
            for part in table.split(30)
        ]
        return float(sum(rows))

    values_of = [evidence(steps) for steps in (1, 5, 20, 80)]
    assert values_of == sorted(values_of)
    found = factor_analysis(table, start, 80)
    torch.testing.assert_close(found.noise.mean().item(), 0.09, rtol=0.1, atol=0.0)
