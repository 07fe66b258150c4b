"""Kernel-eigen features: the KSVD loss at the exact decomposition, even landmarks, residuals, merging."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from cgp.functional import kep_svgp
from cgp.functional.kep_svgp import Projections


def features(n=7, width=4, seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return [normalize(torch.randn(*batch, n, width, dtype=torch.float64, generator=generator), dim=-1) for _ in "qk"]


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
    assert kep_svgp.ksvd_loss(projected, singular) < 1e-24
    assert kep_svgp.ksvd_loss(projected, 1.5 * singular) > 1e-3


def test_residual_is_unexplained_by_the_decomposition_and_never_negative():
    phi_q, phi_k = features()
    for rank in (1, 2, 4):
        projected, _, _, _ = decomposition(phi_q, phi_k, rank)
        of_e, of_r = kep_svgp.residual_variances(phi_q, phi_k, projected)
        A = phi_q @ phi_k.mT
        torch.testing.assert_close(of_e, (A @ A.mT - projected.e @ projected.e.mT).diagonal().clamp(min=0)[:, None])
        torch.testing.assert_close(of_r, (A.mT @ A - projected.r @ projected.r.mT).diagonal().clamp(min=0)[:, None])
        assert (A @ A.mT - projected.e @ projected.e.mT).diagonal().min() > -1e-12
    assert of_e.max() < 1e-12  # full rank explains everything
    larger = projected._replace(e=10 * projected.e)
    assert not kep_svgp.residual_variances(phi_q, phi_k, larger)[0].any()


@given(n=st.integers(1, 12), count=st.integers(1, 9), offset=st.integers(0, 3))
def test_landmarks_of_padded_sequences_are_those_of_the_real_tokens(n, count, offset):
    tokens = torch.arange(1.0, n + 1)[:, None]
    expected = kep_svgp.landmarks(tokens, count)
    scattered = torch.zeros(2 * n + offset, 1)
    scattered[offset::2] = tokens
    padding = (scattered == 0)[:, 0]
    assert torch.equal(kep_svgp.landmarks(scattered, count, padding), expected)
    chosen = expected[:, 0]
    assert chosen[0] == 1
    assert count == 1 or chosen[-1] == n
    assert (chosen.diff() >= 0).all()
    if count >= n:
        assert set(chosen.tolist()) == set(tokens[:, 0].tolist())
    else:
        assert len(set(chosen.tolist())) == count


def test_projections_are_their_formula_and_batch_equals_loop():
    phi_q, phi_k = features(batch=(2, 3))
    chosen = torch.randn(2, 3, 5, 4).double()
    weights = torch.randn(2, 3, 5, 2).double().unbind(0)
    together = kep_svgp.projections(phi_q, phi_k, *kep_svgp.primal_weights(chosen, *weights))
    for b, h in np.ndindex(2, 3):
        primal = [chosen[b, h].mT @ w[h] for w in weights]
        torch.testing.assert_close(together.e[b, h], phi_q[b, h] @ primal[0])
        torch.testing.assert_close(together.r[b, h], phi_k[b, h] @ primal[1])
        torch.testing.assert_close(together.trace[b, h], torch.trace(primal[0].mT @ primal[1]))


def test_gradients():
    phi, chosen, weights = torch.randn(2, 4, 3).double(), torch.randn(5, 3).double(), torch.randn(2, 5, 2).double()
    values = torch.rand(2).double() + 0.5

    def value(phi_q, phi_k, chosen, weight_e, weight_r, values):
        projected = kep_svgp.projections(phi_q, phi_k, *kep_svgp.primal_weights(chosen, weight_e, weight_r))
        return (*projected, kep_svgp.ksvd_loss(projected, values))

    inputs = [t.clone().requires_grad_() for t in (*phi, chosen, *weights, values)]
    assert torch.autograd.gradcheck(value, inputs)
