"""Sharing what lies below the first stochastic block."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cgp import KEPSVGPAttention, SoftmaxAttention, SparseCGPAttention
from cgp.model.replay import SharedPrefix, replaced


class Counted(nn.Module):
    """Counts its calls and returns what a map of its input is."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.calls = scale, 0

    def forward(self, x):
        self.calls += 1
        return self.scale * x + 1


class Model(nn.Module):
    """Below, between and above the block; the first module is called again above it."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.below, self.nested = Counted(), nn.Sequential(Counted(), Counted(0.5))
        self.block, self.above, self.inplace = SparseCGPAttention(8, 2), Counted(), inplace

    def forward(self, x):
        x = self.nested(self.below(x) + self.below(2 * x))
        if self.inplace:
            x += 1
        return self.above(self.below(x + self.block(x)))


def record(model: nn.Module, x: torch.Tensor) -> tuple[SharedPrefix, torch.Tensor]:
    prefix = SharedPrefix(model)
    with torch.no_grad():
        return prefix, prefix.record(lambda: model(x))


def test_calls_before_the_block_are_replayed_and_later_ones_are_not():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert prefix.shares
    with torch.no_grad(), prefix.replaying():
        for _ in range(3):
            assert torch.equal(model(x), expected)
    assert [model.below.calls, model.nested[0].calls, model.above.calls] == [3 + 3, 1, 1 + 3]
    assert torch.equal(model(x), expected)  # and everything is as before
    assert model.nested[0].calls == 2


def test_an_output_changed_in_place_is_not_shared():
    model, x = Model(inplace=True).eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert not prefix.shares
    with torch.no_grad(), prefix.replaying(posterior=True):
        assert torch.equal(model(x), expected)
        assert torch.equal(model(x), expected)
    assert model.nested[0].calls == 3


def test_without_a_stochastic_block_everything_runs():
    model, x = nn.Sequential(Counted(), SoftmaxAttention(8, 2)).eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert prefix.first is None
    with torch.no_grad(), prefix.replaying(posterior=True):
        assert torch.equal(model(x), expected)
    assert model[0].calls == 2


def test_the_posterior_of_the_first_block_is_computed_once():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    prefix, _ = record(model, x)
    count = 0
    original = model.block.gaussian

    def gaussian(tokens):
        nonlocal count
        count += 1
        return original(tokens)

    model.block.sampling = "marginal"
    with replaced(model.block, "gaussian", gaussian), torch.no_grad(), prefix.replaying(posterior=True):
        one, two = model(x), model(x)
    assert count == 1
    assert not torch.equal(one, two)


@pytest.mark.parametrize(("mode", "expected"), [("marginal", 1), ("joint", 0)])
def test_draws_of_single_tokens_share_a_posterior_of_columns_too(mode, expected):
    torch.manual_seed(0)
    block, x = KEPSVGPAttention(8, 2, rank=3).eval(), torch.randn(2, 7, 8)
    prefix, _ = record(nn.Sequential(block), x)
    count, original = 0, block.gaussian

    def gaussian(tokens):
        nonlocal count
        count += 1
        return original(tokens)

    block.sampling = mode
    torch.manual_seed(1)
    with torch.no_grad():
        apart = [block(x) for _ in range(2)]
    torch.manual_seed(1)
    with replaced(block, "gaussian", gaussian), torch.no_grad(), prefix.replaying(posterior=True):
        together = [block(x) for _ in range(2)]
    assert count == expected
    torch.testing.assert_close(together, apart)


def test_hooks_of_the_model_run_on_what_is_replayed():
    model, x, seen = Model().eval(), torch.randn(2, 3, 8), []
    model.nested.register_forward_hook(lambda module, args, output: seen.append(output) or output + 1)
    prefix, expected = record(model, x)
    with torch.no_grad(), prefix.replaying():
        assert torch.equal(model(x), expected)
    assert torch.equal(seen[0], seen[1])


def test_a_run_that_fails_leaves_nothing_behind():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    with pytest.raises(RuntimeError, match="stop"), prefix.replaying():
        raise RuntimeError("stop")
    with pytest.raises(ValueError, match="query"):
        SharedPrefix(model).record(lambda: model(torch.randn(2, 3, 5)))
    assert torch.equal(model(x), expected)
    assert not any("forward" in vars(m) or "project" in vars(m) for m in model.modules())


def test_methods_replaced_by_others_come_back():
    model = Counted()
    model.forward = kept = lambda x: x  # as libraries that wrap a module's forward do
    with replaced(model, "forward", lambda x: -x):
        assert model(1) == -1
    assert model.forward is kept


def test_gradients_flow_through_what_is_not_shared():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    prefix, _ = record(model, x)
    model.block.sampling = "marginal"
    with prefix.replaying():
        model(x).sum().backward()
    assert model.block.inducing.points.grad.any()
    assert model.block.out_proj.weight.grad.any()
    assert model.block.in_proj.weight.grad is None  # its tokens were kept
