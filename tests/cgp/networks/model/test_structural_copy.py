"""Copies that share tensors, and runs that share the layers below the first stochastic block."""

import functools
import sys
import threading

import pytest
import torch
from torch import nn

from cgp import KEPSVGPAttention, SGPAttention, SharedInducingPoints, SoftmaxAttention, SparseCGPAttention
from cgp.networks.model.structural_copy import SharedPrefix, structural_copy, uncompiled


class Counted(nn.Module):
    """Counts its calls, in all copies, and returns what a map of its input is."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

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


@torch.no_grad()
def run(prefix: SharedPrefix, x: torch.Tensor) -> torch.Tensor:
    return prefix.run(lambda model: model(x))


def record(model: nn.Module, x: torch.Tensor) -> tuple[SharedPrefix, torch.Tensor]:
    prefix = SharedPrefix(model)
    return prefix, run(prefix, x)


def calls(*modules: Counted) -> list[int]:
    return [int(module.calls) for module in modules]


class Entangled(nn.Module):
    """Holds its modules in every way that is found in libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.tied = self.linear
        self.listed, self.paired, self.named = [self.linear], (self.other,), {"linear": self.linear}
        self.bound, self.partial = self.linear.forward, functools.partial(nn.Module.__call__, self.other)
        self.linear.forward = functools.partial(type(self.linear).forward, self.linear)
        self.other.register_forward_hook(self.hook)
        self.seen: list[torch.Tensor] = []

    def hook(self, module, args, output):
        self.seen.append(output)

    def forward(self, x):
        return self.partial(self.bound(self.listed[0](x))) + self.paired[0](self.named["linear"](x))


def test_references_stay_within_the_copy():
    model, x = Entangled().train(), torch.randn(2, 3)
    before = [dict(vars(module)) for module in model.modules()]
    copy = structural_copy(model)
    assert torch.equal(copy(x), model(x))
    assert len(copy.seen) == len(model.seen) == 2  # hooks that are methods write to their own copy
    assert copy.training
    assert copy.tied is copy.linear is copy.listed[0] is copy.named["linear"] is copy.bound.__self__
    assert copy.linear is not model.linear
    assert all(a is b for a, b in zip(copy.parameters(), model.parameters(), strict=True))
    copy.eval()
    copy.linear.forward = lambda x: 0 * x
    del model.seen[:]
    assert [dict(vars(module)) for module in model.modules()] == before
    assert model.training
    assert torch.equal(copy(x), copy.partial(copy.bound(0 * x)) + copy.other(0 * x))


def test_wrappers_come_off():
    inner = nn.Sequential(nn.Linear(2, 2))
    whole = nn.Sequential(torch.compile(inner, backend="eager"), nn.ReLU())
    whole.compile(backend="eager")
    copy = structural_copy(whole)
    assert type(copy[0]) is nn.Sequential
    assert copy._compiled_call_impl is None
    assert uncompiled(nn.DataParallel(torch.compile(inner, backend="eager"))) is inner
    scripted = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    assert structural_copy(scripted)[0] is scripted[0]


def test_travelling_points_travel_in_the_copy():
    layers = nn.Sequential(*(SGPAttention(8, 2, num_inducing=4, inducing="travel") for _ in range(2)))
    model, x = SharedInducingPoints(layers, layers).eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        assert torch.equal(structural_copy(model)(x), model(x))
    prefix, expected = record(model, x)
    assert torch.equal(run(prefix, x), expected)


def test_calls_before_the_block_are_replayed_and_later_ones_are_not():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert prefix.shares
    for _ in range(3):
        assert torch.equal(run(prefix, x), expected)
    assert calls(model.below, model.nested[0], model.above) == [3 + 3, 1, 1 + 3]
    assert torch.equal(model(x), expected)  # and the model runs as before
    assert calls(model.nested[0]) == [2]


def test_an_output_changed_in_place_is_not_shared():
    model, x = Model(inplace=True).eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert not prefix.shares
    assert prefix.posterior is None
    for _ in range(2):
        assert torch.equal(run(prefix, x), expected)
    assert calls(model.nested[0]) == [3]


def test_without_a_stochastic_block_everything_runs():
    model, x = nn.Sequential(Counted(), SoftmaxAttention(8, 2)).eval(), torch.randn(2, 3, 8)
    prefix, expected = record(model, x)
    assert prefix.first is None
    assert torch.equal(run(prefix, x), expected)
    assert calls(model[0]) == [2]


@pytest.mark.parametrize("mode", ["marginal", "joint"])
def test_draws_share_the_posterior_of_the_first_block(mode):
    block, x = KEPSVGPAttention(8, 2, rank=3).eval(), torch.randn(2, 7, 8)
    prefix, _ = record(nn.Sequential(block), x)
    prefix.set_sampling(mode)
    assert block.sampling == "mean"
    block.sampling = mode
    torch.manual_seed(1)
    with torch.no_grad():
        apart = [block(x) for _ in range(2)]
    torch.manual_seed(1)
    torch.testing.assert_close([run(prefix, x) for _ in range(2)], apart)
    assert prefix.posterior.posterior is not None


@pytest.mark.parametrize("mode", ["marginal", "joint"])
def test_a_kept_posterior_scales_as_its_amplitude_does(mode):
    block = SparseCGPAttention(8, 2, mean="softmax", amplitude=0.2).eval()
    x = torch.randn(2, 5, 8)
    prefix, _ = record(block, x)
    prefix.set_sampling(mode)
    prefix.posterior.factor = 3.0
    torch.manual_seed(1)
    scaled = run(prefix, x)
    with torch.no_grad():
        block.softmax.log_amplitude += torch.tensor(3.0).log()
        block.sampling = mode
        torch.manual_seed(1)
        torch.testing.assert_close(scaled, block(x))


def test_hooks_of_the_model_run_on_replayed_outputs():
    model, x, seen = Model().eval(), torch.randn(2, 3, 8), []
    model.nested.register_forward_hook(lambda module, args, output: seen.append(output) or output + 1)
    prefix, expected = record(model, x)
    assert torch.equal(run(prefix, x), expected)
    assert torch.equal(seen[0], seen[1])


def test_a_run_that_fails_leaves_the_model_alone():
    model, x = Model().eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = model(x)
        with pytest.raises(ValueError, match="query"):
            record(model, torch.randn(2, 3, 5))
        assert torch.equal(model(x), expected)
    assert not any("forward" in vars(m) or "attend" in vars(m) for m in model.modules())


def test_gradients_flow_through_shared_layers():
    model, x = Model().train(), torch.randn(2, 3, 8)
    prefix = SharedPrefix(model, training=True)
    gradients = []
    for forward in (model, lambda x: prefix.run(lambda m: m(x))):
        torch.manual_seed(0)
        loss = sum(forward(x).square().sum() for _ in range(3))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(*gradients)
    assert calls(model.nested[0]) == [3 + 1]


def test_a_model_is_copied_while_another_thread_changes_its_attributes():
    """As a training step does; before, an iteration over them failed now and then."""
    model, stop = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))), threading.Event()

    def change():
        while not stop.is_set():
            for module in model:
                module.passing = module._buffers["passing"] = None
                del module.passing

    interval, thread = sys.getswitchinterval(), threading.Thread(target=change)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(200):
            assert structural_copy(model)[0].weight is model[0].weight
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
