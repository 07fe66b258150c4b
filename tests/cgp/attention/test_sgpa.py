"""SGPA blocks under the contract, both parts of their divergence, and travelling points."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from cgp import CategoricalLikelihood, Objective
from cgp.attention import KernelAttention
from cgp.attention.sgpa import SGPAttention, StandardSGPAttention
from cgp.attention.shared_inducing import SharedInducingPoints
from cgp.networks.model.blocks import added_losses, clear_added_losses, freeze, global_kl, sampling
from tests.contracts.attention_contract import GaussianProcessContract


class TestDecoupled(GaussianProcessContract):
    attention, columns_share = partial(SGPAttention, num_inducing=5), False


class TestDecoupledExponential(GaussianProcessContract):
    attention, columns_share = partial(SGPAttention, num_inducing=5, kernel="exponential"), False
    is_variant = True

    def check_finite(self, x):
        if x.abs().max() < 100:  # the exponential of large products overflows by nature
            super().check_finite(x)


class TestStandard(GaussianProcessContract):
    attention = StandardSGPAttention


def travelling_stack(depth: int = 2) -> SharedInducingPoints:
    layers = nn.ModuleList(Residual() for _ in range(depth))
    return SharedInducingPoints(nn.Sequential(*layers), layers).double()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SGPAttention(8, 2, num_inducing=4, inducing="travel")
        nn.init.normal_(self.attention.variational_strategy.variational_mean)
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5))

    def forward(self, x):
        hidden = x + self.attention(x)
        return hidden + self.mlp(hidden)


def test_mean_of_the_standard_form_is_symmetric_kernel_attention():
    block = StandardSGPAttention(8, 2, initial_outputscale=1.0).eval()
    plain = KernelAttention(8, 2, symmetric=True)
    plain.load_state_dict({k: v for k, v in block.state_dict().items() if "proj" in k})
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(block(x), plain(x))


def explicit_divergence(block, tokens, index) -> torch.Tensor:
    """KL of the posterior of one head of one sequence at the points that carry it, by dense matrices."""
    K, v = block.kernel.gram(tokens.k)[index], tokens.v[index]
    if isinstance(block, StandardSGPAttention):
        covariance = block.gaussian(tokens).joint().covariance[index]
        prior = MultivariateNormal(torch.zeros(len(K), dtype=K.dtype), K)
        return sum(kl_divergence(MultivariateNormal(K @ column, covariance), prior) for column in v.mT)
    keys = block.global_keys()
    T = (keys.whitening @ block.kernel.gram(keys.points, tokens.k))[index]
    return 0.5 * torch.einsum("ic,ij,jc->", v, K - T.mT @ T, v)


@pytest.mark.parametrize("make", [SGPAttention, StandardSGPAttention])
def test_the_sequences_divergence_is_a_mean_over_batch_a_sum_over_heads(make):
    """Against explicit divergences of each head of each sequence; without weight none is computed."""
    block, x = make(8, 2, sequence_weight=0.3).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    block(x)
    tokens = block.project(x)
    total = sum(explicit_divergence(block, tokens, (sequence, head)) for sequence in range(3) for head in range(2))
    torch.testing.assert_close(added_losses(block)["kl"], 0.3 * total / 3, rtol=1e-6, atol=1e-8)
    clear_added_losses(block)
    block.sequence_weight = 0.0
    block(x)
    assert not added_losses(block)


def test_the_global_divergence_is_summed_over_heads_and_columns():
    block = SGPAttention(8, 2, num_inducing=4)
    with torch.no_grad():
        block.variational_strategy.raw_root.copy_(torch.diag_embed(torch.ones(2, 4, 4).expm1().log()))  # softplus: one
    torch.testing.assert_close(global_kl(block), torch.zeros(()), atol=1e-5, rtol=0)
    nn.init.ones_(block.variational_strategy.variational_mean)
    torch.testing.assert_close(global_kl(block), torch.tensor(0.5 * 8 * 4), atol=1e-5, rtol=0)


def test_points_travel_by_the_mean_and_depend_only_on_weights():
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


def test_travelling_points_compile_and_freeze_with_the_whole_model():
    torch._dynamo.reset()
    model, block = travelling_stack().eval(), SGPAttention(8, 2, num_inducing=4).double()
    whole, x = nn.Sequential(model, block).eval(), torch.randn(2, 5, 8, dtype=torch.float64)
    before = whole(x), block.token_variance(x)
    torch.testing.assert_close(torch.compile(whole, fullgraph=True, backend="eager")(x), before[0])
    assert set(block.weight_factors()) == {"points", "factor", "whitening"}
    freeze(whole)
    attention = model.model[1].attention
    assert attention.frozen_factor("points") is not None
    assert block.is_frozen
    torch.testing.assert_close((whole(x), block.token_variance(x)), before)
    model.train()
    assert not attention.is_frozen


def test_points_that_should_travel_and_do_not_are_missed():
    block = SGPAttention(8, 2, num_inducing=4, inducing="travel")
    with pytest.raises(ValueError, match="inducing: 'travel' expects the model inside SharedInducingPoints"):
        block(torch.zeros(1, 5, 8))
    with pytest.raises(ValueError, match="layers: expected an SGPAttention"):
        SharedInducingPoints(nn.Linear(8, 8), [nn.Linear(8, 8)])
    other = SGPAttention(8, 2, num_inducing=5, inducing="travel")
    with pytest.raises(ValueError, match=r"layers: expected blocks of one num_inducing .* \[\(4, 8\), \(5, 8\)\]"):
        SharedInducingPoints(nn.Sequential(block, other), [block, other])


def test_a_precision_of_zero_has_a_finite_gradient():
    """Steps of size one drove it there: the loss stayed finite, and the gradient of its square root was NaN."""
    block, x = StandardSGPAttention(8, 2), torch.randn(3, 5, 8)
    nn.init.constant_(block.precision_offset, -200.0)
    (block(x).square().sum() + added_losses(block)["kl"]).backward()
    assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)
