"""Huge tokens among ordinary ones, single or near each other, in float32: accurate results, or an error."""

import copy
from functools import partial

import pytest
import torch

from cgp import CGPAttention, KernelAttention, SparseCGPAttention
from tests.blocks import BLOCKS, CORRELATED

KINDS = {name: BLOCKS[name] for name in ("kernel", "sgpa", "sgpa_standard", *CORRELATED)}
KINDS |= {name: partial(CGPAttention, kernel=name) for name in ("matern12", "matern52", "rq")}
KINDS["kernel symmetric"] = partial(KernelAttention, symmetric=True)


def measure(block, x, ordinary):
    """Mean, variance and gradient at the ordinary tokens."""
    x = x.detach().requires_grad_()
    errors = []
    if getattr(block, "softmax", None) is None:  # softmax itself is PyTorch's, and a huge key takes all of its weight
        errors.append(block(x)[:, ordinary])
    if block.stochastic:
        errors.append(block.token_variance(x)[..., ordinary])
    (gradient,) = torch.autograd.grad(sum((y * y).sum() for y in errors), x)
    return [*errors, gradient[:, ordinary]]


@pytest.mark.parametrize(
    ("name", "scale", "huge"),
    [
        *((name, scale, huge) for name in KINDS for scale in (1e3, 1e4, 1e5) for huge in ([7], [3, 11, 20])),
        *((name, 1e5, list(range(0, 32, 3))) for name in KINDS),
        ("cgp", 1e5, [0]),
        ("cgp", 1e5, [0, 1]),
    ],
)
def test_huge_tokens_leave_the_others_their_digits(name, scale, huge):
    block, x = KINDS[name](32, 2).eval(), torch.randn(2, 32, 32)
    x[:, huge] *= scale
    ordinary = torch.tensor([token for token in range(32) if token not in huge])
    expected = measure(copy.deepcopy(block).double(), x.double(), ordinary)
    for single, double in zip(measure(block, x, ordinary), expected, strict=True):
        assert (single.double() - double).norm() < 1e-4 * double.norm()


@pytest.mark.parametrize("name", ["kernel symmetric", "sgpa", "sgpa_standard"])
@pytest.mark.parametrize("scale", [300.0, 1e3, 1e4])
@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_huge_tokens_that_are_near_each_other_keep_their_distances(name, scale, apart):
    """With one map for queries and keys; what remains is the rounding of the projected tokens themselves."""
    block = KINDS[name](32, 2).eval()
    x = (scale * torch.randn(2, 16, 32)).repeat(1, 2, 1) + apart * torch.randn(2, 32, 32)
    expected = measure(copy.deepcopy(block).double(), x.double(), slice(None))
    bound = 1e-5 if apart == 0.0 else 1e-5 + 4.0 * torch.finfo(torch.float32).eps * scale
    for single, double in zip(measure(block, x, slice(None)), expected, strict=True):
        assert (single.double() - double).norm() < bound * double.norm()


@pytest.mark.parametrize("name", ["cgp", "kernel symmetric", "sgpa", "sgpa_standard"])
def test_huge_tokens_whose_own_digits_decide_are_refused(name):
    block = KINDS[name](32, 2).eval()
    x = (1e6 * torch.randn(2, 16, 32)).repeat(1, 2, 1) + torch.randn(2, 32, 32)
    with pytest.raises(ValueError, match="points: expected sizes at which"):
        measure(block, x, slice(None))


@pytest.mark.parametrize("noise", [0.01, 1e-3])
@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_the_latent_hop_bears_tokens_that_are_all_equal(kernel, noise, scale):
    """Their Gram matrix is of rank one and large: float32 loses what the second hop takes from other directions."""
    torch.manual_seed(1)
    options = {"coupling": "latent", "mean": "kernel", "kernel": kernel, "noise": noise, "num_inducing": 32}
    block = SparseCGPAttention(32, 2, **options).eval()
    x = scale * torch.randn(1, 1, 32).expand(1, 33, 32)
    double = copy.deepcopy(block).double()
    result, exact = (b.gaussian(b.project(tokens)) for b, tokens in ((block, x), (double, x.double())))
    pairs = [(getattr(result, name), getattr(exact, name)) for name in ("mean", "variance", "log_evidence")]
    for single, expected in [*pairs, (result.joint().covariance, exact.joint().covariance)]:
        assert single.dtype == torch.float32
        assert (single.double() - expected).norm() < 2e-3 * expected.norm()
