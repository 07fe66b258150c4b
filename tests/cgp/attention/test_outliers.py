"""One huge token among ordinary ones: in float32 it must not spoil the others."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch

from cgp import CGPAttention, KernelAttention, SGPAttention, SparseCGPAttention
from cgp.attention import StandardSGPAttention

BLOCKS = {
    "direct": CGPAttention,
    "latent": partial(CGPAttention, coupling="latent"),
    "matern52": partial(CGPAttention, kernel="matern52"),
    "softmax": partial(CGPAttention, mean="softmax"),
    "sparse": partial(SparseCGPAttention, num_inducing=8),
    "sparse latent": partial(SparseCGPAttention, num_inducing=8, coupling="latent"),
    "sparse softmax": partial(SparseCGPAttention, num_inducing=8, mean="softmax"),
    "kernel": KernelAttention,
    "sgpa": partial(SGPAttention, num_inducing=8),
    "standard sgpa": StandardSGPAttention,
}


def measure(block, x, ordinary):
    """Mean, variance and gradient at the ordinary tokens."""
    x = x.detach().requires_grad_()
    found = []
    if getattr(block, "softmax", None) is None:  # softmax itself is PyTorch's, and a huge key takes all of its weight
        found.append(block(x)[:, ordinary])
    if block.stochastic:
        found.append(block.token_variance(x)[..., ordinary])
    (gradient,) = torch.autograd.grad(sum((y * y).sum() for y in found), x)
    return [*found, gradient[:, ordinary]]


def relative(single, double):
    return ((single.double() - double).norm() / double.norm()).item()


@pytest.mark.parametrize("scale", [1e3, 1e4, 1e5])
@pytest.mark.parametrize("name", BLOCKS)
def test_one_huge_token_leaves_the_others_their_digits(name, scale):
    torch.manual_seed(0)
    block = BLOCKS[name](32, 2).eval()
    x = torch.randn(2, 32, 32)
    x[:, 7] *= scale
    ordinary = torch.arange(32) != 7
    expected = measure(copy.deepcopy(block).double(), x.double(), ordinary)
    try:
        found = measure(block, x, ordinary)
    except ValueError:
        return
    for single, double in zip(found, expected, strict=True):
        assert relative(single, double) < 1e-4


@pytest.mark.parametrize("count", [1, 2])
def test_a_few_huge_tokens_do_not_move_the_centre(count):
    block = CGPAttention(32, 2).eval()
    x = torch.randn(2, 32, 32)
    x[:, :count] *= 1e5
    ordinary = torch.arange(32) >= count
    expected = measure(copy.deepcopy(block).double(), x.double(), ordinary)
    for single, double in zip(measure(block, x, ordinary), expected, strict=True):
        assert relative(single, double) < 1e-4
