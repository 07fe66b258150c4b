"""Kernel-eigen features: the KSVD loss at the exact decomposition, even landmarks, residuals, merging."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.functional import kernel_eigen
from cgp.functional.kernel_eigen import FEATURE_MAPS, Projections
from cgp.variational import EigenVariables


def features(n=7, width=4, seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return [kernel_eigen.cosine(torch.randn(*batch, n, width, dtype=torch.float64, generator=generator)) for _ in "qk"]


def decomposition(phi_q, phi_k, rank):
    """Projections at the exact singular value decomposition of φ_q φ_k', by numpy."""
    q, k = phi_q.numpy(), phi_k.numpy()
    H_e, singular, H_r = np.linalg.svd(q @ k.T)
    H_e, singular, H_r = H_e[:, :rank], singular[:rank], H_r[:rank].T
    weight_e, weight_r = k.T @ H_r, q.T @ H_e  # primal weights, (s, r)
    projected = Projections(
        *(torch.from_numpy(x) for x in (q @ weight_e, k @ weight_r)), torch.tensor((weight_e * weight_r).sum())
    )
    return projected, torch.from_numpy(singular.copy()), torch.from_numpy(H_e.copy()), torch.from_numpy(H_r.copy())


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_ksvd_loss_is_zero_at_the_exact_decomposition(rank):
    projected, singular, H_e, H_r = decomposition(*features(), rank)
    torch.testing.assert_close(projected.e, H_e * singular)
    torch.testing.assert_close(projected.r, H_r * singular)
    assert kernel_eigen.ksvd_loss(projected, singular) < 1e-24
    assert kernel_eigen.ksvd_loss(projected, 1.5 * singular) > 1e-3
    off = projected._replace(e=projected.e + 0.1)
    assert kernel_eigen.ksvd_loss(off, singular) > 1e-6


def test_ksvd_loss_is_its_formula():
    e, r = torch.randn(2, 3, 5, 4).double().unbind(0)
    trace, values = torch.randn(3).double(), torch.rand(3, 4).double() + 0.5
    expected = []
    for b in range(3):
        total = sum(
            (e[b, i] / values[b].sqrt()).square().sum() + (r[b, i] / values[b].sqrt()).square().sum() for i in range(5)
        )
        expected.append((0.5 * total - trace[b]) ** 2)
    torch.testing.assert_close(kernel_eigen.ksvd_loss(Projections(e, r, trace), values), torch.stack(expected))


def test_published_loss_averages_before_it_squares():
    e, r, trace = torch.randn(2, 3, 5, 4).double(), torch.randn(2, 3, 5, 4).double(), torch.zeros(2, 3)
    values = torch.rand(3, 4).double() + 0.5
    weight_e, weight_r = torch.randn(2, 3, 6, 4).double().unbind(0)
    traces = [np.trace(a.T @ b) for a, b in zip(weight_e.numpy(), weight_r.numpy(), strict=True)]
    variance = (0.5 * (e.square() + r.square()) / values[:, None, :]).sum(-1).mean()
    value = kernel_eigen.published_ksvd_loss(Projections(e, r, trace), values, weight_e, weight_r, torch.tensor(5.0))
    torch.testing.assert_close(value, (variance - np.mean(traces)) ** 2)


def test_residual_is_what_the_decomposition_leaves_and_never_negative():
    phi_q, phi_k = features()
    for rank in (1, 2, 4):
        projected, _, _, _ = decomposition(phi_q, phi_k, rank)
        of_e, of_r = kernel_eigen.residual_variances(phi_q, phi_k, projected)
        A = phi_q @ phi_k.mT
        torch.testing.assert_close(of_e, (A @ A.mT - projected.e @ projected.e.mT).diagonal().clamp(min=0))
        torch.testing.assert_close(of_r, (A.mT @ A - projected.r @ projected.r.mT).diagonal().clamp(min=0))
        assert (A @ A.mT - projected.e @ projected.e.mT).diagonal().min() > -1e-12
    assert of_e.max() < 1e-12  # full rank explains everything
    larger = projected._replace(e=10 * projected.e)
    assert not kernel_eigen.residual_variances(phi_q, phi_k, larger)[0].any()


@pytest.mark.parametrize("whiten", [True, False])
def test_divergence_is_torchs_of_explicit_normals(whiten):
    variables = EigenVariables(3, 2, torch.Size([4]), whiten=whiten).double()
    with torch.no_grad():
        for parameter in variables.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    scale = variables.singular_values[:, None, :].expand(4, 2, 3)
    u_mean, u_root = variables.mean * scale, scale[..., None] * variables.root  # mean and root are those of Λ⁻¹u
    q = MultivariateNormal(u_mean, u_root @ u_root.mT)
    p = MultivariateNormal(torch.zeros_like(u_mean), torch.diag_embed(scale.square()))
    torch.testing.assert_close(variables.kl_divergence(), kl_divergence(q, p))


def test_divergence_is_proposition_3_1():
    variables = EigenVariables(3, 1, whiten=False).double()
    with torch.no_grad():
        for parameter in variables.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    raw = variables.variables
    m, S, L2 = raw.variational_mean[0], raw.root[0] @ raw.root[0].mT, variables.singular_values.square()
    terms = (
        (S.diagonal() / L2).sum()
        + (m.square() / L2).sum()
        - 3
        + L2.log().sum()
        - 2 * raw.root[0].diagonal().log().sum()
    )
    torch.testing.assert_close(variables.kl_divergence()[0], 0.5 * terms)


@given(n=st.integers(1, 12), count=st.integers(1, 9), offset=st.integers(0, 3))
def test_landmarks_of_padded_sequences_are_those_of_the_real_tokens(n, count, offset):
    tokens = torch.arange(1.0, n + 1)[:, None]
    expected = kernel_eigen.landmarks(tokens, count)
    scattered = torch.zeros(2 * n + offset, 1)
    scattered[offset::2] = tokens
    padding = (scattered == 0)[:, 0]
    assert torch.equal(kernel_eigen.landmarks(scattered, count, padding), expected)
    chosen = expected[:, 0]
    assert chosen[0] == 1
    assert count == 1 or chosen[-1] == n
    assert (chosen.diff() >= 0).all()
    if count >= n:
        assert set(chosen.tolist()) == set(tokens[:, 0].tolist())
    else:
        assert len(set(chosen.tolist())) == count


def test_landmarks_of_no_token_are_zero():
    chosen = kernel_eigen.landmarks(torch.ones(2, 3, 1), 2, torch.tensor([[True] * 3, [False] * 3]))
    assert not chosen[0].any()
    assert chosen[1].all()


def test_projections_are_their_formula_and_batch_equals_loop():
    phi_q, phi_k = features(batch=(2, 3))
    chosen = torch.randn(2, 3, 5, 4).double()
    weight_e, weight_r = torch.randn(2, 3, 5, 2).double().unbind(0)
    together = kernel_eigen.projections(phi_q, phi_k, chosen, weight_e, weight_r)
    for b, h in np.ndindex(2, 3):
        primal = [chosen[b, h].mT @ w[h] for w in (weight_e, weight_r)]
        torch.testing.assert_close(together.e[b, h], phi_q[b, h] @ primal[0])
        torch.testing.assert_close(together.r[b, h], phi_k[b, h] @ primal[1])
        torch.testing.assert_close(together.trace[b, h], torch.trace(primal[0].mT @ primal[1]))


def test_padded_tokens_are_not_projected():
    phi_q, phi_k = features()
    padding = torch.arange(7) >= 5
    projected = kernel_eigen.projections(
        phi_q,
        phi_k,
        torch.randn(5, 4).double(),
        *torch.randn(2, 5, 2).double(),
        query_padding=padding,
        key_padding=padding,
    )
    assert not projected.e[5:].any()
    assert not projected.r[5:].any()
    assert projected.e[:5].all()


def test_branches_alone_and_together():
    e, r, merge_map = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(3, 6)
    assert kernel_eigen.merge_branches(e, r, "e") is e
    assert kernel_eigen.merge_branches(e, r, "r") is r
    assert torch.equal(kernel_eigen.merge_branches(e, r), e + r)
    merged = kernel_eigen.merge_branches(e, r, merge_map=merge_map)
    torch.testing.assert_close(merged, merge_map[:, :3] @ e + merge_map[:, 3:] @ r)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_gradients(name):
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    chosen, weights = torch.randn(5, 3).double(), torch.randn(2, 5, 2).double()
    values = torch.rand(2).double() + 0.5

    def value(q, k, chosen, weight_e, weight_r, values):
        phi_q, phi_k = FEATURE_MAPS[name](q), FEATURE_MAPS[name](k)
        projected = kernel_eigen.projections(phi_q, phi_k, chosen, weight_e, weight_r)
        return (*projected, kernel_eigen.ksvd_loss(projected, values))

    inputs = [t.clone().requires_grad_() for t in (*x, chosen, *weights, values)]
    assert torch.autograd.gradcheck(value, inputs)
