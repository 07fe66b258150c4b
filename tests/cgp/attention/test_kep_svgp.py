"""KEP-SVGP and primal attention under the contract, and their special properties."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from cgp.attention.kep_svgp import KEPSVGPAttention
from cgp.attention.ksvd import PrimalAttention
from cgp.functional.kep_svgp import ksvd_loss
from cgp.networks.model.blocks import added_losses
from cgp.networks.model.diagnostics import attention_matrix
from tests.contracts.attention_contract import NUM_TOKENS, AttentionContract, GaussianProcessContract


class KEPContract(GaussianProcessContract):
    attention, takes_cross, is_equivariant, columns_share = KEPSVGPAttention, False, False, False


class TestRankTwo(KEPContract):
    attention = partial(KEPSVGPAttention, rank=2)


class TestOnlyQueries(KEPContract):
    attention, takes_cross = partial(KEPSVGPAttention, rank=4, branches="e"), True


class TestOnlyKeys(KEPContract):
    attention, is_variant = partial(KEPSVGPAttention, rank=4, branches="r"), True


class TestPrimal(AttentionContract):
    attention, takes_cross, is_equivariant = partial(PrimalAttention, rank=4), False, False


def concatenating(**options) -> KEPSVGPAttention:
    return KEPSVGPAttention(12, 3, rank=4, merge="concatenation", num_tokens=NUM_TOKENS, **options).double()


def test_concatenation_starts_as_the_addition():
    added = KEPSVGPAttention(12, 3, rank=4).double().eval()
    both = concatenating().eval()
    both.load_state_dict(added.state_dict(), strict=False)
    x = torch.randn(2, NUM_TOKENS, 12, dtype=torch.float64)
    torch.testing.assert_close(both(x), added(x))
    torch.testing.assert_close(both.token_variance(x), added.token_variance(x))


def test_concatenation_merges_along_the_tokens():
    block, x = concatenating().eval(), torch.randn(2, NUM_TOKENS, 12, dtype=torch.float64)
    nn.init.normal_(block.merge_map)
    tokens = block.project(x)
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    features = torch.einsum("ij,bhjr->bhir", block.merge_map, torch.cat([projected.e, projected.r], -2))
    expected = torch.einsum("bhir,hjr,hjs->bhis", features, block.variational_strategy.variational_mean, block.head_map)
    torch.testing.assert_close(block.mean_heads(tokens), expected)


def test_concatenation_leaves_padding_out():
    block, x = concatenating().eval(), torch.randn(1, NUM_TOKENS, 12, dtype=torch.float64)
    nn.init.normal_(block.merge_map)
    padding = torch.arange(NUM_TOKENS)[None] >= 5
    tokens = block.project(x, key_padding_mask=padding)
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    merged = block.merge_map @ torch.cat([projected.e[0], projected.r[0]], -2)
    spread = torch.einsum("hir,hjrs->hjis", merged, block.variational_strategy.root).square().sum(-1)  # (h, j, n)
    expected = (spread.mT @ block.head_map.square()).mean(-1)
    variance = block.token_variance(x, key_padding_mask=padding)[0]
    torch.testing.assert_close(variance[:, :5], expected[:, :5])
    assert not variance[:, 5:].any()


def test_concatenation_is_for_one_length():
    with pytest.raises(ValueError, match=r"query: expected 7 tokens, .* got 6 \(merge='addition' takes any length\)"):
        concatenating()(torch.zeros(1, 6, 12, dtype=torch.float64))


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
def test_both_branches_need_as_many_queries_as_keys(make):
    with pytest.raises(ValueError, match="query: expected as many tokens as key"):
        make(12, 3)(torch.zeros(1, 4, 12), torch.zeros(1, 6, 12))


def test_the_mean_starts_as_the_projections():
    block, x = KEPSVGPAttention(12, 3, rank=4).double().eval(), torch.randn(2, 5, 12, dtype=torch.float64)
    tokens = block.project(x)
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    torch.testing.assert_close(block.mean_heads(tokens), (projected.e + projected.r) @ block.head_map)


def test_the_smallest_decomposition_and_default_landmarks():
    assert PrimalAttention(8, 2, rank=3).ksvd.num_landmarks == 6
    block = PrimalAttention(8, 2, rank=1, num_landmarks=1)
    assert block(torch.randn(2, 5, 8)).isfinite().all()


def test_loss_of_short_and_of_empty_sequences():
    """Divided by the number of real tokens squared, one included; a sequence of padding weighs nothing."""
    block, x = PrimalAttention(8, 2, rank=2), torch.randn(3, 5, 8)
    padding = torch.tensor([[False] + [True] * 4, [False] * 2 + [True] * 3, [True] * 5])

    def loss(tokens, mask):
        block(tokens, key_padding_mask=mask)
        return sum(term.loss() for term in block.added_loss_terms())

    for count in (1, 2):
        tokens = block.project(x[:1, :count])
        projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
        expected = ksvd_loss(projected, block.ksvd.log_singular_values.exp()).sum() / count**2
        torch.testing.assert_close(loss(x[:1], torch.arange(5)[None] >= count), expected)
    assert loss(x, padding).isfinite()


def test_attention_matrix_is_the_cosine_of_real_queries_and_keys():
    block, x = KEPSVGPAttention(12, 3, rank=4).double(), torch.randn(1, 5, 12, dtype=torch.float64)
    mask = torch.tensor([[False, False, False, True, True]])
    matrix = attention_matrix(block, x, key_padding_mask=mask)[0, 0].numpy()
    q, k = (block.in_proj(x)[0, :, i : i + 4].detach().numpy() for i in (0, 12))
    expected = (q / np.linalg.norm(q, axis=1, keepdims=True)) @ (k / np.linalg.norm(k, axis=1, keepdims=True)).T
    expected[3:], expected[:, 3:] = 0, 0
    np.testing.assert_allclose(matrix, expected, atol=1e-12)


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
def test_ksvd_loss_is_a_sum_over_heads_and_a_mean_over_sequences(make):
    block, x = make(12, 3, rank=4, ksvd_weight=10.0).double(), torch.randn(2, 5, 12, dtype=torch.float64)
    nn.init.normal_(block.ksvd.log_singular_values)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    block(x, key_padding_mask=padding)
    tokens, total = block.project(x, key_padding_mask=padding), 0.0
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    for sequence, count in enumerate((5, 3)):
        for head in range(3):
            inverse = (-block.ksvd.log_singular_values[head]).exp()
            variance = sum((z[sequence, head].square() * inverse).sum() for z in (projected.e, projected.r))
            total = total + ((0.5 * variance - projected.trace[sequence, head]) / count) ** 2
    torch.testing.assert_close(added_losses(block)["ksvd"], 10.0 * total / 2)


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
def test_ksvd_loss_is_registered_in_training_and_with_a_weight(make):
    block, x = make(12, 3, rank=4).eval(), torch.randn(2, 5, 12)
    block(x)
    assert not added_losses(block)
    without = make(12, 3, rank=4, ksvd_weight=0.0)
    without(x)
    assert not added_losses(without)
    assert not [name for name, _ in without.named_parameters() if "singular" in name]


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
def test_ksvd_loss_can_leave_the_attention_matrix_alone(make):
    result, padding = [], torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    for reaches in ("tokens", "projections"):
        torch.manual_seed(0)
        block = make(12, 3, rank=4, ksvd_reaches=reaches).double()
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        block(x, key_padding_mask=padding)
        loss, named = added_losses(block)["ksvd"], dict(block.named_parameters()) | {"x": x}
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        result.append((loss, {name: g for name, g in zip(named, gradients, strict=True) if g is not None}))
    (first, full), (second, part) = result
    torch.testing.assert_close(first, second)  # the same loss
    assert "x" in full
    assert "in_proj.weight" in full
    assert part
    assert all(name.startswith("ksvd.") for name in part)
    torch.testing.assert_close(part, {name: full[name] for name in part})  # and of what it reaches, the same gradient


@pytest.mark.parametrize(("make", "num_features"), [(KEPSVGPAttention, 64), (PrimalAttention, 128)])
def test_heads_start_as_large_as_the_features_that_are_mapped(make, num_features):
    head_map = make(512, 2, rank=64).head_map
    assert head_map.square().mean().item() == pytest.approx(1 / num_features, rel=0.05)


def test_a_posterior_of_full_rank_has_a_density():
    block, x = KEPSVGPAttention(12, 3, rank=10).double().eval(), torch.randn(2, NUM_TOKENS, 12, dtype=torch.float64)
    posterior = block.posterior(x)
    value, covariance = torch.randn_like(posterior.mean), posterior.lazy_covariance_matrix
    dense = torch.distributions.MultivariateNormal(posterior.mean, posterior.covariance_matrix)
    torch.testing.assert_close(posterior.log_prob(value), dense.log_prob(value))
    torch.testing.assert_close(covariance.logdet(), torch.logdet(posterior.covariance_matrix))
    torch.testing.assert_close(covariance @ covariance.solve(value[..., None]), value[..., None])
    divergence = torch.distributions.kl_divergence(posterior, posterior)
    torch.testing.assert_close(divergence, torch.zeros_like(divergence), rtol=0.0, atol=1e-8)


def test_a_posterior_of_lower_rank_says_its_rank():
    posterior = KEPSVGPAttention(12, 3, rank=4).eval().posterior(torch.randn(2, NUM_TOKENS, 12))
    with pytest.raises(ValueError, match="needs full rank, got rank 4 of 7: add noise"):
        posterior.log_prob(posterior.mean)


@pytest.mark.parametrize("mode", ["marginal", "joint"])
def test_draws_have_the_dependence_between_channels(mode):
    block, x = KEPSVGPAttention(12, 3, rank=4).double().eval(), torch.randn(1, NUM_TOKENS, 12, dtype=torch.float64)
    block.sampling, block.num_samples = mode, 4000
    tokens = block.project(x)
    with torch.no_grad():
        draws, posterior = block.attend(tokens)[:, 0], block.gaussian(tokens)
        spread = posterior.outputs.column_variances[0]  # (h, n, J)
        expected = torch.einsum("hnj,hjc,hjd->hncd", spread, block.head_map, block.head_map)
        scale = expected.diagonal(dim1=-2, dim2=-1).sqrt()
        centred = (draws - posterior.mean[0]) / scale
    correlations = torch.einsum("zhnc,zhnd->hncd", centred, centred) / len(centred)
    expected = expected / (scale[..., :, None] * scale[..., None, :])
    assert (correlations - expected).abs().max() < 6 * (2 / len(centred)) ** 0.5
    assert (expected - torch.eye(4)).abs().max() > 0.5
