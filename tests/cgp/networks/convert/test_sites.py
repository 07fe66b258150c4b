"""The table of a model's attention, and inducing inputs from data."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cgp import SparseCGPAttention
from cgp.functional.kernels import canonical
from cgp.networks.convert import convert, describe
from cgp.networks.model.inducing import initialize_inducing, most_informative
from tests.cgp.networks.convert import hosts


def test_the_table_lists_every_attention():
    host = hosts.timm_vit()
    model = convert(convert(host.model, layers=[1]), "sparse_cgp", [2], num_inducing=5, inputs=host.inputs)
    model.blocks[0].attn.__class__ = type("Attention", (nn.Module,), {"forward": lambda self, x: self.proj(x)})
    lines = [line.split("  ") for line in describe(model).splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[1][:2] == ["0", "blocks.0.attn"]
    assert cells[1][2].startswith("Attention, cannot be converted: not softmax attention")
    assert cells[2] == ["1", "blocks.1.attn", "Attention, cgp", "2", "6"]
    of_points = 2 * 5 * 8
    assert cells[3] == ["2", "blocks.2.attn", "Attention, sparse_cgp, 5 inducing inputs", "2", str(of_points + 6)]
    assert cells[4] == ["total", str(of_points + 12)]


def test_models_without_attention_have_no_table():
    with pytest.raises(ValueError, match="model: expected attention layers, got none in Linear"):
        describe(nn.Linear(2, 2))


def test_greedy_points_follow_the_pivots_of_a_dense_factorisation():
    """Against conditional variances by dense algebra in float64."""
    kernel, z = canonical("rbf"), torch.randn(2, 12, 3, dtype=torch.float64)
    chosen = most_informative(z, 4, kernel)
    for head in range(2):
        taken: list[int] = []
        for step in range(4):
            K = kernel.gram(z[head])
            remaining = K.diagonal().clone()
            if taken:
                L = torch.linalg.cholesky(K[taken][:, taken])
                remaining -= torch.linalg.solve_triangular(L, K[taken], upper=False).square().sum(0)
            taken.append(int(remaining.argmax()))
            assert torch.equal(chosen[head, step], z[head, taken[-1]])


def test_points_are_moved_when_nothing_is_left_to_explain():
    points = most_informative(torch.ones(1, 3, 2), 4, canonical("rbf"))
    assert torch.isfinite(points).all()
    assert len(points[0].unique(dim=0)) == 4


def test_padding_is_no_candidate_and_modes_are_kept():
    host = hosts.transformers_bert()
    model = convert(host.model, "sparse_cgp", num_inducing=8, inputs=host.inputs).train()
    model.dropout.eval()
    heads = model.bert.encoder.layer[-1].attention.self.gp

    def chosen(inputs):
        torch.manual_seed(0)
        initialize_inducing(model, inputs)
        return heads.inducing.detach().clone()

    first = chosen(host.inputs)
    assert model.training
    assert not model.dropout.training
    poisoned = {**host.inputs, "input_ids": host.inputs["input_ids"].clone()}
    poisoned["input_ids"][poisoned["attention_mask"] == 0] = 7
    torch.testing.assert_close(chosen(poisoned), first, rtol=1e-4, atol=1e-5)


def test_layers_that_do_not_attend_have_no_inducing_inputs():
    model = nn.ModuleList([hosts.Own(), hosts.Own()])
    model.forward = lambda x: model[0](x)
    with pytest.raises(ValueError, match="inputs: expected a batch for which 1.gp attends"):
        convert(model, "sparse_cgp", inputs=torch.randn(3, 7, 16))


def test_choosing_drops_frozen_factors():
    block = SparseCGPAttention(8, 2, num_inducing=3).eval()
    block.freeze()
    initialize_inducing(block, torch.randn(2, 5, 8))
    assert block.frozen_factor("whitening") is None
