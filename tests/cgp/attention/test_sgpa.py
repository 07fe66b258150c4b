"""SGPA blocks under the contract, their two channels of divergence, and points that travel."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cgp import CategoricalLikelihood, Objective
from cgp.attention import KernelAttention, SparseCGPAttention
from cgp.attention.sgpa import SGPAttention
from cgp.attention.shared_inducing import SharedInducingPoints
from cgp.model.blocks import added_losses, clear_added_losses, freeze, global_kl, sampling
from models import DIGITS, VisionTransformer
from tests.contracts.attention_contract import GaussianProcessContract
from tests.contracts.columnwise_contract import ColumnwiseContract


class TestDecoupled(ColumnwiseContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SGPAttention(embed_dim, num_heads, num_inducing=5, **options)


class TestDecoupledExponential(ColumnwiseContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SGPAttention(embed_dim, num_heads, num_inducing=5, kernel="exponential", **options)

    def check_finite(self, x):
        if x.abs().max() < 100:  # the exponential of large products overflows by nature
            super().check_finite(x)


class TestStandardSites(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SGPAttention(embed_dim, num_heads, mode="standard", **options)


class TestStandardTriangular(GaussianProcessContract):
    is_equivariant = True  # of the mean, which eval returns

    def make(self, embed_dim=12, num_heads=3, **options):
        return SGPAttention(embed_dim, num_heads, mode="standard", amortisation="triangular", **options)


def travelling_stack(depth: int = 2) -> SharedInducingPoints:
    layers = nn.ModuleList(Residual() for _ in range(depth))
    return SharedInducingPoints(nn.Sequential(*layers), layers, num_inducing=4, embed_dim=8).double()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SGPAttention(8, 2, num_inducing=4, inducing="travel")
        with torch.no_grad():
            self.attention.variational_strategy.variational_mean.normal_()
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5))

    def forward(self, x):
        hidden = x + self.attention(x)
        return hidden + self.mlp(hidden)


def test_mean_in_the_standard_mode_is_symmetric_kernel_attention():
    block = SGPAttention(8, 2, mode="standard", initial_outputscale=1.0).eval()
    plain = KernelAttention(8, 2, symmetric=True)
    plain.load_state_dict({k: v for k, v in block.state_dict().items() if "proj" in k})
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(block(x), plain(x))


@pytest.mark.parametrize("mode", ["decoupled", "standard"])
def test_the_two_channels_of_the_divergence_scale_as_they_should(mode):
    """Doubling the data set halves the global channel and leaves the sequences' as it is."""
    block = SGPAttention(8, 2, mode=mode, num_inducing=4)
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(40, 3))
    x, y = torch.randn(6, 5, 8), torch.arange(6) % 3
    block.sampling = "mean"  # the likelihood is the same in both
    parts = [Objective(model, CategoricalLikelihood(3), num_data=n).parts(x, y) for n in (10, 20)]
    torch.testing.assert_close(parts[0]["kl"], parts[1]["kl"])
    assert (parts[0]["global_kl"] > 0) == (mode == "decoupled")
    torch.testing.assert_close(parts[0]["loss"] - parts[1]["loss"], parts[0]["global_kl"] / 20)


def test_the_sequences_divergence_is_averaged_over_the_batch_and_summed_over_heads():
    block, x = SGPAttention(8, 2, num_inducing=4).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    values = []
    for batch in (x, x[:1], x[1:2], x[2:]):
        block(batch)
        values.append(added_losses(block)["kl"])
        clear_added_losses(block)
    torch.testing.assert_close(values[0], torch.stack(values[1:]).mean())


def test_the_sequences_divergence_can_be_weighted_alone():
    block, x = SGPAttention(8, 2, num_inducing=4), torch.randn(3, 5, 8)
    values = []
    for block.sequence_weight in (1.0, 0.01):
        block(x)
        values.append(added_losses(block)["kl"])
    torch.testing.assert_close(0.01 * values[0], values[1])


def test_the_global_divergence_is_summed_over_heads_and_columns():
    block = SGPAttention(8, 2, num_inducing=4, initial_scale=1.0)
    torch.testing.assert_close(global_kl(block), torch.zeros(()), atol=1e-5, rtol=0)
    with torch.no_grad():
        block.variational_strategy.variational_mean.fill_(1.0)
    torch.testing.assert_close(global_kl(block), torch.tensor(0.5 * 8 * 4), atol=1e-5, rtol=0)


def test_points_travel_by_the_mean_and_depend_on_weights_alone():
    """Each layer's keys are the points after the layers below, computed here by hand."""
    model = travelling_stack().train()
    first, second = model.model
    points, seen = model.inducing_points, []
    second.attention.register_forward_pre_hook(lambda m, inputs: seen.append(m._travelled))
    with sampling(model, "mean"):
        model(torch.randn(3, 5, 8, dtype=torch.float64))
    keys = first.attention._locate(points)
    mean = keys.factor @ first.attention.variational_strategy.variational_mean.mT
    hidden = points + first.attention.out_proj(mean.transpose(-2, -3).flatten(-2))
    carried = hidden + torch.tanh(first.mlp[0](hidden))  # without dropout, although the model trains
    torch.testing.assert_close(seen[1].points, second.attention._locate(carried).points)
    assert first.mlp[2].training
    assert first.attention._travelled is None


def test_travelling_points_get_a_gradient_and_survive_copies():
    model = travelling_stack()
    head = nn.Sequential(model, nn.Flatten(), nn.Linear(40, 3).double())
    objective = Objective(head, CategoricalLikelihood(3), num_data=10)
    objective(torch.randn(3, 5, 8, dtype=torch.float64), torch.arange(3)).backward()
    assert not [name for name, p in head.named_parameters() if p.grad is None or not p.grad.any()]
    twin, x = copy.deepcopy(model).eval(), torch.randn(2, 5, 8, dtype=torch.float64)
    assert torch.equal(twin(x), model.eval()(x))


def test_travelling_points_compile_and_freeze():
    torch._dynamo.reset()
    model, x = travelling_stack().eval(), torch.randn(2, 5, 8, dtype=torch.float64)
    before = model(x)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(x), before)
    model.freeze()
    assert model.model[1].attention.frozen_factor("points") is not None
    torch.testing.assert_close(model(x), before)
    model.train()
    assert model.model[1].attention.frozen_factor("points") is None


def test_freezing_a_whole_model_reaches_travelling_points():
    model, x = (
        nn.Sequential(travelling_stack(), SparseCGPAttention(8, 2, num_inducing=4).double()).eval(),
        torch.randn(2, 5, 8),
    )
    before = model(x.double())
    freeze(model)
    assert model[0].model[1].attention.is_frozen
    assert model[1].is_frozen
    torch.testing.assert_close(model(x.double()), before)


def test_frozen_factors_change_nothing():
    block, x = SGPAttention(8, 2, num_inducing=4).eval(), torch.randn(2, 5, 8)
    before = block(x), block.token_variance(x)
    freeze(block)
    assert set(block.weight_factors()) == {"points", "factor", "whitening"}
    assert torch.equal(before[0], block(x))
    assert torch.equal(before[1], block.token_variance(x))


def test_points_travel_through_the_vision_transformer():
    def attention(d, h):
        return SGPAttention(d, h, num_inducing=4, inducing="travel")

    model = VisionTransformer(**DIGITS, num_classes=10, attention=attention)
    model = SharedInducingPoints(model, model.layers, num_inducing=4, embed_dim=DIGITS["embed_dim"])
    objective = Objective(model, CategoricalLikelihood(10), num_data=100, num_samples=2)
    objective(torch.rand(3, 1, 8, 8), torch.arange(3)).backward()
    assert model.inducing_points.grad.any()


def test_points_that_should_travel_and_do_not_are_missed():
    block = SGPAttention(8, 2, num_inducing=4, inducing="travel")
    with pytest.raises(ValueError, match="inducing: 'travel' expects the model inside SharedInducingPoints"):
        block(torch.zeros(1, 5, 8))
    with pytest.raises(ValueError, match="layers: expected an SGPAttention"):
        SharedInducingPoints(nn.Linear(8, 8), [nn.Linear(8, 8)], num_inducing=4, embed_dim=8)
    with pytest.raises(ValueError, match=r"num_inducing: expected that of the blocks, \[4\], got 5"):
        SharedInducingPoints(block, [block], num_inducing=5, embed_dim=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sparse"}, "mode: expected one of"),
        ({"inducing": "random"}, "inducing: expected one of"),
        ({"kernel": "matern12"}, "kernel: expected one of"),
        ({"mode": "standard", "amortisation": "none"}, "amortisation: expected one of"),
        ({"num_inducing": 0}, "num_inducing, initial_scale: expected at least 1"),
        ({"initial_scale": 0.0}, "num_inducing, initial_scale: expected"),
        ({"sequence_weight": -1.0}, "sequence_weight: expected at least 0"),
        ({"initial_outputscale": -1.0}, "initial_outputscale: expected a positive number"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SGPAttention(8, 2, **options)
