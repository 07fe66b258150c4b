"""Draws in pairs: what cancels, what does not, and that each of them is a draw like any other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cgp import CGPAttention, KEPSVGPAttention, SGPAttention, SparseCGPAttention, predict
from cgp.conversion import convert
from cgp.model.antithetic import antithetic_draws
from cgp.model.blocks import sampling
from tests.cgp.conversion import hosts

BLOCKS = {
    "cgp": lambda: CGPAttention(8, 2),
    "cgp, softmax mean": lambda: CGPAttention(8, 2, mean="softmax", amplitude=1.0),
    "scgp": lambda: SparseCGPAttention(8, 2),
    "scgp, softmax mean": lambda: SparseCGPAttention(8, 2, mean="softmax", amplitude=1.0),
    "sgpa": lambda: SGPAttention(8, 2, num_inducing=3),
    "kep_svgp": lambda: KEPSVGPAttention(8, 2, rank=3),
}


class Chain(nn.Module):
    """Blocks one after another and an affine head: with a single block the logits are affine in its heads."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(-2))


@pytest.mark.parametrize("mode", ["marginal", "joint"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_pair_averages_to_the_posterior_mean(name, mode):
    model, x = Chain(BLOCKS[name]()).eval(), torch.randn(4, 5, 8)
    with torch.no_grad():
        expected = model(x)
        with sampling(model, mode):
            draws = torch.stack(antithetic_draws(model, lambda: model(x), 4))
    assert (draws - expected).abs().max() > 1e-2
    torch.testing.assert_close(draws[::2] + draws[1::2], 2 * expected.expand(2, 4, 3), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(draws[0], draws[2], atol=1e-3)


def test_deeper_blocks_have_the_opposite_noise_around_the_mean_of_their_own_input():
    blocks = [CGPAttention(8, 2, mean="softmax", amplitude=1.0) for _ in range(2)]
    model, x = Chain(*blocks).eval(), torch.randn(4, 5, 8)
    seen: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    for number, block in enumerate(blocks):
        block.out_proj.register_forward_pre_hook(lambda module, args, number=number: seen[number].append(args[0]))
    inputs: list[torch.Tensor] = []
    blocks[1].register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    with torch.no_grad(), sampling(model, "marginal"):
        antithetic_draws(model, lambda: model(x), 2)
    noise = []
    for below, heads in zip(list(inputs), list(seen[1]), strict=True):
        posterior = blocks[1].posterior(below)  # (B, h, s) vectors over the tokens
        columns = heads.unflatten(-1, (2, 4)).permute(0, 2, 3, 1)
        noise.append((columns - posterior.mean) / posterior.variance.sqrt())
    assert not torch.allclose(inputs[0], inputs[1], atol=1e-2)
    assert 0.8 < noise[0].std() < 1.2
    torch.testing.assert_close(noise[0], -noise[1], atol=1e-3, rtol=1e-3)


def test_the_first_of_a_pair_is_the_draw_of_that_seed_and_an_odd_one_stands_alone():
    model, x = convert(hosts.timm_vit().model, "cgp", "all", amplitude=0.5), torch.randn(3, 3, 16, 16)
    options = {"seed": 4, "keep_draws": True, "sampling": "joint"}
    plain = predict(model, x, 2, antithetic=False, **options).draws
    four = predict(model, x, 4, antithetic=True, **options).draws
    three = predict(model, x, 3, antithetic=True, **options).draws
    for drawn, expected in ((four[0], plain[0]), (four[2], plain[1])):
        torch.testing.assert_close(drawn, expected)
    assert torch.equal(three, four[:3])
    assert torch.equal(predict(model, x, 1, antithetic=True, **options).draws, four[:1])
    assert not torch.allclose(four[1], plain[1], atol=1e-4)


@pytest.mark.parametrize("num_samples", [2, 3])
def test_seeds_generators_and_batches(num_samples):
    model, x = Chain(BLOCKS["scgp"]()).eval(), torch.randn(2, 5, 8)
    state = torch.get_rng_state()
    options = {"antithetic": True, "keep_draws": True}
    runs = [predict(model, x, num_samples, generator=torch.Generator().manual_seed(4), **options) for _ in range(2)]
    assert torch.equal(runs[0].draws, runs[1].draws)
    assert torch.equal(torch.get_rng_state(), state)
    twice = predict(model, torch.cat([x, x]), num_samples, seed=0, batch_size=2, **options).draws
    assert not torch.allclose(twice[:, :2], twice[:, 2:], atol=1e-3)  # noise of its own for each batch


@pytest.mark.parametrize("num_samples", [6, 5])
def test_logits_from_a_gaussian_are_paired_too(num_samples):
    model, x = Chain(BLOCKS["scgp"]()).eval(), torch.randn(4, 5, 8)
    options = {"propagation": "linearised", "seed": 0, "keep_draws": True}
    logits = predict(model, x, num_samples, antithetic=True, **options).draws.log()
    pairs = logits[: num_samples // 2 * 2].unflatten(0, (-1, 2))
    with torch.no_grad():
        expected = model(x).expand(len(pairs), 4, 3)
    average = pairs.mean(1)  # up to a constant: these were probabilities
    centred = average - average.mean(-1, keepdim=True)
    torch.testing.assert_close(centred, expected - expected.mean(-1, keepdim=True), atol=1e-5, rtol=1e-5)
    assert len(logits) == num_samples


def test_blocks_are_themselves_again_and_gradients_pass():
    block = BLOCKS["cgp, softmax mean"]()
    model, x = Chain(block).eval(), torch.randn(2, 5, 8)
    with sampling(model, "joint"):
        draws = antithetic_draws(model, lambda: model(x), 2)
    assert "attend" not in vars(block)
    torch.stack(draws).square().mean().backward()
    assert block.softmax.log_amplitude.grad.abs().min() > 0


def test_averages_have_less_noise():
    model, x = convert(hosts.timm_vit().model, "cgp", [0], amplitude=0.3), torch.randn(6, 3, 16, 16)
    truth = predict(model, x, 2000, seed=99).logits
    errors = {
        antithetic: torch.stack([predict(model, x, 8, seed=s, antithetic=antithetic).logits for s in range(10)]) - truth
        for antithetic in (False, True)
    }
    assert errors[True].square().mean() < 0.5 * errors[False].square().mean()
