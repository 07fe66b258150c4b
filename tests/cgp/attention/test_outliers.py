"""One huge token among ordinary ones: in float32 it must not spoil the others."""

import copy
from functools import partial

import pytest
import torch

from cgp import CGPAttention
from tests.blocks import BLOCKS, CORRELATED

KINDS = {name: BLOCKS[name] for name in ("kernel", "sgpa", "sgpa standard", *CORRELATED)}
KINDS["matern52"] = partial(CGPAttention, kernel="matern52")


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


@pytest.mark.parametrize(
    ("name", "scale", "huge"),
    [
        *((name, scale, [7]) for name in KINDS for scale in (1e3, 1e4, 1e5)),
        ("exact", 1e5, [0]),
        ("exact", 1e5, [0, 1]),
    ],
)
def test_huge_tokens_leave_the_others_their_digits(name, scale, huge):
    block, x = KINDS[name](32, 2).eval(), torch.randn(2, 32, 32)
    x[:, huge] *= scale
    ordinary = torch.tensor([token for token in range(32) if token not in huge])
    expected = measure(copy.deepcopy(block).double(), x.double(), ordinary)
    try:
        found = measure(block, x, ordinary)
    except ValueError:
        return
    for single, double in zip(found, expected, strict=True):
        assert (single.double() - double).norm() < 1e-4 * double.norm()
