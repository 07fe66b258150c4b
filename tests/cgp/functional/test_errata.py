"""The statements of docs/errata.md about CGPT's formulas, by dense algebra and Monte Carlo in float64."""

import math

import pytest
import torch

NOISE, DRAWS = 0.3, 400_000


def gram(a, b):
    return torch.exp(-0.5 * (a[:, None] - b).square().sum(-1))


@pytest.fixture
def hop():
    """Latent process, its hop to the queries, and outputs: K_o, A_q, Σ_q, ν."""
    torch.set_default_dtype(torch.float64)
    q, o = torch.randn(4, 2), torch.randn(5, 2)
    K_q, K_o, K_qo = gram(q, q), gram(o, o), gram(q, o)
    A_q = torch.cholesky_solve(K_qo.mT, torch.linalg.cholesky(K_o + NOISE * torch.eye(5))).mT
    return K_o, A_q, K_q - A_q @ K_qo.mT + NOISE * torch.eye(4), torch.randn(4)


def log_normal(x, mean, covariance):
    return torch.distributions.MultivariateNormal(mean, covariance).log_prob(x)


def test_the_evidence_of_27_and_its_jensen_bound_have_closed_forms(hop):
    K_o, A_q, S_q, nu = hop
    factor, explained = torch.linalg.cholesky(S_q), A_q @ K_o @ A_q.mT
    evidence = log_normal(nu, torch.zeros(4), S_q + explained)
    bound = log_normal(nu, torch.zeros(4), S_q) - 0.5 * torch.cholesky_solve(explained, factor).trace()
    latent = torch.randn(DRAWS, 5) @ torch.linalg.cholesky(K_o).mT
    sampled = log_normal(nu, latent @ A_q.mT, S_q)
    assert float(evidence) == pytest.approx(float(torch.logsumexp(sampled, 0)) - math.log(DRAWS), abs=0.03)
    assert float(bound) == pytest.approx(float(sampled.mean()), abs=5 * float(sampled.std()) / DRAWS**0.5)
    assert bound < evidence


def test_no_mean_occurs_in_the_covariance_of_appendix_b(hop):
    _, A_q, S_q, _ = hop
    root = torch.randn(5, 5)
    mean, covariance = torch.randn(5), root @ root.mT / 5
    latent = mean + torch.randn(DRAWS, 5) @ torch.linalg.cholesky(covariance).mT
    draws = latent @ A_q.mT + torch.randn(DRAWS, 4) @ torch.linalg.cholesky(S_q).mT
    torch.testing.assert_close(draws.mT.cov(), S_q + A_q @ covariance @ A_q.mT, atol=0.02, rtol=0.02)


def test_the_expectation_of_appendix_e_keeps_the_outputs_norm():
    torch.set_default_dtype(torch.float64)
    q, o, m = torch.randn(4, 2), torch.randn(6, 2), torch.randn(3, 2)
    K_qm, K_mo, K_mm, nu = gram(q, m), gram(m, o), gram(m, m), torch.randn(4)
    factor = torch.linalg.cholesky(K_mm + K_mo @ K_mo.mT / NOISE)
    spread = torch.cholesky_solve(K_qm.mT, factor)  # Λ⁻¹ K_mq
    B_q = spread.mT @ K_mo / NOISE
    K_o = gram(o, o)
    latent = torch.randn(DRAWS, 6) @ torch.linalg.cholesky(K_o + 1e-10 * torch.eye(6)).mT
    conditional = torch.linalg.cholesky(K_qm @ spread + 1e-10 * torch.eye(4))
    draws = latent @ B_q.mT + torch.randn(DRAWS, 4) @ conditional.mT
    squares = (nu - draws).square().sum(-1)
    expected = nu @ nu + (B_q @ K_o @ B_q.mT).trace() + (K_qm @ spread).trace()
    assert float(expected) == pytest.approx(float(squares.mean()), abs=5 * float(squares.std()) / DRAWS**0.5)
