"""Options for which a block raises."""

import copy

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import cgp


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (cgp.CGPAttention, {"coupling": "two"}, "coupling: expected one of"),
        (cgp.CGPAttention, {"objective": "map"}, r"objective: expected one of \(None, 'marginal'"),
        (cgp.CGPAttention, {"noise": 0.0}, "noise: expected a variance of at least 1e-06, got 0.0"),
        (cgp.CGPAttention, {"noise": float("nan")}, "noise: expected"),
        (cgp.CGPAttention, {"kernel": "cosine"}, "kernel: expected one of .* got 'cosine'$"),
        (cgp.KernelAttention, {"kernel": "rfb"}, r"kernel: .* got 'rfb'; did you mean 'rbf'\?"),
        (cgp.CGPAttention, {"mean": "median"}, r"mean: expected one of \('regression', 'kernel', 'softmax'\), got 'me"),
        (cgp.CGPAttention, {"amplitude": -0.1}, "amplitude: expected a positive number, got -0.1"),
        (cgp.CGPAttention, {"mean": "softmax", "coupling": "latent"}, "mean: 'softmax' needs coupling='direct'"),
        (cgp.CGPAttention, {"mean": "softmax", "objective": "marginal"}, "mean: 'softmax' needs"),
        (cgp.CGPAttention, {"mean": "softmax", "amplitude": 0.0}, "amplitude: expected a positive"),
        (cgp.SparseCGPAttention, {"num_inducing": 0}, "num_inducing: expected at least 1, got 0"),
        (cgp.SparseCGPAttention, {"approximation": "fitc"}, "approximation: expected one of"),
        (cgp.SparseCGPAttention, {"mean": "softmax", "approximation": "sor"}, "approximation: mean='softmax' needs"),
        (cgp.SparseCGPAttention, {"mean": "kernel", "coupling": "latent", "amplitude": 9.0}, "amplitude"),
        (cgp.CGPAttention, {"mean": "kernel", "objective": "joint", "amplitude": 9.0}, "amplitude"),
        (cgp.CGPAttention, {"num_inducing": 4}, "num_inducing"),
        (cgp.KernelAttention, {"noise": 0.1}, "noise"),
        (cgp.SoftmaxAttention, {"kernel": "rbf"}, "kernel"),
        (cgp.KEPSVGPAttention, {"rank": 0}, "rank, num_landmarks: expected at least 1"),
        (cgp.PrimalAttention, {"num_landmarks": 0}, "rank, num_landmarks: expected at least 1"),
        (cgp.KEPSVGPAttention, {"ksvd_weight": -1.0}, "ksvd_weight: expected at least 0"),
        (cgp.PrimalAttention, {"ksvd_reaches": "keys"}, "ksvd_reaches: expected one of"),
        (cgp.KEPSVGPAttention, {"branches": "q"}, "branches: expected one of"),
        (cgp.KEPSVGPAttention, {"merge": "product"}, "merge: expected one of"),
        (cgp.KEPSVGPAttention, {"merge": "concatenation"}, "num_tokens: expected the length of the sequences"),
        (cgp.KEPSVGPAttention, {"num_tokens": 5}, "the addition takes"),
        (cgp.KEPSVGPAttention, {"merge": "concatenation", "branches": "e", "num_tokens": 5}, "nothing to concatenate"),
        (cgp.KEPSVGPAttention, {"kernel": "rbf"}, "kernel"),
        (cgp.KEPSVGPAttention, {"residual": True}, "residual"),
        (cgp.SoftmaxAttention, {"processes": ("query", "key", "value")}, "processes"),
        (cgp.PrimalAttention, {"branches": "e"}, "branches"),
        (cgp.SGPAttention, {"inducing": "random"}, "inducing: expected one of"),
        (cgp.SGPAttention, {"num_inducing": 0}, "num_inducing: expected at least 1"),
        (cgp.SGPAttention, {"kernel": "matern12"}, "kernel: expected one of"),
        (cgp.StandardSGPAttention, {"sequence_weight": -1.0}, "sequence_weight: expected at least 0"),
        (cgp.SGPAttention, {"initial_outputscale": -1.0}, "initial_outputscale: expected a positive number"),
        (cgp.SGPAttention, {"noise": 1.0}, "noise"),
        (cgp.StandardSGPAttention, {"objective": "joint"}, "objective"),
        (cgp.StandardSGPAttention, {"num_inducing": 4}, "num_inducing"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    """Those that do not apply by a TypeError."""
    with pytest.raises(ValueError if ":" in message else TypeError, match=message):
        make(12, 3, **options)


@pytest.mark.parametrize(
    ("make", "option", "message"),
    [
        (cgp.CGPAttention, "kernal", r"^CGPAttention: unexpected option 'kernal'; did you mean 'kernel'\?$"),
        (cgp.CGPAttention, "num_inducing", "'num_inducing'; it is an option of SGPAttention and SparseCGPAttention$"),
        (cgp.KernelAttention, "colour", "'colour'; its options are kernel, symmetric, normalized and dropout$"),
        (cgp.SoftmaxAttention, "nois", "^SoftmaxAttention: unexpected option 'nois'; its options are dropout$"),
    ],
)
def test_an_unknown_option_says_what_may_be_meant(make, option, message):
    with pytest.raises(TypeError, match=message):
        make(12, 3, **{option: "rbf"})


@pytest.mark.parametrize("mode", ["joint", "marginal"])
def test_no_draws_at_all_are_refused(mode):
    block = cgp.SparseCGPAttention(8, 2)
    block.sampling, block.num_samples = mode, 0
    with pytest.raises(ValueError, match="^num_samples: expected at least 1, or None for one draw, got 0$"):
        block(torch.zeros(1, 3, 8))


def test_a_number_of_heads_is_a_number():
    with pytest.raises(ValueError, match="embed_dim, num_heads: expected .* got 16 and '4'"):
        cgp.CGPAttention(16, "4")


def test_a_subclass_may_take_any_option():
    class Own(cgp.CGPAttention):
        def __init__(self, *args, **options):
            super().__init__(*args, noise=options["own"])

    assert copy.deepcopy(Own(12, 3, own=0.5)).noise.tolist() == pytest.approx([0.5] * 3)


@pytest.mark.parametrize("make", [cgp.CGPAttention, cgp.KernelAttention])
def test_lengthscales_of_other_channels_are_refused(make):
    with pytest.raises(ValueError, match="kernel: expected ard_num_dims=4, .*, got 3 of RBFKernel"):
        make(12, 3, kernel=ScaleKernel(RBFKernel(ard_num_dims=3)))
    assert make(12, 3, kernel=RBFKernel(ard_num_dims=4))(torch.zeros(2, 5, 12)).shape == (2, 5, 12)
    assert make(12, 3, kernel=RBFKernel(ard_num_dims=2, active_dims=[0, 3])).covar_module.ard_num_dims == 2


@pytest.mark.parametrize("mask", ["is_causal", "attn_mask"])
def test_a_causal_mask_is_refused_by_the_name_of_its_argument(mask):
    given = True if mask == "is_causal" else torch.ones(5, 5, dtype=torch.bool).triu(1)
    with pytest.raises(ValueError, match=f"^{mask}: SGPAttention .* causal mask; SoftmaxAttention, KernelAttention"):
        cgp.SGPAttention(12, 3)(torch.zeros(2, 5, 12), **{mask: given})


def test_a_deterministic_block_says_that_it_has_no_variance():
    with pytest.raises(TypeError, match="KernelAttention is deterministic: it has no variance"):
        cgp.KernelAttention(12, 3).token_variance(torch.zeros(2, 5, 12))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (cgp.SoftmaxAttention(8, 2), "embed_dim=8, num_heads=2"),
        (cgp.CGPAttention(8, 2), "coupling='direct', mean='regression', kernel='rbf', noise=0.01"),
        (cgp.CGPAttention(8, 2, mean="softmax"), "mean='softmax', kernel='rbf', noise=0.01"),
        (
            cgp.CGPAttention(8, 2, coupling="latent", mean="kernel", noise=0.2, objective="joint", kernel=RBFKernel()),
            "coupling='latent', mean='kernel', kernel='RBFKernel', noise=0.2, objective='joint'",
        ),
        (cgp.SparseCGPAttention(8, 2, num_inducing=3), "num_inducing=3, approximation='dtc', noise=0.01"),
        (cgp.SGPAttention(8, 2), "kernel='rbf', num_inducing=16, inducing='own'"),
        (cgp.KernelAttention(8, 2, symmetric=True), "kernel='rbf', symmetric=True"),
        (cgp.KEPSVGPAttention(8, 2, rank=3), "KSVD(rank=3, num_landmarks=6, weight="),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_repr_of_a_block_says_its_options(block, said):
    assert said in repr(block)
    assert said in repr(block.to("meta")) or "noise" in said  # of which nothing can be read
