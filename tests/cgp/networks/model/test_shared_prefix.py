"""Runs that share the layers below the first stochastic block."""

import types

import pytest
import torch
from torch import nn

import cgp
from cgp import (
    KEPSVGPAttention,
    SGPAttention,
    SharedInducingPoints,
    SoftmaxAttention,
    SparseCGPAttention,
    convert,
    predict,
)
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.model.structural_copy import structural_copy


class Counted(nn.Module):
    """Counts its calls, in all copies, and returns what a map of its input is."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.tally = types.SimpleNamespace(calls=0)  # which copies share

    def forward(self, x):
        self.tally.calls += 1
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
    return [module.tally.calls for module in modules]


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
    model, x = Model().double().train(), torch.randn(2, 3, 8, dtype=torch.float64)
    prefix = SharedPrefix(model, training=True)
    gradients = []
    for forward in (model, lambda x: prefix.run(lambda m: m(x))):
        torch.manual_seed(0)
        loss = sum(forward(x).square().sum() for _ in range(3))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(*gradients)
    assert calls(model.nested[0]) == [3 + 1]


class Counting(nn.Module):
    """Changes a buffer in every call, and what it returns by it."""

    def __init__(self):
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(self.attention(x)[:, 0]) + 0 * self.calls


def test_buffers_that_a_forward_pass_changes_are_those_of_the_copy():
    torch.manual_seed(0)
    model, x = convert(Counting().eval()), torch.randn(20, 4, 8)
    labels, plain = torch.arange(20) % 3, nn.Sequential(Counting()).eval()
    cgp.assess(model, [(x, labels)], num_samples=2, train=[(x + 1.0, labels)])
    cgp.calibrate(model, [(x, labels)], num_samples=2)
    cgp.with_held_out(model, [(x + 2.0, labels)], num_samples=2)
    predict(model, x, 4)
    cgp.Detector("Mahalanobis").fit(plain, x, train=[(x, labels)]).score(plain, x)
    predict(calibrated(plain, x, labels), x)
    assert model.calls == plain[0].calls == 0


def calibrated(model, x, labels):
    return cgp.calibrate(model, [(x, labels)], method="readout", train=[(x + 1.0, labels)]).model


class Around(nn.Module):
    """Attention inside a closure, which holds the layer that was there before; or skipped."""

    def __init__(self, skips=False):
        super().__init__()
        self.first, self.attention = nn.MultiheadAttention(8, 2, batch_first=True), None
        self.attention, self.head, self.skips = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3), skips
        held = self.attention
        self.attend = (lambda x: x) if skips else (lambda x: held(x, x, x)[0])

    def forward(self, x):
        return self.head(self.attend(self.first(x, x, x)[0])[:, 0])


@pytest.mark.parametrize("skips", [True, False])
def test_layers_that_never_run_are_refused_or_named(skips):
    """Their posterior adds nothing, which was reported as a finding; a factor of 215 was fitted."""
    torch.manual_seed(0)
    model, x, labels = Around(skips).eval(), torch.randn(30, 4, 8), torch.arange(30) % 3
    for call in (
        lambda m: predict(m, x, 4),
        lambda m: cgp.calibrate(m, [(x, labels)], num_samples=2),
        lambda m: cgp.assess(m, [(x, labels)], num_samples=2),
    ):
        with pytest.raises(ValueError, match=r"expected its stochastic layers to run, got none of attention\.gp"):
            call(convert(model))
        with pytest.warns(UserWarning, match=r"1 of 2 stochastic layers did not run: attention\.gp"):
            call(convert(model, layers="all", amplitude=0.2))


class Noisy(nn.Module):
    """Dropout that is a function call, which is never off."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(nn.functional.dropout(self.layer(x)[:, 0], 0.1))


@pytest.mark.filterwarnings("ignore:predict. one draw")
def test_networks_that_are_random_in_eval_are_noticed():
    torch.manual_seed(0)
    x, labels = torch.randn(30, 4, 8), torch.arange(30) % 3
    for model in (Noisy().eval(), convert(Noisy().eval(), amplitude=0.2)):
        for call in (
            lambda m: predict(m, x, 4),
            lambda m: cgp.assess(m, [(x, labels)], num_samples=2),
            lambda m: cgp.calibrate(m, [(x, labels)], method="temperature"),
        ):
            with pytest.warns(UserWarning, match="the model draws random numbers of its own in eval mode"):
                call(model)


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_drawn_and_not_used_are_no_randomness():
    class Drawing(Noisy):
        def forward(self, x):
            torch.rand(3)
            return self.head(self.layer(x)[:, 0])

    predict(convert(Drawing().eval(), amplitude=0.2), torch.randn(2, 4, 8), 2)
