"""The table of a model's attention, the layout of its tokens, inducing inputs from data."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cgp import SparseCGPAttention, describe
from cgp.conversion import TokenLayout, convert, initialize_inducing, token_layout
from cgp.conversion.blocks import added_parameters
from cgp.conversion.inducing import most_informative
from cgp.functional.covariances import canonical
from cgp.model.blocks import attention_blocks
from tests.cgp.conversion import hosts


def test_the_table_says_what_stands_where():
    model = convert(convert(hosts.timm_vit().model, "cgp", [1]), "scgp", [2], num_inducing=5)
    lines = describe(model).splitlines()
    of_a_head = 2 * (3 + 8)  # noise, amplitude, lengthscale and gauge of two heads of width 8
    assert lines[1].split() == ["0", "blocks.0.attn", "Attention", "-", "0"]
    exact = ["1", "blocks.1.attn", "CGPAttention,", "softmax", "mean", "2", "×", "8", "-", str(of_a_head)]
    assert lines[2].split() == exact
    assert lines[3].split()[-2:] == ["5", str(2 * 5 * 8 + of_a_head)]
    assert lines[4].split() == ["total", str(2 * 5 * 8 + 2 * of_a_head)]


@pytest.mark.parametrize("options", [{}, {"statistics": "learned"}, {"num_inducing": 3}])
def test_added_parameters_are_those_of_the_whole_model(options):
    """Counted on the host, not on the block."""
    host = hosts.torchvision_vit().model
    converted = convert(host, "scgp", "all", **options)
    count = [sum(p.numel() for p in model.parameters()) for model in (converted, host)]
    assert sum(added_parameters(block) for block in attention_blocks(converted)) == count[0] - count[1]


def test_models_without_attention_have_no_table():
    with pytest.raises(ValueError, match="model: expected attention layers, got none in Linear"):
        describe(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (hosts.torchvision_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_qk_norm, TokenLayout(3, (4, 4))),
        (hosts.timm_deit, TokenLayout(2, (4, 4))),
        (hosts.transformers_vit, TokenLayout(1, (4, 4))),
        (hosts.transformers_dinov2_with_registers, TokenLayout(3, (4, 4))),
        (hosts.torch_encoder, TokenLayout(0, None)),
    ],
)
def test_layouts(make, expected):
    assert token_layout(make().model) == expected


def test_patches_lie_row_by_row():
    values = torch.arange(7.0).expand(2, 7)
    assert TokenLayout(1, None).patches(values, (2, 3))[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert TokenLayout(3, (9, 9)).patches(values).tolist() == [[[3, 4], [5, 6]]] * 2
    with pytest.raises(ValueError, match=r"grid: expected 6 patches \(7 tokens, 1 of them before"):
        TokenLayout(1, None).patches(values, (2, 2))
    with pytest.raises(ValueError, match="grid: expected 6 patches"):
        TokenLayout(1, None).patches(values)


def test_greedy_points_follow_the_pivots_of_a_dense_factorisation():
    """Against conditional variances by dense algebra in float64."""
    kernel, z = canonical("rbf"), torch.randn(2, 12, 3, dtype=torch.float64)
    chosen = most_informative(z, 4, kernel)
    for head in range(2):
        taken: list[int] = []
        for step in range(4):
            K = kernel.gram(z[head])
            left = K.diagonal().clone()
            if taken:
                L = torch.linalg.cholesky(K[taken][:, taken])
                left -= torch.linalg.solve_triangular(L, K[taken], upper=False).square().sum(0)
            taken.append(int(left.argmax()))
            assert torch.equal(chosen[head, step], z[head, taken[-1]])


def test_points_are_moved_when_nothing_is_left_to_explain():
    points = most_informative(torch.ones(1, 3, 2), 4, canonical("rbf"))
    assert torch.isfinite(points).all()
    assert len(points[0].unique(dim=0)) == 4


@pytest.mark.parametrize("mean", ["softmax", "kernel"])
def test_with_every_query_and_key_among_them_the_sparse_variance_is_exact(mean):
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    host = nn.MultiheadAttention(16, 2, batch_first=True).double()
    exact = convert(host, "cgp", mean=mean)
    sparse = convert(host, "scgp", mean=mean, num_inducing=10, inputs=(x, x, x))
    reference, chosen = (attention_blocks(model)[0].token_variance(x) for model in (exact, sparse))
    torch.testing.assert_close(chosen, reference, rtol=1e-3, atol=1e-6)


def test_padding_is_no_candidate_and_modes_are_kept():
    host = hosts.transformers_bert()
    model = convert(host.model, "scgp", num_inducing=8).train()
    model.dropout.eval()
    initialize_inducing(model, host.inputs)
    assert model.training
    assert not model.dropout.training
    block = attention_blocks(model)[0]
    model.eval()
    torch.manual_seed(0)
    initialize_inducing(model, host.inputs)
    first = block.inducing.points.clone()
    poisoned = {**host.inputs, "input_ids": host.inputs["input_ids"].clone()}
    poisoned["input_ids"][poisoned["attention_mask"] == 0] = 7
    torch.manual_seed(0)
    initialize_inducing(model, poisoned)
    torch.testing.assert_close(block.inducing.points, first, rtol=1e-4, atol=1e-5)


def test_choosing_drops_frozen_factors():
    block = SparseCGPAttention(8, 2, num_inducing=3).eval()
    block.freeze()
    initialize_inducing(block, torch.randn(2, 5, 8))
    assert block.frozen_factor("whitening") is None
