"""KEP-SVGP and primal attention under the contract, and what is their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cgp.attention.kep_svgp import KEPSVGPAttention
from cgp.attention.primal import PrimalAttention
from cgp.model.blocks import added_losses, global_kl
from tests.contracts.attention_contract import NUM_TOKENS, AttentionContract
from tests.contracts.columnwise_contract import ColumnwiseContract


class TestAddition(ColumnwiseContract):
    takes_cross, is_equivariant = False, False

    def make(self, embed_dim=12, num_heads=3, **options):
        return KEPSVGPAttention(embed_dim, num_heads, rank=4, **options)


class TestPaperWithResidual(ColumnwiseContract):
    takes_cross, is_equivariant = False, False

    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"whiten": False, "residual": True, "ksvd_loss": "exact", "num_outputs": 2, **options}
        return KEPSVGPAttention(embed_dim, num_heads, rank=4, **options)


class TestQueriesAlone(ColumnwiseContract):
    takes_cross, is_equivariant = True, False

    def make(self, embed_dim=12, num_heads=3, **options):
        return KEPSVGPAttention(embed_dim, num_heads, rank=4, branches="e", feature_map="elu", **options)


class TestKeysAlone(ColumnwiseContract):
    takes_cross, is_equivariant = False, False

    def make(self, embed_dim=12, num_heads=3, **options):
        return KEPSVGPAttention(embed_dim, num_heads, rank=4, branches="r", feature_map="identity", **options)


class TestPrimal(AttentionContract):
    takes_cross, is_equivariant = False, False

    def make(self, embed_dim=12, num_heads=3, **options):
        return PrimalAttention(embed_dim, num_heads, rank=4, **options)


def concatenating(**options) -> KEPSVGPAttention:
    return KEPSVGPAttention(12, 3, rank=4, merge="concatenation", num_tokens=NUM_TOKENS, **options).double()


def test_concatenation_starts_as_the_addition():
    torch.manual_seed(0)
    added = KEPSVGPAttention(12, 3, rank=4, residual=True).double().eval()
    both = concatenating(residual=True).eval()
    both.load_state_dict(added.state_dict(), strict=False)
    x = torch.randn(2, NUM_TOKENS, 12, dtype=torch.float64)
    torch.testing.assert_close(both(x), added(x))
    torch.testing.assert_close(both.token_variance(x), added.token_variance(x))


def test_concatenation_merges_along_the_tokens():
    block, x = concatenating().eval(), torch.randn(2, NUM_TOKENS, 12, dtype=torch.float64)
    with torch.no_grad():
        block.merge_map.normal_()
    tokens = block.project(x)
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    features = torch.einsum("ij,bhjr->bhir", block.merge_map, torch.cat([projected.e, projected.r], -2))
    expected = torch.einsum("bhir,hjr,hjs->bhis", features, block.variational_strategy.mean, block.head_map)
    torch.testing.assert_close(block.mean(tokens), expected)


def test_concatenation_is_for_one_length():
    with pytest.raises(ValueError, match=r"query: expected 7 tokens, .* got 6 \(merge='addition' takes any length\)"):
        concatenating()(torch.zeros(1, 6, 12, dtype=torch.float64))


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
def test_both_branches_need_as_many_queries_as_keys(make):
    with pytest.raises(ValueError, match="query: expected as many tokens as key"):
        make(12, 3)(torch.zeros(1, 4, 12), torch.zeros(1, 6, 12))


def test_both_parametrisations_are_one_model():
    """With u in units of Λ the same weights give another posterior; scaled by Λ they give the same, KL included."""
    white = KEPSVGPAttention(12, 3, rank=4).double().eval()
    paper = KEPSVGPAttention(12, 3, rank=4, whiten=False).double().eval()
    with torch.no_grad():
        white.variational_strategy.log_singular_values.normal_()
        white.variational_strategy.variables.variational_mean.normal_()
        paper.load_state_dict(white.state_dict())
        scale = white.variational_strategy.singular_values[:, None, :]
        variables = paper.variational_strategy.variables
        variables.variational_mean.mul_(scale)
        root = white.variational_strategy.variables.root * scale[..., None]
        diagonal = root.diagonal(dim1=-2, dim2=-1).expm1().log()
        variables.raw_root.copy_(root.tril(-1) + torch.diag_embed(diagonal))
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    torch.testing.assert_close(paper(x), white(x))
    torch.testing.assert_close(paper.token_variance(x), white.token_variance(x))
    torch.testing.assert_close(global_kl(paper), global_kl(white))


def test_the_mean_starts_as_the_projections():
    block, x = KEPSVGPAttention(12, 3, rank=4).double().eval(), torch.randn(2, 5, 12, dtype=torch.float64)
    tokens = block.project(x)
    projected = block.ksvd.project(*block.ksvd.features(tokens), tokens)
    torch.testing.assert_close(block.mean(tokens), (projected.e + projected.r) @ block.head_map)


def test_attention_matrix_is_cosine_of_queries_and_keys_and_padding_is_out_of_it():
    block, x = KEPSVGPAttention(12, 3, rank=4).double(), torch.randn(1, 5, 12, dtype=torch.float64)
    mask = torch.tensor([[False, False, False, True, True]])
    matrix = block.attention_matrix(x, key_padding_mask=mask)[0, 0].detach().numpy()
    q, k = (block.in_proj(x)[0, :, i : i + 4].detach().numpy() for i in (0, 12))
    expected = (q / np.linalg.norm(q, axis=1, keepdims=True)) @ (k / np.linalg.norm(k, axis=1, keepdims=True)).T
    expected[3:], expected[:, 3:] = 0, 0
    np.testing.assert_allclose(matrix, expected, atol=1e-12)


@pytest.mark.parametrize("loss", ["mean", "exact", "published"])
def test_ksvd_loss_is_weighted_and_registered_in_training_alone(loss):
    values = []
    for weight in (1.0, 10.0):
        torch.manual_seed(0)
        block, x = KEPSVGPAttention(12, 3, rank=4, ksvd_loss=loss, ksvd_weight=weight), torch.randn(2, 5, 12)
        block(x)
        values.append(added_losses(block)["ksvd"])
        block.eval()
        block._added_loss_terms["ksvd"] = None
        block(x)
        assert not added_losses(block)
    torch.testing.assert_close(10 * values[0], values[1])
    without = KEPSVGPAttention(12, 3, rank=4, ksvd_loss=None)
    without(torch.randn(2, 5, 12))
    assert not added_losses(without)


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
@pytest.mark.parametrize("loss", ["mean", "exact", "published"])
def test_ksvd_loss_can_leave_the_attention_matrix_alone(make, loss):
    gradients = {}
    for reaches in ("tokens", "projections"):
        torch.manual_seed(0)
        block = make(12, 3, rank=4, ksvd_loss=loss, ksvd_reaches=reaches).double()
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        block(x, key_padding_mask=padding)
        value = added_losses(block)["ksvd"]
        named = dict(block.named_parameters()) | {"x": x}
        found = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        gradients[reaches] = (
            {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None},
            value,
        )
    (full, first), (part, second) = gradients["tokens"], gradients["projections"]
    torch.testing.assert_close(first, second)  # the same loss
    assert "x" in full
    assert "in_proj.weight" in full
    assert part
    assert all(name.startswith("ksvd.weight") or "singular" in name for name in part)
    torch.testing.assert_close(part, {name: full[name] for name in part})  # and of what it reaches, the same gradient


@pytest.mark.parametrize("make", [KEPSVGPAttention, PrimalAttention])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank, num_landmarks: expected at least 1"),
        ({"num_landmarks": 0}, "rank, num_landmarks: expected at least 1"),
        ({"feature_map": "relu"}, "feature_map: expected one of"),
        ({"ksvd_loss": "sum"}, "ksvd_loss: expected None or one of"),
        ({"ksvd_weight": -1.0}, "ksvd_weight: expected at least 0"),
        ({"ksvd_reaches": "keys"}, "ksvd_reaches: expected one of"),
    ],
)
def test_bad_decompositions_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(12, 3, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branches": "q"}, "branches: expected one of"),
        ({"merge": "product"}, "merge: expected one of"),
        ({"merge": "concatenation"}, "num_tokens: expected the length of the sequences"),
        ({"initial_scale": 0.0}, "num_inducing, initial_scale: expected"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KEPSVGPAttention(12, 3, **options)
